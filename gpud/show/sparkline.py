"""A series as one line of small bars, for a terminal."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from gpud.core.stats import median

if TYPE_CHECKING:
    from collections.abc import Sequence

BARS: Final = "▁▂▃▄▅▆▇█"
ASCII_BARS: Final = "_.-~=+*#"
GAP: Final = " "
GAP_FROM: Final = 3.0
"""Times the usual distance of two points: from there on there is a hole between them."""
LEAST_SPAN: Final = 0.1
"""Of the median: noise of one percent is no mountain."""


def drawn(
    at_s: Sequence[float],
    values: Sequence[float],
    *,
    width: int,
    ascii_only: bool = False,
    most: float | None = None,
) -> str:
    """Draw the newest points that ``width`` characters hold, the newest at the right end.

    Shapes: both float[n], in the order of time. A time without points is one blank, however long.
    The lowest bar is the least that is shown, the highest the most, and at least 10 % apart; with
    ``most`` the lowest is 0 and the highest that.
    """
    points = list(zip(at_s, values, strict=True))
    if not points or width < 1:
        return ""
    steps = [after - before for (before, _), (after, _) in pairwise(points)]
    gap_s = GAP_FROM * median(steps) if steps else math.inf
    cells: list[float | None] = []
    for index, (_, value) in enumerate(points):
        if index and steps[index - 1] > gap_s > 0:
            cells.append(None)
        cells.append(value)
    cells = cells[-width:]
    shown = [value for value in cells if value is not None]
    if not shown:
        return ""
    low, high = (min(shown), max(shown)) if most is None else (0.0, most)
    least = 0.0 if most is not None else LEAST_SPAN * abs(median(shown))
    if high - low < least:
        middle = (low + high) / 2
        low, high = middle - least / 2, middle + least / 2
    bars = ASCII_BARS if ascii_only else BARS
    return "".join(
        GAP if value is None else bars[_height(value, low, high, len(bars))] for value in cells
    ).strip()


def _height(value: float, low: float, high: float, count: int) -> int:
    if high <= low:
        return 0
    return max(0, min(count - 1, int(count * (value - low) / (high - low))))
