"""The reference of one level: its centres, its noise, and how far its own windows stray."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import TYPE_CHECKING

from gpud.agent.regression.detector.statistic import (
    Location,
    correlation,
    inflation,
    location,
    shift,
    spread,
)
from gpud.core.stats import quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    _windows: dict[int, tuple[tuple[float, ...], tuple[float, ...]]] = field(
        init=False, default_factory=dict
    )

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
            found, move = location(ordered), 0.0
        else:
            move = self._move(ordered)
            found = location(sorted(self.residuals(ordered, move)))
        own = self.centred
        return Location(
            found.floor + move - own.floor,
            found.median + move - own.median,
            found.mean + move - own.mean,
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

    def strayings(self, m: int) -> tuple[float, ...]:
        """Give how far windows of ``m`` inside the reference stray from it, either way, ascending.

        Empty where the reference is shorter than that.
        """
        return self._inside(m)[0]

    def _inside(self, m: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Give the shifts of the windows of ``m`` inside, and those of their means alone."""
        known = self._windows.get(m)
        if known is None:
            starts = range(0, len(self.values) - m + 1, max(1, m // STEPS))
            found = [self.located(self.values[at : at + m]) for at in starts]
            known = self._windows[m] = (
                tuple(sorted(abs(shift(one)) for one in found)),
                tuple(sorted(abs(one.mean) for one in found)),
            )
        return known

    def agrees(self, values: Sequence[float], found: float) -> bool:
        """Say whether the raw values moved the way that ``found`` says, where modes could lie."""
        if len(self.centres) == 1:
            return True
        return (location(sorted(values)).mean - self.raw.mean) * found > 0

    def _move(self, ordered: Sequence[float]) -> float:
        """Find the common move of both centres that fits an ascending window best."""
        low, high = self.centres
        cap = (high - low) / 2
        n = len(ordered)
        thin = ordered
        if n > THIN:
            thin = [ordered[(2 * k + 1) * n // (2 * THIN)] for k in range(THIN)]
        best, found = math.inf, 0.0
        for q in QUANTILES:
            at = quantile(ordered, q)
            for centre in self.centres:
                move = at - centre
                a, b = low + move, high + move
                cost = sum(min(abs(x - a), abs(x - b), cap) for x in thin) / len(thin)
                cost += PREFER_STILL * abs(move)
                if cost < best:
                    best, found = cost, move
        return found


def _centres(ordered: Sequence[float], in_time: Sequence[float]) -> tuple[float, ...]:
    """Give one centre, or two where the values have two humps that are visited again and again."""
    one = (quantile(ordered, 0.5),)
    if len(ordered) < FEWEST_FOR_MODES:
        return one
    cut = _best_cut(ordered)
    low, high = ordered[:cut], ordered[cut:]
    two = quantile(low, 0.5), quantile(high, 0.5)
    gap = two[1] - two[0]
    if gap < APART or gap < SPREADS * max(spread(low, two[0]), spread(high, two[1])):
        return one
    between = sum(two) / 2
    share = 1 - bisect_right(ordered, between) / len(ordered)
    if not LEAST_SHARE <= share <= 1 - LEAST_SHARE:
        return one
    return two if _visited([value >= between for value in in_time]) else one


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
    stays = {mark: [length for one, length in runs if one is mark] for mark in (True, False)}
    rare = min(stays.values(), key=sum)
    return len(runs) // 2 >= VISITS and max(rare) <= LONGEST * sum(rare)
