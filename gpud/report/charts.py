"""Charts as inline SVG, drawn by hand: colours come from the page's style sheet. Pure.

Whatever is written into an attribute or an element here is a number of ours or ``safe``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from gpud.core.stats import human
from gpud.core.text import escaped
from gpud.report import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import tzinfo

    from gpud.report.model import Bin, Report, Track

WIDE, HIGH = 720, 200
LEFT, RIGHT, TOP, BOTTOM = 78, 8, 22, 24
"""Margins of a chart, in its own units: figures stand on the left, days below, drivers above."""
FLAT: Final = 0.05
"""A chart is at least so high, as a share of its level: noise shall not look like mountains."""
OUTSIDE: Final = 0.35
"""How far beyond the clean figures the marked ones are shown; what is further lies on the edge."""
TICKS: Final = 5
LABEL: Final = 7.0
"""Width of a character of a label, about."""
NAME: Final = 11.0
"""The same of a driver's name above a chart, on a phone, where letters are the largest."""


def safe(text: str) -> str:
    """Make a foreign text fit for the page: no control character, no half one, no markup."""
    return escape(escaped(text.encode(errors="replace").decode()), quote=True)


@dataclass(frozen=True, slots=True)
class _Plane:
    """Where moments and values lie on a chart."""

    since_s: float
    until_s: float
    low: float
    high: float

    def x(self, at_s: float) -> float:
        part = (at_s - self.since_s) / (self.until_s - self.since_s)
        return LEFT + min(max(part, 0.0), 1.0) * (WIDE - LEFT - RIGHT)

    def y(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low)
        return HIGH - BOTTOM - min(max(part, 0.0), 1.0) * (HIGH - TOP - BOTTOM)


def course(report: Report, track: Track, width_s: float, zone: tzinfo | None) -> str:
    """Draw a stream: the median of its pieces, the band from p10 to p90, what happened when.

    ``width_s`` is how long a piece is. Empty where there is nothing to draw.
    """
    known = [one for one in track.bins if one.median is not None]
    if not known:
        return ""
    plane = _Plane(report.begins_s, report.until_s, *_range(track.bins))
    title = (
        f"{words.stream(track.key, report.several)} on {words.place(track.key.gpu, report.gpus)}"
    )
    parts = [
        *_figures(plane, track),
        *_days(plane, zone),
        *_drivers(plane, report),
        *_band(plane, known, width_s),
        _line(plane, known, width_s),
        _apart(plane, track.bins),
        *_marks(plane, track),
    ]
    return (
        f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img"><title>{safe(title)}</title>'
        f"<desc>{safe(_described(report, track, zone))}</desc>{''.join(parts)}</svg>"
    )


def timeline(report: Report, zone: tzinfo | None) -> str:
    """Draw which driver was there when, and when nothing ran."""
    if not report.stretches:
        return ""
    plane = _Plane(report.begins_s, report.until_s, 0.0, 1.0)
    parts = []
    for number, stretch in enumerate(report.stretches):
        left, right = plane.x(stretch.since_s), plane.x(stretch.until_s)
        wide = max(right - left, 2.0)
        shade = "even" if number % 2 else "odd"
        parts.append(
            f'<rect class="{shade}" x="{left:.1f}" y="18" width="{wide:.1f}" height="26"/>'
        )
        name = stretch.driver or words.UNKNOWN_DRIVER
        if len(name) * LABEL < wide:
            parts.append(f'<text x="{left + 6:.1f}" y="36">{safe(name)}</text>')
    parts += [
        f'<rect class="gap" x="{plane.x(gap.since_s):.1f}" y="18" '
        f'width="{max(plane.x(gap.until_s) - plane.x(gap.since_s), 1.0):.1f}" height="26"/>'
        for gap in report.gaps
    ]
    days = "".join(_days(plane, zone, y=62, top=46))
    said = "; ".join(
        f"{one.driver or words.UNKNOWN_DRIVER} from {words.moment(one.since_s, zone)}"
        for one in report.stretches
    )
    return (
        f'<svg viewBox="0 0 {WIDE} 70" role="img"><title>Drivers over time</title>'
        f"<desc>{safe(said)}</desc>{''.join(parts)}{days}</svg>"
    )


def _range(bins: Sequence[Bin]) -> tuple[float, float]:
    """Give the lowest and the highest value of a chart."""
    low = min(one.p10 for one in bins if one.p10 is not None)
    high = max(one.p90 for one in bins if one.p90 is not None)
    apart = [one.apart for one in bins if one.apart is not None]
    room = max(high - low, FLAT * abs(high), 1e-300)
    low = max(min([low, *apart]), low - OUTSIDE * room)
    high = min(max([high, *apart]), high + OUTSIDE * room)
    spare = (room - (high - low)) / 2 if high - low < room else 0.0
    return max(low - spare - 0.05 * room, 0.0), high + spare + 0.05 * room


def _figures(plane: _Plane, track: Track) -> Iterator[str]:
    """Write round values on the left, with a line across each."""
    step = 10.0 ** math.floor(math.log10((plane.high - plane.low) / 2))
    step = next(
        s for s in (step, 2 * step, 5 * step, 10 * step) if (plane.high - plane.low) / s <= TICKS
    )
    value = math.ceil(plane.low / step) * step
    while value <= plane.high:
        y = plane.y(value)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDE - RIGHT}"/>'
        shown = safe(human(value, track.unit))
        yield f'<text class="end" x="{LEFT - 6}" y="{y + 4:.1f}">{shown}</text>'
        value += step


def _days(
    plane: _Plane, zone: tzinfo | None, *, y: int = HIGH - 8, top: int = HIGH - BOTTOM
) -> Iterator[str]:
    """Write some moments below; by the hour where the whole is short."""
    whole_s = plane.until_s - plane.since_s
    for number in range(TICKS):
        at_s = plane.since_s + (number + 0.5) * whole_s / TICKS
        form = words.moment if whole_s < 3 * words.DAY_S else words.day
        text = form(at_s, zone)[5:]
        yield f'<path class="grid" d="M{plane.x(at_s):.1f} {top}v4"/>'
        yield f'<text class="mid" x="{plane.x(at_s):.1f}" y="{y}">{text}</text>'


def _drivers(plane: _Plane, report: Report) -> Iterator[str]:
    """Draw a line where another driver begins, with its name where there is room.

    The newest has its name before all others, on the left of its line where it is too new for the
    right: without it the name of the driver before would seem to be its own.
    """
    free = float(WIDE)
    for number, stretch in reversed(tuple(enumerate(report.stretches))):
        x = plane.x(stretch.since_s)
        if number:
            yield f'<path class="driver" d="M{x:.1f} {TOP - 6}V{HIGH - BOTTOM}"/>'
        name = stretch.driver or words.UNKNOWN_DRIVER
        wide = len(name) * NAME
        if x + wide < free:
            yield f'<text class="name" x="{x + 3:.1f}" y="{TOP - 8}">{safe(name)}</text>'
            free = x - 8
        elif number and free == WIDE and x - wide - 3 * NAME > LEFT:
            yield f'<text class="name end" x="{x - 3:.1f}" y="{TOP - 8}">to {safe(name)}</text>'
            free = x - wide - 3 * NAME - 8
        else:
            free = min(free, x - 8)


def _runs_of(bins: Sequence[Bin], width_s: float) -> Iterator[list[Bin]]:
    """Part pieces where some are missing between: a line across would be made up."""
    row: list[Bin] = []
    for one in bins:
        if row and one.at_s - row[-1].at_s > 1.5 * width_s:
            yield row
            row = []
        row.append(one)
    if row:
        yield row


def _band(plane: _Plane, known: Sequence[Bin], width_s: float) -> Iterator[str]:
    half = width_s / 2
    for row in _runs_of(known, width_s):
        ends = [(one.at_s, one.p10 or 0.0, one.p90 or 0.0) for one in row]
        if len(ends) == 1:  # one piece alone has a width too
            at_s, p10, p90 = ends[0]
            ends = [(at_s - half, p10, p90), (at_s + half, p10, p90)]
        upper = "L".join(f"{plane.x(at_s):.1f} {plane.y(p90):.1f}" for at_s, _, p90 in ends)
        lower = "L".join(f"{plane.x(at_s):.1f} {plane.y(p10):.1f}" for at_s, p10, _ in ends[::-1])
        yield f'<path class="band" d="M{upper}L{lower}Z"/>'


def _line(plane: _Plane, known: Sequence[Bin], width_s: float) -> str:
    rows = []
    for row in _runs_of(known, width_s):
        points = [f"{plane.x(one.at_s):.1f} {plane.y(one.median or 0.0):.1f}" for one in row]
        rows.append(f"M{'L'.join(points)}" + ("h.1" if len(points) == 1 else ""))
    return f'<path class="median" d="{"".join(rows)}"/>'


def _apart(plane: _Plane, bins: Sequence[Bin]) -> str:
    dots = [
        f"M{plane.x(one.at_s):.1f} {plane.y(one.apart):.1f}h.1"
        for one in bins
        if one.apart is not None
    ]
    return f'<path class="apart" d="{"".join(dots)}"/>' if dots else ""


def _marks(plane: _Plane, track: Track) -> Iterator[str]:
    for mark in track.marks:
        x, y = plane.x(mark.at_s), HIGH - BOTTOM
        shade = "worse" if mark.worse else "better"
        shape = f"M{x:.1f} {y - 11}l6 10h-12Z" if mark.worse else f"M{x:.1f} {y}l6-10h-12Z"
        yield f'<path class="{shade}" d="{shape}"><title>{safe(mark.words)}</title></path>'


def _described(report: Report, track: Track, zone: tzinfo | None) -> str:
    """Say in words what the chart shows."""
    levels = [
        f"{human(level.median, track.unit)} under driver "
        f"{report.stretches[level.stretch].driver or words.UNKNOWN_DRIVER}"
        for level in track.levels
    ]
    moved = [f"{mark.words} at {words.moment(mark.at_s, zone)}" for mark in track.marks]
    return f"Median {', then '.join(levels)}." + (f" {'; '.join(moved)}." if moved else "")
