"""A series over time as a block of characters for a terminal: dots where something was measured.

Nothing is joined: a time without runs is empty, and the axis below says so.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from gpud.core.stats import human, median, quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LABELS: Final = 11
"""Columns of the axis on the left, its line included."""
NARROWEST: Final = 10
DOTS_X, DOTS_Y = 2, 4
"""Dots of one braille character."""
BRAILLE: Final = 0x2800
_BITS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
INNER: Final = (0.1, 0.9)
"""Quantiles of what falls into one column of dots: so far it is drawn."""
OUTER: Final = (0.01, 0.99)
"""Quantiles of everything: the ends of the scale; what lies beyond is drawn at the edge."""
LEAST_SPAN: Final = 0.1
"""Of the median, from end to end: noise of one percent is no mountain."""
GAP_FROM: Final = 3.0
"""Times the usual distance of two runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """What is to be drawn. Units: times are Unix time, values are in ``unit``.

    Shapes: ``points`` are (time, value), in the order of time.
    """

    points: Sequence[tuple[float, float]]
    from_s: float
    until_s: float
    unit: str
    baseline: float | None = None
    marks: Sequence[float] = ()  # times at which something changed


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of a drawing that are no dots."""

    baseline: str = "╌"
    mark: str = "│"
    axis: str = "┤"
    runs: str = "─"
    gap: str = " "


LINES: Final = Glyphs()
ASCII: Final = Glyphs("-", "|", "|", "-", " ")


def drawn(chart: Chart, *, width: int, height: int, ascii_only: bool = False) -> tuple[str, ...]:
    """Draw it in ``height`` rows and one for the axis below; no rows without points."""
    if not chart.points:
        return ()
    columns, rows = max(width - LABELS, NARROWEST), max(height, 2)
    fine_x, fine_y = (1, 1) if ascii_only else (DOTS_X, DOTS_Y)
    glyphs = ASCII if ascii_only else LINES
    low, high = _scale(chart)
    dots: defaultdict[tuple[int, int], int] = defaultdict(int)
    for x, values in _columns(chart, columns * fine_x).items():
        ends = [quantile(sorted(values), q) for q in INNER]
        bottom, top = (_place(value, low, high, rows * fine_y) for value in ends)
        for y in range(bottom, top + 1):
            upside_down = rows * fine_y - 1 - y
            row, part = divmod(upside_down, fine_y)
            dots[row, x // fine_x] |= _BITS[part][x % fine_x]
    level = chart.baseline
    at_row = None if level is None else rows - 1 - _place(level, low, high, rows)
    at_columns = {_x(chart, at_s, columns) for at_s in chart.marks}
    lines = []
    for row in range(rows):
        cells = [
            _cell(
                dots[row, column],
                ascii_only=ascii_only,
                empty=glyphs.mark
                if column in at_columns
                else glyphs.baseline
                if row == at_row
                else " ",
            )
            for column in range(columns)
        ]
        lines.append(f"{_label(row, rows, low, high, chart.unit)} {glyphs.axis}{''.join(cells)}")
    axis = "".join(glyphs.runs if there else glyphs.gap for there in _covered(chart, columns))
    lines.append(f"{'':{LABELS}}{axis}")
    drawn_ = tuple(line.rstrip() for line in lines)
    return tuple(line.replace("µ", "u") for line in drawn_) if ascii_only else drawn_


def _scale(chart: Chart) -> tuple[float, float]:
    ordered = sorted(value for _, value in chart.points)
    low, high = (quantile(ordered, q) for q in OUTER)
    if chart.baseline is not None:
        low, high = min(low, chart.baseline), max(high, chart.baseline)
    least = LEAST_SPAN * abs(median(ordered)) or 1.0
    if high - low < least:
        middle = (low + high) / 2
        low, high = middle - least / 2, middle + least / 2
    return low, high


def _columns(chart: Chart, count: int) -> Mapping[int, list[float]]:
    found: defaultdict[int, list[float]] = defaultdict(list)
    for at_s, value in chart.points:
        found[_x(chart, at_s, count)].append(value)
    return found


def _x(chart: Chart, at_s: float, count: int) -> int:
    span_s = chart.until_s - chart.from_s
    share = (at_s - chart.from_s) / span_s if span_s > 0 else 1.0
    return min(count - 1, max(0, int(count * share)))


def _place(value: float, low: float, high: float, count: int) -> int:
    return min(count - 1, max(0, int(count * ((value - low) / (high - low)))))


def _cell(bits: int, *, ascii_only: bool, empty: str) -> str:
    if not bits:
        return empty
    return "*" if ascii_only else chr(BRAILLE + bits)


def _label(row: int, rows: int, low: float, high: float, unit: str) -> str:
    shares = {0: 1.0, rows // 2: 1 - rows // 2 / (rows - 1), rows - 1: 0.0}
    room = LABELS - 2
    if row not in shares:
        return " " * room
    value = low + (high - low) * shares[row]
    text = human(value, unit)
    return f"{text:>{room}}" if len(text) <= room else f"{value:>{room}.1e}"


def _covered(chart: Chart, count: int) -> Iterable[bool]:
    """Say of each column whether runs were made then, or none for much longer than usual."""
    there = [False] * count
    times = [at_s for at_s, _ in chart.points]
    steps = [after - before for before, after in pairwise(times)]
    longest_s = GAP_FROM * median(steps) if steps else 0.0
    for at_s in times:
        there[_x(chart, at_s, count)] = True
    for before, after in pairwise(times):
        if after - before <= longest_s:
            first, last = _x(chart, before, count), _x(chart, after, count)
            there[first : last + 1] = [True] * (last + 1 - first)
    return there
