"""/api/v1/history: figures of one probe over time, thinned out, beside the writer.

The answer is made in a thread with a connection of its own, within a time: the thread that writes
is not asked. Up to two days come from the runs themselves, longer from the hours.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route

from gpud.agent import historyrows, reader
from gpud.agent.historyrows import CPU, Wanted
from gpud.agent.rolluprows import HOUR_S
from gpud.agent.web.api.queries import (
    Unusable,
    answer,
    count,
    moment,
    refusal,
    refuse_unknown,
    unavailable,
)
from gpud.core.errors import StoreError
from gpud.core.stats import quantile

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from starlette.datastructures import QueryParams
    from starlette.requests import Request
    from starlette.responses import Response

    from gpud.agent.historyrows import Row

PATH: Final = "/api/v1/history"
PARAMETERS: Final = ("probe", "mode", "gpu", "since", "until", "points")
USUAL_RANGE_S: Final = 86400.0
RAW_RANGE_S: Final = 2 * 86400.0
LONGEST_S: Final = 3 * 366 * 86400.0
USUAL_POINTS: Final = 300
MOST_POINTS: Final = 2000
PATIENCE_S: Final = 3.0
WAITING: Final = 4
"""Questions at a time, one of them being answered; another is told to come again."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for; ``points`` is how many there may be of one series."""

    wanted: Wanted
    points: int

    @property
    def hourly(self) -> bool:
        """Whether the range is so long that hours are read."""
        return self.wanted.until_s - self.wanted.since_s > RAW_RANGE_S


def route(directory: Path, now_s: Callable[[], float]) -> Route:
    """Make the route. A history that cannot be read is a 503 with its reason."""
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="history")
    waiting = 0

    async def history(request: Request) -> Response:
        nonlocal waiting
        try:
            asked = parsed(request.query_params, now_s=now_s())
        except Unusable as error:
            return refusal(error)
        if waiting >= WAITING:
            fix = "ask again in a second"
            return unavailable(StoreError("others ask too", reason="busy", fix=fix))
        waiting += 1
        loop = asyncio.get_running_loop()
        try:
            # Shielded: one who hangs up leaves a thread that is busy all the same.
            document = await asyncio.shield(
                loop.run_in_executor(thread, lambda: found(directory, asked))
            )
        except StoreError as error:
            return unavailable(error)
        finally:
            waiting -= 1
        return answer(document)

    return Route(PATH, history)


def parsed(query: QueryParams, *, now_s: float) -> Asked:
    """Read the query. Errors: ``Unusable``."""
    refuse_unknown(query, PARAMETERS)
    probe = query.get("probe")
    if not probe:
        raise Unusable("probe", "which probe is not said", "probe=launch, as /api/v1/status names")
    until_s = moment("until", query.get("until"))
    since_s = moment("since", query.get("since"))
    until_s = now_s if until_s is None else until_s
    since_s = until_s - USUAL_RANGE_S if since_s is None else since_s
    if since_s >= until_s:
        raise Unusable("since", "since is not before until", "exchange the two")
    if until_s - since_s > LONGEST_S:
        raise Unusable("since", "that is more than three years", "ask for a part of it")
    gpu = query.get("gpu")
    return Asked(
        Wanted(
            since_s,
            until_s,
            (probe,),
            () if query.get("mode") is None else (query["mode"],),
            () if gpu is None else (CPU if gpu == "cpu" else gpu,),
        ),
        count("points", query.get("points"), usual=USUAL_POINTS, most=MOST_POINTS),
    )


def found(directory: Path, asked: Asked) -> dict[str, Any]:
    """Read and thin out. Errors: ``StoreError``."""
    series = reader.ask(directory, lambda c: _thinned(c, asked), patience_s=PATIENCE_S)
    return {
        "since_s": asked.wanted.since_s,
        "until_s": asked.wanted.until_s,
        "source": "hours" if asked.hourly else "runs",
        "step_s": _step_s(asked),
        "series": series,
    }


@dataclass(frozen=True, slots=True)
class _Series:
    gpu: str | None
    mode: str
    version: int | None
    unit: str


class _Point:
    """What fell into one step of one series."""

    def __init__(self) -> None:
        self.medians: list[float] = []
        self.least, self.most = math.inf, -math.inf
        self.runs = self.marked = 0
        self.drivers: set[str] = set()

    def add(self, row: Row) -> None:
        """Take a run or an hour in; marked runs are counted, and no figure rests on them."""
        self.runs += (row.n or 0) if row.hourly else not row.flags
        self.marked += row.flagged if row.hourly else bool(row.flags)
        if isinstance(driver := row.conditions.get("driver_version"), str):
            self.drivers.add(driver)
        if row.flags or "median" not in row.figures:
            return
        self.medians.append(row.figures["median"])
        self.least = min(self.least, row.figures.get("minimum", math.inf))
        self.most = max(self.most, row.figures.get("maximum", -math.inf))

    def document(self, at_s: float) -> dict[str, Any]:
        """Give it as JSON data; a step of marked runs only has counts and no figure."""
        told = {
            "at_s": at_s,
            "n": self.runs,
            "marked": self.marked,
            "drivers": sorted(self.drivers),
        }
        if not self.medians:
            return told
        ordered = sorted(self.medians)
        ends = {"minimum": self.least, "maximum": self.most}
        return {
            **told,
            **{
                name: quantile(ordered, q)
                for name, q in (("median", 0.5), ("p10", 0.1), ("p90", 0.9))
            },
            **{name: end for name, end in ends.items() if math.isfinite(end)},
        }


def _thinned(connection: sqlite3.Connection, asked: Asked) -> list[dict[str, Any]]:
    step_s = _step_s(asked)
    series: defaultdict[_Series, defaultdict[int, _Point]] = defaultdict(
        lambda: defaultdict(_Point)
    )
    for row in _rows(connection, asked):
        if row.mode is None or row.unit is None:
            continue
        number = max(0, math.floor((row.at_s - asked.wanted.since_s) / step_s))
        series[_Series(row.gpu, row.mode, row.version, row.unit)][number].add(row)
    return [
        {
            "gpu": key.gpu,
            "mode": key.mode,
            "version": key.version,
            "unit": key.unit,
            "points": [
                points[number].document(asked.wanted.since_s + number * step_s)
                for number in sorted(points)
            ],
        }
        for key, points in sorted(series.items(), key=lambda one: str(one[0]))
    ]


def _rows(connection: sqlite3.Connection, asked: Asked) -> Iterator[Row]:
    if asked.hourly:
        return historyrows.hours_and_the_last_runs(connection, asked.wanted, most_s=RAW_RANGE_S)
    return historyrows.runs_backwards(connection, asked.wanted)


def _step_s(asked: Asked) -> float:
    span_s = asked.wanted.until_s - asked.wanted.since_s
    return max(span_s / asked.points, HOUR_S if asked.hourly else 1.0)
