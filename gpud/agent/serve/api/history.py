"""/api/v1/history and /api/v1/telemetry: figures over time, reduced to steps, read in a thread.

Up to two days come from the runs or minutes themselves, longer ranges from the hours. The same
question within a moment gets the same answer: a page with fifty viewers costs what one does.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gpud.agent.history import charts, telemetry
from gpud.agent.history.charts import RAW_RANGE_S, ChartQuery, HistoryAnswer, Steps
from gpud.agent.history.schema import CPU, HOUR_S, MINUTE_S
from gpud.agent.history.telemetry import TelemetryAnswer, TelemetryQuery
from gpud.agent.serve.api import answers
from gpud.agent.serve.api.parameters import (
    HistoryParameters,
    TelemetryParameters,
    UnusableParameter,
    unix_s,
)
from gpud.agent.serve.http.response import Body
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot

DEFAULT_RANGE_S: Final = 86400.0
LONGEST_S: Final = 3 * 366 * 86400.0
CACHE_S: Final = 5.0
MOST_QUERIES: Final = 16
"""Different queries in progress or cached; beyond that the oldest answer goes, or a new query."""


class Charts:
    """Answers of the last seconds, and those in progress; one is read at a time."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._turn = asyncio.Lock()
        self._answers: dict[ChartQuery | TelemetryQuery, asyncio.Task[Body]] = {}

    async def answer(self, chart: ChartQuery | TelemetryQuery, snapshot: Snapshot) -> Body:
        """Answer a query. Errors: ``StoreError``, ``UnknownName``."""
        # Shielded: others may wait for it too, and the thread goes on all the same.
        return await answers.read(asyncio.shield(self._task(chart, snapshot)))

    def _task(self, query: ChartQuery | TelemetryQuery, snapshot: Snapshot) -> asyncio.Task[Body]:
        """Return the task that reads this query, or has read it in the last seconds."""
        if query not in self._answers:
            if len(self._answers) >= MOST_QUERIES:
                ended = (key for key, task in self._answers.items() if task.done())
                oldest = next(ended, None)
                if oldest is None:
                    raise StoreError("others ask too", reason="busy", fix="ask again in a second")
                del self._answers[oldest]
            self._answers[query] = asyncio.create_task(self._read(query, snapshot))
        return self._answers[query]

    async def _read(self, query: ChartQuery | TelemetryQuery, snapshot: Snapshot) -> Body:
        def read() -> Body:
            answer, n_series = _answer(self._directory, query, snapshot)
            if n_series == 0 and not query.hourly:  # runs and minutes of that time are deleted
                hourly = replace(query, steps=query.steps.of_hours(), hourly=True)
                of_hours, n_series = _answer(self._directory, hourly, snapshot)
                answer = of_hours if n_series else answer
            return Body.of(answer)

        lifetime_s = 0.0  # a failure is forgotten at once
        try:
            async with self._turn:
                body = await asyncio.to_thread(read)
            lifetime_s = CACHE_S
        finally:
            asyncio.get_running_loop().call_later(lifetime_s, self._answers.pop, query, None)
        return body


def _answer(
    directory: Path, query: ChartQuery | TelemetryQuery, snapshot: Snapshot
) -> tuple[HistoryAnswer | TelemetryAnswer, int]:
    """Read an answer, and how many series it has."""
    if isinstance(query, ChartQuery):
        figures = charts.read(directory, query, snapshot)
        return figures, len(figures.series)
    minutes = telemetry.read(directory, query, snapshot)
    return minutes, len(minutes.gpus)


def chart_query(query: HistoryParameters, snapshot: Snapshot, *, now_s: float) -> ChartQuery:
    """Read the query. Errors: ``UnusableParameter``."""
    steps, hourly = _steps(query, now_s, least_s=1)
    return ChartQuery(query.probe, query.mode, _gpus(query.gpu, snapshot), steps, hourly)


def telemetry_query(
    query: TelemetryParameters, snapshot: Snapshot, *, now_s: float
) -> TelemetryQuery:
    """Read the query. Errors: ``UnusableParameter``."""
    return TelemetryQuery(_gpus(query.gpu, snapshot), *_steps(query, now_s, least_s=MINUTE_S))


def _steps(
    query: HistoryParameters | TelemetryParameters, now_s: float, *, least_s: int
) -> tuple[Steps, bool]:
    """Return the steps of the range, and whether it is so long that hours are read."""
    until_s, since_s = unix_s(query.until), unix_s(query.since)
    until_s = now_s if until_s is None else until_s
    since_s = until_s - DEFAULT_RANGE_S if since_s is None else since_s
    if since_s >= until_s:
        detail = "since is not before until"
        raise UnusableParameter("since", detail, "exchange the two", "bad_range")
    if until_s - since_s > LONGEST_S:
        detail = "that is more than three years"
        raise UnusableParameter("since", detail, "ask for less", "bad_range")
    hourly = until_s - since_s > RAW_RANGE_S
    least_s = HOUR_S if hourly else least_s
    return Steps.over(since_s, until_s, most=query.points, least_s=least_s), hourly


def _gpus(names: tuple[str, ...], snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_uuid(name, snapshot) for name in names))


def _uuid(name: str, snapshot: Snapshot) -> str:
    """Return the UUID of a GPU given by number or UUID, or ``CPU``."""
    if name == "cpu":
        return CPU
    if not (name.isascii() and name.isdigit()):
        return name
    for uuid, gpu in snapshot.gpus.items():
        if str(gpu.number) == name:
            return uuid
    raise charts.UnknownName("gpu", name, charts.gpu_names(snapshot))
