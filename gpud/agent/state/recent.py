"""The recent past of every series, bounded: enough for a line of small bars, and no history.

A probe of the small pace keeps the medians of its last clean runs, one of the large pace those of
the last hours that had any. What is marked (the GPU was busy, its clocks low ...) and what has two
humps is left out, as it is from what is usual.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpud.agent.regression.evaluation import JUDGED
from gpud.core.sample import Pace
from gpud.core.stats import median

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpud.core.sample import Flag, ProbeSpec, RunReport, Unit

MOST: Final = 60
"""Points that are kept of a series."""
HOUR_S: Final = 3600.0
MOST_IN_HOUR: Final = 60
"""Runs of the present hour that its median is made of; the large pace has four."""
DIGITS: Final = 4
"""Significant digits that are published: a bar has eight heights."""


class Series(NamedTuple):
    """Names one; ``gpu`` is a UUID, None for the CPU."""

    gpu: str | None
    probe: str
    mode: str


@dataclass(frozen=True, slots=True)
class Recent:
    """The points of a series, the oldest first.

    Units: ``at_s`` is Unix time, of an hour its beginning; ``medians`` are in ``unit``. ``hour``
    holds the runs that the last point is the median of, where points are hours.
    """

    unit: Unit
    version: int  # of the probe's method
    at_s: tuple[float, ...] = ()
    medians: tuple[float, ...] = ()
    hour: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """A clean median: of a run that has just ended, or of one that the history gives."""

    series: Series
    unit: Unit
    version: int
    at_s: float
    median: float


def points(
    report: RunReport, gpu: str | None, at_s: float, flags: Iterable[Flag]
) -> tuple[Point, ...]:
    """Give what a finished run adds: nothing where it failed, is marked, or has two humps."""
    if report.failure is not None or any(flags):
        return ()
    return tuple(
        Point(Series(gpu, report.probe, one.mode), one.unit, report.version, at_s, one.median)
        for one in report.samples
        if one.unit in JUDGED and not one.peaks and math.isfinite(one.median)
    )


def with_points(
    recent: Mapping[Series, Recent], specs: Iterable[ProbeSpec], fresh: Iterable[Point]
) -> dict[Series, Recent]:
    """Take points in, each of its series in the order of time."""
    paces = {spec.name: spec.pace for spec in specs}
    known = dict(recent)
    for point in fresh:
        hourly = paces.get(point.series.probe) is Pace.LARGE
        before = known.get(point.series)
        if before is None or before.version != point.version or before.unit is not point.unit:
            if before is not None and before.version > point.version:
                continue  # of the history, of a method that is no more
            before = Recent(point.unit, point.version)
        known[point.series] = _added(before, point, hourly=hourly)
    return known


def with_past(
    recent: Mapping[Series, Recent], specs: Iterable[ProbeSpec], past: Iterable[Point]
) -> dict[Series, Recent]:
    """Put what the history knows in front of what has come in since; what both know counts once."""
    ordered = sorted(past, key=lambda point: point.at_s)
    named = {point.series for point in ordered}
    others = {series: one for series, one in recent.items() if series not in named}
    after = with_points(others, specs, ordered)
    since = [
        Point(series, one.unit, one.version, at_s, value)
        for series in named
        if (one := recent.get(series)) is not None
        for at_s, value in zip(one.at_s, one.medians, strict=True)
        if at_s > after[series].at_s[-1]
    ]
    return with_points(after, specs, since)


def document(recent: Mapping[Series, Recent]) -> list[dict[str, Any]]:
    """Give the series as plain JSON data, the times as whole seconds after the first."""
    return [
        {
            "uuid": series.gpu,
            "probe": series.probe,
            "mode": series.mode,
            "unit": one.unit,
            "from_s": one.at_s[0],
            "after_s": [round(at_s - one.at_s[0]) for at_s in one.at_s],
            "medians": [float(f"{value:.{DIGITS}g}") for value in one.medians],
        }
        for series, one in sorted(recent.items(), key=lambda item: (item[0].gpu or "", item[0][1:]))
        if one.at_s
    ]


def _added(before: Recent, point: Point, *, hourly: bool) -> Recent:
    if before.at_s and point.at_s < before.at_s[-1] - HOUR_S:
        # The clock was set back: what seems to lie ahead is of no known time.
        before = Recent(point.unit, point.version)
    if not hourly:
        return Recent(
            point.unit,
            point.version,
            (*before.at_s, point.at_s)[-MOST:],
            (*before.medians, point.median)[-MOST:],
        )
    begun_s = math.floor(point.at_s / HOUR_S) * HOUR_S
    if not before.at_s or begun_s > before.at_s[-1]:
        at_s, medians = (*before.at_s, begun_s), before.medians
        hour: tuple[float, ...] = (point.median,)
    else:
        at_s, medians = before.at_s, before.medians[:-1]
        hour = (*before.hour, point.median)[-MOST_IN_HOUR:]
    return Recent(point.unit, point.version, at_s[-MOST:], (*medians, median(hour))[-MOST:], hour)
