"""``gpud history --chart``: each series over time, with the driver's changes and what is usual.

Up to two days are drawn of the runs themselves, longer ranges of the hours and the runs after them,
as on the page: a terminal has no room for a week of runs, and nobody has the time to read them all.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from gpud import place
from gpud.agent import historyscope, reader, thinrows
from gpud.agent.byhand import terminal
from gpud.agent.history.request import numbering, understood
from gpud.core import plot
from gpud.core.errors import GpudError
from gpud.core.probewords import both
from gpud.core.sample import Unit
from gpud.core.stats import human, median
from gpud.core.text import escaped
from gpud.status.view import HEAD, QUIET, Span, line, narrowed
from gpud.term import paint

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

    from gpud.agent.history.request import Request
    from gpud.agent.thinrows import Thin
    from gpud.agent.wanted import Wanted
    from gpud.core.settings import Settings
    from gpud.status.view import Line, View

USUAL_S: Final = 7 * 86400.0
"""Before the end of what is asked for, where no begin is."""
SHORTEST_S: Final = 600.0
"""So much is drawn of a history that has just begun."""
RAW_RANGE_S: Final = 2 * 86400.0
PATIENCE_S: Final = 30.0
MOST_CHARTS: Final = 12
MOST_MARKS: Final = 6
HIGHEST, LOWEST, PIPED = 14, 5, 10
"""Rows of one chart; several share the terminal."""
UNITS: Final = frozenset(unit.value for unit in Unit)


class Series(NamedTuple):
    """What compares with each other. ``gpu`` is a UUID, "" for the CPU."""

    gpu: str
    probe: str
    mode: str
    version: int
    unit: str


@dataclass(slots=True)
class Course:
    """What was measured of a series: unmarked medians, and which driver began when."""

    points: list[tuple[float, float]] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)  # minima and maxima
    marked: int = 0
    drivers: list[tuple[float, str]] = field(default_factory=list)


def show(settings: Settings, request: Request, *, colour: str, now_s: float) -> int:
    """Draw every series that is asked for; always 0.

    Errors: ``ConfigError`` for a moment, probe or GPU that is none, ``StoreError``.
    """
    directory, numbers = Path(settings.state_dir), numbering(settings)
    wanted = understood(directory, request, numbers, now_s)
    wanted = replace(wanted, until_s=min(wanted.until_s, now_s))
    if request.since is None:
        wanted = replace(wanted, since_s=wanted.until_s - USUAL_S)
    courses = reader.ask(
        directory,
        lambda connection: _read(connection, wanted, request.limit),
        patience_s=PATIENCE_S,
    )
    span = (wanted.since_s, wanted.until_s)
    if request.since is None:
        span = (begin(courses.values(), *span), span[1])
    view = paint.view(sys.stdout)
    normal = _normal(Path(settings.run_dir))
    lines: list[Line] = []
    for series, course in list(courses.items())[:MOST_CHARTS]:
        usual = normal.get(series[:4])
        rows_each = _height(view, len(courses))
        lines += _chart(series, course, span, usual, numbers, view, rows_each)
    if not courses:
        lines.append(line("nothing was measured then that can be drawn"))
    elif len(courses) > MOST_CHARTS:
        rest = f"{len(courses) - MOST_CHARTS} more series: --probe, --mode and --gpu choose"
        lines.append(line(Span(rest, QUIET)))
    shown = narrowed(lines, view)
    terminal.put(paint.painted(shown, colour=paint.wanted(colour, sys.stdout)))
    return 0


def begin(courses: Iterable[Course], since_s: float, until_s: float) -> float:
    """Give from when on to draw: nobody wants to look at days of which there is nothing.

    Units: Unix time. All charts begin at the same time, that of the oldest run in any of them.
    """
    first_s = min((course.points[0][0] for course in courses), default=since_s)
    return max(since_s, min(first_s, until_s - SHORTEST_S))


def _read(connection: sqlite3.Connection, wanted: Wanted, most: int | None) -> dict[Series, Course]:
    range_s = wanted.until_s - wanted.since_s
    rows: list[tuple[str, Thin]] = []
    for probe in wanted.probes or historyscope.probes(connection):
        one = replace(wanted, probes=(probe,))
        if range_s > RAW_RANGE_S:
            told = thinrows.hours(connection, one, most_s=range_s)
        else:
            told = thinrows.runs(connection, one)
        rows += ((probe, row) for row in told)
    rows.sort(key=lambda one: one[1].at_s)
    return found(rows[-(most or 0) :])


def found(rows: Iterable[tuple[str, Thin]]) -> dict[Series, Course]:
    """Sort rows of probes, the oldest first, into courses; marked runs are only counted."""
    courses: defaultdict[Series, Course] = defaultdict(Course)
    for probe, row in rows:
        if row.unit not in UNITS:
            continue
        course = courses[Series(row.gpu or "", probe, row.mode, row.version, row.unit)]
        course.marked += row.marked
        if not row.n or not thinrows.finite(row.median):
            continue
        course.points.append((row.at_s, row.median))
        course.ends += [end for end in (row.minimum, row.maximum) if thinrows.finite(end)]
        if row.driver and row.driver not in {one for _, one in course.drivers[-1:]}:
            course.drivers.append((row.at_s, row.driver))
    ordered = sorted(courses.items(), key=lambda item: item[0])
    return {series: course for series, course in ordered if course.points}


def _chart(  # noqa: PLR0913, PLR0917  # what is drawn, and into what
    series: Series,
    course: Course,
    span: tuple[float, float],
    usual: float | None,
    numbers: Mapping[str, int],
    view: View,
    height: int,
) -> Iterator[Line]:
    changes = list(zip(course.drivers, course.drivers[1:], strict=False))[-MOST_MARKS:]
    values = [value for _, value in course.points]
    words = [f"{len(values)} points", f"median {human(median(values), series.unit)}"]
    if course.ends:
        least, most = min(course.ends), max(course.ends)
        words += [f"least {human(least, series.unit)}", f"most {human(most, series.unit)}"]
    words += [f"usual {human(usual, series.unit)}"] if usual is not None else []
    words += [f"{course.marked} marked, not drawn"] if course.marked else []
    name = both(series.probe, series.mode)
    yield line(Span(f"{name} on {_place(series.gpu, numbers)}", HEAD))
    yield line(Span(f"  {', '.join(words)}", QUIET))
    from_s = max(span[0], course.points[0][0] if span[0] < 0 else span[0])
    chart = plot.Chart(
        points=course.points,
        from_s=from_s,
        until_s=span[1],
        unit=series.unit,
        baseline=usual,
        marks=[at_s for _, (at_s, _) in changes],
    )
    for row in plot.drawn(chart, width=view.width, height=height, ascii_only=view.ascii_only):
        yield line(row)
    first, last = _moment(from_s), _moment(span[1])
    room = max(view.width - plot.LABELS, len(first) + len(last) + 1)
    yield line(Span(f"{'':{plot.LABELS}}{first}{last:>{room - len(first)}}", QUIET))
    for (_, before), (at_s, after) in changes:
        yield line(Span(f"{'':{plot.LABELS}}| {_moment(at_s)} driver {before} -> {after}", QUIET))
    yield line()


def _height(view: View, count: int) -> int:
    if view.height is None:
        return PIPED
    each = view.height // min(count, 2) - 6  # heading, figures, axis, times, a blank, the prompt
    return max(LOWEST, min(HIGHEST, each))


def _place(gpu: str, numbers: Mapping[str, int]) -> str:
    if not gpu:
        return "the CPU"
    return f"GPU {numbers[gpu]}" if gpu in numbers else escaped(gpu)


def _normal(run_dir: Path) -> dict[tuple[str, str, str, int], float]:
    """Give what is usual of each series on mains, as the agent says; nothing while none runs."""
    try:
        told = place.document(run_dir) or {}
    except (GpudError, OSError):
        return {}
    return {
        (one["uuid"] or "", one["probe"], one["mode"], one["version"]): one["usual"]
        for one in told.get("streams") or ()
        if one.get("usual") is not None and not one["on_battery"]
    }


def _moment(at_s: float) -> str:
    try:
        return datetime.fromtimestamp(at_s).isoformat(" ", "minutes")  # noqa: DTZ006  # the wall's
    except (ValueError, OverflowError, OSError):
        return f"{at_s:.0f}"
