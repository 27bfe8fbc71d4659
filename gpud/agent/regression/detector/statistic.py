"""The distance of a window from a reference: robust shifts of logarithms, pure arithmetic.

All values are logarithms turned so that bigger is worse; a difference of 0.1 is 10.5 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heappush, heappushpop
from itertools import pairwise
from typing import TYPE_CHECKING

from gpud.core.stats import quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

FLOOR = 0.15
"""The quantile that has to move too: load and bursts lift only what is above it."""
TRIM = 0.2
"""Cut off at either end before the mean is taken."""
MAD_TO_SIGMA = 1.4826
MOST_CORRELATED = 0.95
ALIKE = 1e-6
"""A value, on average: logarithms are rounded, and two places that fit alike are told apart by no
unit. The earlier one is taken."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where a distribution lies, in three ways that different troubles move apart."""

    floor: float
    median: float
    mean: float  # trimmed


def location(ordered: Sequence[float]) -> Location:
    """Locate an ascending, non-empty sequence."""
    cut = int(TRIM * len(ordered))
    kept = ordered[cut : len(ordered) - cut]
    return Location(quantile(ordered, FLOOR), quantile(ordered, 0.5), sum(kept) / len(kept))


def shift(moved: Location) -> float:
    """Give the smallest of three shifts if all are of one sign, else 0."""
    three = (moved.floor, moved.median, moved.mean)
    if min(three) > 0:
        return min(three)
    return max(three) if max(three) < 0 else 0.0


def spread(values: Sequence[float], centre: float) -> float:
    """Give the robust standard deviation of ``values`` about ``centre``."""
    return MAD_TO_SIGMA * quantile(sorted(abs(value - centre) for value in values), 0.5)


def correlation(values: Sequence[float], centre: float, sigma: float) -> float:
    """Give the lag-1 autocorrelation in time order, of values clipped at three sigma; 0..0.95."""
    if sigma <= 0 or len(values) < 3:  # noqa: PLR2004  # no pair of pairs
        return 0.0
    edge = 3 * sigma
    z = [min(max(value - centre, -edge), edge) for value in values]
    square = sum(one * one for one in z)
    product = sum(a * b for a, b in pairwise(z))
    return min(max(product / square, 0.0), MOST_CORRELATED) if square > 0 else 0.0


def inflation(rho: float) -> float:
    """Give by how much autocorrelation widens a mean's standard error."""
    return math.sqrt((1 + rho) / (1 - rho))


def deviations(values: Sequence[float]) -> list[float]:
    """Give, for each prefix, the sum of absolute deviations from that prefix's median.

    Shapes: float[n] in, float[n] out; entry i is of the first i + 1 values. O(n log n).
    """
    low: list[float] = []  # a heap of negated values: the lower half
    high: list[float] = []
    below = above = 0.0
    found = []
    for value in values:
        if len(low) == len(high):
            moved = -heappushpop(high, value) if high else -value
            above += value + moved
            heappush(low, moved)
            below -= moved
        else:
            moved = -heappushpop(low, -value)
            below += value - moved
            heappush(high, moved)
            above += moved
        middle = -low[0]
        found.append(above - middle * len(high) + middle * len(low) - below)
    return found


def split_in_time(values: Sequence[float], shortest: int) -> int:
    """Find where a second level most probably begins: two segments, least absolute deviations.

    Shapes: float[n], n >= 2 * shortest; the answer leaves ``shortest`` values on either side.
    """
    before = deviations(values)
    after = deviations(values[::-1])
    n = len(values)
    costs = [before[cut - 1] + after[n - cut - 1] for cut in range(shortest, n - shortest + 1)]
    least = min(costs) + ALIKE * n
    return shortest + next(at for at, cost in enumerate(costs) if cost <= least)


def largest_gain(marks: Sequence[float], shortest: int) -> int:
    """Find where the mean of ``marks`` changes most: two segments, least squares.

    Shapes: float[n], n > shortest; the answer leaves ``shortest`` marks after it, one before.
    """
    n, total, before = len(marks), sum(marks), 0.0
    best, found = -math.inf, 1
    for cut in range(1, n - shortest + 1):
        before += marks[cut - 1]
        gain = before * before / cut + (total - before) ** 2 / (n - cut)
        if gain > best:
            best, found = gain, cut
    return found
