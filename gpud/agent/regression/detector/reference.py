"""References of levels, and how far a window of samples lies from one: pure arithmetic.

All values are logarithms turned so that bigger is worse; a difference of 0.1 is 10.5 %.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate, groupby, pairwise
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
FEWEST_FOR_MODES = 20
LEAST_SHARE = 0.05
APART = math.log(1.08)
SPREADS = 4.5
VISITS = 4
LONGEST = 0.5
"""Of the rarer mode's samples, the most in one visit: a single stay is a level, not a mode."""

THIN = 40
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
PREFER_STILL = 0.05
"""What moving both centres by 1 costs against the mean distance from them: it only breaks ties."""
STEPS = 16
"""Into a window's length: neighbours that overlap more say the same thing again."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where a distribution lies, in three ways that different troubles move apart."""

    floor: float
    median: float
    mean: float  # trimmed


def location(ordered: Sequence[float]) -> Location:
    """Locate an ascending, non-empty sequence."""
    cut = int(TRIM * len(ordered))
    middle = ordered[cut : len(ordered) - cut]
    return Location(quantile(ordered, FLOOR), quantile(ordered, 0.5), sum(middle) / len(middle))


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
    square = sum(each * each for each in z)
    product = sum(a * b for a, b in pairwise(z))
    return min(max(product / square, 0.0), MOST_CORRELATED) if square > 0 else 0.0


def inflation(rho: float) -> float:
    """Give by how much autocorrelation widens a mean's standard error."""
    return math.sqrt((1 + rho) / (1 - rho))


def largest_gain(marks: Sequence[float], shortest: int) -> int:
    """Find where the mean of ``marks`` changes most: two segments, least squares.

    Shapes: float[n], n > shortest; the answer leaves ``shortest`` marks after it, one before.
    """
    n, total, before = len(marks), sum(marks), 0.0
    best, best_cut = -math.inf, 1
    for cut in range(1, n - shortest + 1):
        before += marks[cut - 1]
        gain = before * before / cut + (total - before) ** 2 / (n - cut)
        if gain > best:
            best, best_cut = gain, cut
    return best_cut


@dataclass(slots=True)
class Reference:
    """The samples of one level, in time order and at least one; all else follows from them.

    Two centres are the two power states of a GPU whose state is not known. A window is then
    compared with both at once, each moved by the same amount.
    """

    values: Sequence[float]
    raw: Location = field(init=False)
    centres: tuple[float, ...] = field(init=False)
    centred: Location = field(init=False)  # of the distances from the nearest centre
    sigma: float = field(init=False)  # of one such distance
    _inflation: float = field(init=False)
    _windows: dict[int, tuple[array[float], array[float]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        ordered = sorted(self.values)
        self.raw = location(ordered)
        self.centres = _centres(ordered, self.values)
        residuals = self.residuals(self.values)
        self.centred = location(sorted(residuals))
        self.sigma = spread(residuals, self.centred.median)
        rho = correlation(residuals, self.centred.median, self.sigma)
        self._inflation = inflation(rho)

    def residuals(self, values: Sequence[float], move: float = 0.0) -> list[float]:
        """Give the distances from the nearest centre, once all centres moved by ``move``."""
        if len(self.centres) == 1:
            return list(values)
        low, high = self.centres[0] + move, self.centres[1] + move
        between = (low + high) / 2
        return [value - (low if value < between else high) for value in values]

    def located(self, values: Sequence[float]) -> Location:
        """Locate a window relative to the reference: floor, median and mean shift of it."""
        ordered = sorted(values)
        if len(self.centres) == 1:
            lies, move = location(ordered), 0.0
        else:
            move = self._move(ordered)
            lies = location(sorted(self.residuals(ordered, move)))
        own = self.centred
        return Location(
            lies.floor + move - own.floor,
            lies.median + move - own.median,
            lies.mean + move - own.mean,
        )

    def shift(self, values: Sequence[float]) -> float:
        """Give the smallest of the three shifts of a window, 0 where they disagree in sign."""
        return shift(self.located(values))

    def doubt(self, m: int) -> float:
        """Give half the width of the interval about the shift of ``m`` samples.

        The normal interval for 19 of 20, or how far the means of 19 of 20 windows of this length
        stray inside the reference, whichever is wider; and once more for the reference, which is
        as much a piece of a wandering stream as the window is.
        """
        inside = self._inside(m)[1]
        return math.sqrt(2) * max(1.96 * self.noise(m), quantile(inside, 0.95) if inside else 0.0)

    def noise(self, m: int) -> float:
        """Give the standard error of how far ``m`` samples in a row lie from the reference."""
        return self.sigma * self._inflation * math.sqrt(1 / m + 1 / len(self.values))

    def strayings(self, m: int) -> array[float]:
        """Give how far windows of ``m`` inside the reference stray from it, either way, ascending.

        Empty where the reference is shorter than that.
        """
        return self._inside(m)[0]

    def _inside(self, m: int) -> tuple[array[float], array[float]]:
        """Give the shifts of the windows of ``m`` inside, and those of their means alone."""
        shifts = self._windows.get(m)
        if shifts is None:
            starts = range(0, len(self.values) - m + 1, max(1, m // STEPS))
            places = [self.located(self.values[at : at + m]) for at in starts]
            shifts = self._windows[m] = (
                array("d", sorted(abs(shift(place)) for place in places)),
                array("d", sorted(abs(place.mean) for place in places)),
            )
        return shifts

    def agrees(self, values: Sequence[float], shift: float) -> bool:
        """Return whether the raw values moved the way of ``shift``, where modes could lie."""
        if len(self.centres) == 1:
            return True
        return (location(sorted(values)).mean - self.raw.mean) * shift > 0

    def _move(self, ordered: Sequence[float]) -> float:
        """Find the common move of both centres that fits an ascending window best."""
        low, high = self.centres
        cap = (high - low) / 2
        n = len(ordered)
        thin = ordered
        if n > THIN:
            thin = [ordered[(2 * k + 1) * n // (2 * THIN)] for k in range(THIN)]
        best, best_move = math.inf, 0.0
        for q in QUANTILES:
            at = quantile(ordered, q)
            for centre in self.centres:
                move = at - centre
                a, b = low + move, high + move
                cost = sum(min(abs(x - a), abs(x - b), cap) for x in thin) / len(thin)
                cost += PREFER_STILL * abs(move)
                if cost < best:
                    best, best_move = cost, move
        return best_move


def _centres(ordered: Sequence[float], in_time: Sequence[float]) -> tuple[float, ...]:
    """Give one centre, or two where the values have two humps that are visited again and again."""
    single = (quantile(ordered, 0.5),)
    edge = max(0, int(LEAST_SHARE * len(ordered)) - 1) // 2  # in the middle of a rare hump
    if len(ordered) < FEWEST_FOR_MODES or ordered[-1 - edge] - ordered[edge] < APART:
        return single
    cut = _best_cut(ordered)
    low, high = ordered[:cut], ordered[cut:]
    two = quantile(low, 0.5), quantile(high, 0.5)
    gap = two[1] - two[0]
    if gap < APART or gap < SPREADS * max(spread(low, two[0]), spread(high, two[1])):
        return single
    between = sum(two) / 2
    share = 1 - bisect_right(ordered, between) / len(ordered)
    if not LEAST_SHARE <= share <= 1 - LEAST_SHARE:
        return single
    return two if _visited([value >= between for value in in_time]) else single


def _best_cut(ordered: Sequence[float]) -> int:
    """Split an ascending sequence in two by least absolute deviations."""
    sums = [0.0, *accumulate(ordered)]
    n = len(ordered)

    def cost(start: int, end: int) -> float:
        half = (start + end) // 2
        below = ordered[half] * (half - start) - (sums[half] - sums[start])
        above = (sums[end] - sums[half]) - ordered[half] * (end - half)
        return below + above

    least = max(1, int(LEAST_SHARE * n))
    return min(range(least, n - least + 1), key=lambda at: cost(0, at) + cost(at, n))


def _visited(marks: Sequence[bool]) -> bool:
    runs = [(mark, sum(1 for _ in run)) for mark, run in groupby(marks)]
    stays = {mark: [length for each, length in runs if each is mark] for mark in (True, False)}
    rare = min(stays.values(), key=sum)
    return len(runs) // 2 >= VISITS and max(rare) <= LONGEST * sum(rare)
