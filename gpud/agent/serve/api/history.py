"""/api/v1/history: figures of one probe over time, reduced to steps and read in a thread.

Up to two days come from the runs themselves, longer ranges from the hours. Clients that ask the
same within a moment get the same answer: a page with fifty viewers costs what one of them does.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.agent.history import charts
from gpud.agent.history.charts import RAW_RANGE_S, ChartQuery, Steps
from gpud.agent.history.schema import HOUR_S
from gpud.agent.history.selection import CPU
from gpud.agent.serve.api import answers
from gpud.agent.serve.api.queries import Unknown, Unusable, count, moment, named
from gpud.agent.serve.http.response import Body
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import QueryParams
    from starlette.routing import Route

    from gpud.agent.state.snapshot import Snapshot

PATH: Final = "/api/v1/history"
USUAL_RANGE_S: Final = 86400.0
LONGEST_S: Final = 3 * 366 * 86400.0
USUAL_POINTS: Final = 300
MOST_POINTS: Final = 2000
DEADLINE_S: Final = 8.0
"""SQLite gives up after 3 s by itself; a disk that hangs in the kernel does not."""
CACHE_S: Final = 5.0
CACHE_BYTES: Final = 1 << 20
"""Of answers that may be asked for again; the oldest go first."""
MOST_QUERIES: Final = 16
"""Different queries at a time, one of them being answered; another is refused."""

PROBE: Final = named("probe", "the probe, as /api/v1/probes names it", "launch", required=True)
MODE: Final = named("mode", "its modes; all of them where none is given", "submit", many=True)
GPU: Final = named("gpu", "GPUs by UUID or number, or cpu; all where none is given", "0", many=True)
SINCE: Final = moment("since", "from when on; a day before `until` where it is not given")
UNTIL: Final = moment("until", "until when; now where it is not given")
POINTS: Final = count(
    "points", "how many steps make up the range, at the most", usual=USUAL_POINTS, most=MOST_POINTS
)
PARAMETERS: Final = (PROBE, MODE, GPU, SINCE, UNTIL, POINTS)


def route(store: Charts, read: Callable[[], Snapshot], now_s: Callable[[], float]) -> Route:
    """Make the route. A history that cannot be read is a 503 with its reason."""

    async def history(query: QueryParams) -> Body:
        snapshot = read()
        try:
            return await store.answer(parsed(query, snapshot, now_s=now_s()), snapshot)
        except charts.UnknownName as error:
            raise Unknown(error.parameter, error.name, error.known) from None

    return answers.route(PATH, PARAMETERS, history)


class Charts:
    """Answers of the last seconds, and those in progress; one is read at a time."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._turn = asyncio.Lock()
        self._answers: dict[ChartQuery, asyncio.Task[Body]] = {}

    async def answer(self, query: ChartQuery, snapshot: Snapshot) -> Body:
        """Give the answer there is, or wait for it. Errors: ``StoreError``, ``UnknownName``."""
        task = self._answers.get(query)
        if task is None:
            if sum(not task.done() for task in self._answers.values()) >= MOST_QUERIES:
                raise StoreError("others ask too", reason="busy", fix="ask again in a second")
            task = self._answers[query] = asyncio.create_task(self._read(query, snapshot))
            task.add_done_callback(lambda task: self._done(query, task))
        try:
            # Shielded: others may wait for it too, and the thread goes on all the same.
            async with asyncio.timeout(DEADLINE_S):
                return await asyncio.shield(task)
        except TimeoutError:
            slow = f"the history was not read within {DEADLINE_S:g} s"
            raise StoreError(slow, reason="slow", fix="look at the disk") from None

    async def _read(self, query: ChartQuery, snapshot: Snapshot) -> Body:
        async with self._turn:
            return await asyncio.to_thread(
                lambda: Body.of(charts.read(self._directory, query, snapshot))
            )

    def _done(self, query: ChartQuery, task: asyncio.Task[Body]) -> None:
        """Forget a failure at once, and an answer after some seconds or when there are too many."""
        if task.cancelled() or task.exception() is not None:
            del self._answers[query]
            return
        sizes = {
            key: len(chart.result().plain) for key, chart in self._answers.items() if chart.done()
        }
        while sum(sizes.values()) > CACHE_BYTES and len(sizes) > 1:
            oldest = next(iter(sizes))
            del sizes[oldest], self._answers[oldest]
        asyncio.get_running_loop().call_later(CACHE_S, self._forget, query, task)

    def _forget(self, query: ChartQuery, task: asyncio.Task[Body]) -> None:
        if self._answers.get(query) is task:
            del self._answers[query]


def parsed(query: QueryParams, snapshot: Snapshot, *, now_s: float) -> ChartQuery:
    """Read the query. Errors: ``Unusable``."""
    probe = PROBE.value(query)
    if probe is None:
        raise Unusable("probe", "which probe is not said", "probe=launch, as /api/v1/probes names")
    until_s, since_s, points = UNTIL.value(query), SINCE.value(query), POINTS.value(query)
    until_s = now_s if until_s is None else until_s
    since_s = until_s - USUAL_RANGE_S if since_s is None else since_s
    if since_s >= until_s:
        raise Unusable("since", "since is not before until", "exchange the two", "bad_range")
    if until_s - since_s > LONGEST_S:
        raise Unusable("since", "that is more than three years", "ask for less", "bad_range")
    hourly = until_s - since_s > RAW_RANGE_S
    steps = Steps.over(
        since_s,
        until_s,
        most=USUAL_POINTS if points is None else points,
        least_s=HOUR_S if hourly else 1,
    )
    gpus = dict.fromkeys(_gpu(text, snapshot) for text in GPU.all(query))
    return ChartQuery(probe, MODE.all(query), tuple(gpus), steps, hourly)


def _gpu(text: str, snapshot: Snapshot) -> str:
    """Give the UUID, or ``CPU``. Errors: ``Unknown`` for a number that no GPU has."""
    if text == "cpu":
        return CPU
    if not (text.isascii() and text.isdigit()):
        return text
    for uuid, gpu in snapshot.gpus.items():
        if str(gpu.number) == text:
            return uuid
    raise Unknown("gpu", text, charts.gpu_names(snapshot))
