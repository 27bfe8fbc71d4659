"""The medians of the last clean runs of every series: enough for a line of small bars.

What is marked (the GPU was busy, its clocks low ...) and what has two humps is left out, as it is
from what is usual.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gpud.agent.history.records import Finite, typed
from gpud.agent.history.schema import VERSION
from gpud.agent.memo import memo
from gpud.agent.regression.evaluation import JUDGED
from gpud.agent.state.snapshot import Recent, RecentKey
from gpud.core.errors import StoreError
from gpud.core.sample import Unit
from gpud.document.runs import RecentSeries

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

    from gpud.agent.history.store import History
    from gpud.agent.state.board import Board
    from gpud.core.sample import Flag, RunReport

MOST: Final = 60
"""Points that are kept of a series."""
HOUR_S: Final = 3600.0
DIGITS: Final = 4
"""Significant digits that are published: a bar has eight heights."""


@dataclass(frozen=True, slots=True)
class RecentPoint:
    """A clean median: of a run that has just ended, or of one that the history gives."""

    series: RecentKey
    unit: Unit
    version: int
    at_s: float
    median: float


def points(
    report: RunReport, gpu: str | None, at_s: float, flags: Iterable[Flag]
) -> tuple[RecentPoint, ...]:
    """Give what a finished run adds: nothing where it failed, is marked, or has two humps."""
    if report.failure is not None or any(flags):
        return ()
    return tuple(
        RecentPoint(
            RecentKey(gpu, report.probe, sample.mode),
            sample.unit,
            report.version,
            at_s,
            sample.median,
        )
        for sample in report.samples
        if sample.unit in JUDGED and not sample.peaks and math.isfinite(sample.median)
    )


def with_points(
    recent: Mapping[RecentKey, Recent], fresh: Iterable[RecentPoint]
) -> dict[RecentKey, Recent]:
    """Take points in, each of its series in the order of time."""
    after = dict(recent)
    for point in fresh:
        before = after.get(point.series)
        if before is not None and before.version > point.version:
            continue  # of the history, of a method that is no more
        at_s: tuple[float, ...] = (point.at_s,)
        medians: tuple[float, ...] = (point.median,)
        # Where the clock was set back, what seems to lie ahead is of no known time.
        if before is not None and before.goes_on(point.unit, point.version, point.at_s + HOUR_S):
            at_s = (*before.at_s, point.at_s)[-MOST:]
            medians = (*before.medians, point.median)[-MOST:]
        after[point.series] = Recent(point.unit, point.version, at_s, medians)
    return after


def with_past(
    recent: Mapping[RecentKey, Recent], past: Iterable[RecentPoint]
) -> dict[RecentKey, Recent]:
    """Put what the history knows in front of what has come in since; what both know counts once."""
    since = {
        RecentPoint(series, line.unit, line.version, at_s, value)
        for series, line in recent.items()
        for at_s, value in zip(line.at_s, line.medians, strict=True)
    }
    return with_points({}, sorted({*past, *since}, key=lambda point: point.at_s))


@memo
def document(recent: Mapping[RecentKey, Recent]) -> tuple[RecentSeries, ...]:
    """Return the series as they are published, the times as whole seconds after the first."""
    return tuple(
        RecentSeries(
            uuid=series.gpu,
            probe=series.probe,
            mode=series.mode,
            unit=line.unit,
            from_s=line.at_s[0],
            after_s=tuple(round(at_s - line.at_s[0]) for at_s in line.at_s),
            medians=tuple(float(f"{value:.{DIGITS}g}") for value in line.medians),
        )
        for series, line in sorted(
            recent.items(), key=lambda item: (item[0].gpu or "", item[0][1:])
        )
    )


AGAIN_S: Final = 1.0
"""How soon it is asked again which probes there are, or for a history that could not be read."""
LOOKED_THROUGH: Final = 4000
"""Newest runs of a probe among which they are looked for: on a busy GPU few are clean."""


async def restore(history: History, board: Board) -> None:
    """Read the past of the probes, once both are available, and publish it."""
    while True:
        specs = board.read().measure.specs
        if specs:
            with suppress(StoreError):  # reported by the runs that cannot be written either
                points: list[RecentPoint] = []
                for spec in specs:  # one at a time: a run that ends waits for less
                    points += await history.read(last, spec.name)
                measure = board.read().measure
                past = with_past(measure.recent, points)
                board.publish(measure=replace(measure, recent=past))
                return
        await asyncio.sleep(AGAIN_S)


def last(connection: sqlite3.Connection, probe: str) -> list[RecentPoint]:
    """Return the clean medians of a probe's newest clean runs on each GPU, newest first.

    SQLite's errors pass; a damaged row is skipped.
    """
    rows = connection.execute(
        "WITH newest AS (SELECT * FROM runs WHERE probe = ? ORDER BY finished_s DESC LIMIT ?),"  # noqa: S608  # ours
        " clean AS (SELECT *,"
        " row_number() OVER (PARTITION BY gpu_uuid ORDER BY finished_s DESC) AS place FROM newest"
        " WHERE failure IS NULL AND flags = '[]' AND (gpu_uuid IS NOT NULL OR backend = 'cpu'))"
        f" SELECT r.gpu_uuid, s.mode, s.unit, {VERSION}, r.finished_s, s.median"
        " FROM clean r JOIN samples s ON s.run_id = r.id"
        " WHERE r.place <= ? AND s.peaks IS NULL ORDER BY r.finished_s DESC",
        (probe, LOOKED_THROUGH, MOST),
    )
    return [
        RecentPoint(RecentKey(gpu, probe, mode), unit, version, at_s, value)
        for gpu, mode, unit, version, at_s, value in typed(
            rows, tuple[str | None, str, Unit, int, Finite, Finite]
        )
        if unit in JUDGED
    ]
