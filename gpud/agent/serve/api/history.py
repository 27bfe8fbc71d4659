"""/api/v1/history and /api/v1/telemetry: figures over time, reduced to steps, read in a thread.

Up to two days come from the runs or minutes themselves, longer ranges from the hours. The same
question within a moment gets the same answer: a page with fifty viewers costs what one does.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.agent.history import charts, telemetry
from gpud.agent.history.charts import RAW_RANGE_S, ChartQuery, Steps
from gpud.agent.history.schema import CPU, HOUR_S, MINUTE_S
from gpud.agent.history.telemetry import TelemetryQuery
from gpud.agent.serve.api.parameters import UnknownValue, UnusableParameter, count, moment, named
from gpud.agent.serve.http.response import Body
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams

    from gpud.agent.state.snapshot import Snapshot

DEFAULT_RANGE_S: Final = 86400.0
LONGEST_S: Final = 3 * 366 * 86400.0
DEFAULT_POINTS: Final = 300
MOST_POINTS: Final = 2000
DEADLINE_S: Final = 8.0
"""SQLite gives up after 3 s by itself; a disk that hangs in the kernel does not."""
CACHE_S: Final = 5.0
MOST_QUERIES: Final = 16
"""Different queries in progress or cached; beyond that the oldest answer goes, or a new query."""

PROBE: Final = named("probe", "the probe, as /api/v1/probes names it", "launch", required=True)
MODE: Final = named("mode", "its modes; all of them where none is given", "submit", many=True)
GPU: Final = named("gpu", "GPUs by UUID or number, or cpu; all where none is given", "0", many=True)
SINCE: Final = moment("since", "from when on; a day before `until` where it is not given")
UNTIL: Final = moment("until", "until when; now where it is not given")
POINTS: Final = count(
    "points",
    "how many steps make up the range, at the most",
    default=DEFAULT_POINTS,
    most=MOST_POINTS,
)
PARAMETERS: Final = (PROBE, MODE, GPU, SINCE, UNTIL, POINTS)
TELEMETRY_PARAMETERS: Final = (GPU, SINCE, UNTIL, POINTS)


class Charts:
    """Answers of the last seconds, and those in progress; one is read at a time."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._turn = asyncio.Lock()
        self._answers: dict[ChartQuery | TelemetryQuery, asyncio.Task[Body]] = {}

    async def answer(self, chart: ChartQuery | TelemetryQuery, snapshot: Snapshot) -> Body:
        """Answer a query. Errors: ``StoreError``, ``UnusableParameter``."""
        try:
            # Shielded: others may wait for it too, and the thread goes on all the same.
            async with asyncio.timeout(DEADLINE_S):
                return await asyncio.shield(self._task(chart, snapshot))
        except charts.UnknownName as error:
            raise UnknownValue(error.parameter, error.name, error.choices) from None
        except TimeoutError:
            slow = f"the history was not read within {DEADLINE_S:g} s"
            raise StoreError(slow, reason="slow", fix="look at the disk") from None

    def _task(self, query: ChartQuery | TelemetryQuery, snapshot: Snapshot) -> asyncio.Task[Body]:
        """Return the task that reads this query, or has read it in the last seconds."""
        if query not in self._answers:
            if len(self._answers) >= MOST_QUERIES:
                ended = (key for key, task in self._answers.items() if task.done())
                oldest = next(ended, None)
                if oldest is None:
                    raise StoreError("others ask too", reason="busy", fix="ask again in a second")
                del self._answers[oldest]
            task = self._answers[query] = asyncio.create_task(self._read(query, snapshot))
            task.add_done_callback(lambda task: self._forget_later(query, task))
        return self._answers[query]

    async def _read(self, query: ChartQuery | TelemetryQuery, snapshot: Snapshot) -> Body:
        def read() -> Body:
            if isinstance(query, ChartQuery):
                return Body.of(charts.read(self._directory, query, snapshot))
            return Body.of(telemetry.read(self._directory, query, snapshot))

        async with self._turn:
            return await asyncio.to_thread(read)

    def _forget_later(self, query: ChartQuery | TelemetryQuery, task: asyncio.Task[Body]) -> None:
        """Keep an answer for some seconds; a failure is forgotten at once."""
        if task.cancelled() or task.exception() is not None:
            self._forget(query, task)
        else:
            asyncio.get_running_loop().call_later(CACHE_S, self._forget, query, task)

    def _forget(self, query: ChartQuery | TelemetryQuery, task: asyncio.Task[Body]) -> None:
        if self._answers.get(query) is task:
            del self._answers[query]


def chart_query(query: QueryParams, snapshot: Snapshot, *, now_s: float) -> ChartQuery:
    """Read the query. Errors: ``UnusableParameter``."""
    probe = PROBE.value(query)
    if probe is None:
        fix = "probe=launch, as /api/v1/probes names"
        raise UnusableParameter("probe", "the parameter probe is missing", fix)
    steps, hourly = _steps(query, now_s, least_s=1)
    return ChartQuery(probe, MODE.values(query), _gpus(query, snapshot), steps, hourly)


def telemetry_query(query: QueryParams, snapshot: Snapshot, *, now_s: float) -> TelemetryQuery:
    """Read the query. Errors: ``UnusableParameter``."""
    return TelemetryQuery(_gpus(query, snapshot), *_steps(query, now_s, least_s=MINUTE_S))


def _steps(query: QueryParams, now_s: float, *, least_s: int) -> tuple[Steps, bool]:
    """Return the steps of the range, and whether it is so long that hours are read."""
    until_s, since_s = UNTIL.value(query), SINCE.value(query)
    until_s = now_s if until_s is None else until_s
    since_s = until_s - DEFAULT_RANGE_S if since_s is None else since_s
    if since_s >= until_s:
        detail = "since is not before until"
        raise UnusableParameter("since", detail, "exchange the two", "bad_range")
    if until_s - since_s > LONGEST_S:
        detail = "that is more than three years"
        raise UnusableParameter("since", detail, "ask for less", "bad_range")
    hourly = until_s - since_s > RAW_RANGE_S
    points = POINTS.value(query) or DEFAULT_POINTS
    return Steps.over(since_s, until_s, most=points, least_s=HOUR_S if hourly else least_s), hourly


def _gpus(query: QueryParams, snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_uuid(name, snapshot) for name in GPU.values(query)))


def _uuid(name: str, snapshot: Snapshot) -> str:
    """Return the UUID of a GPU given by number or UUID, or ``CPU``."""
    if name == "cpu":
        return CPU
    if not (name.isascii() and name.isdigit()):
        return name
    for uuid, gpu in snapshot.gpus.items():
        if str(gpu.number) == name:
            return uuid
    raise UnknownValue("gpu", name, charts.gpu_names(snapshot))
