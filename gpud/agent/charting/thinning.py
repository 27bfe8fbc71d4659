"""Many runs as few points: columns over steps of time, the ends of what was measured kept.

Steps are of round lengths and lie on round moments, so that asked again a moment later the same
runs fall into the same steps, and two who ask at about the same time get the same answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from gpud.agent.thinrows import finite
from gpud.core.stats import quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpud.agent.thinrows import Thin

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400
LENGTHS_S: Final = (
    *(1, 2, 3, 5, 10, 15, 20, 30),
    *(minutes * MINUTE_S for minutes in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30)),
    *(hours * HOUR_S for hours in (1, 2, 3, 4, 6, 8, 12)),
    *(2**power * DAY_S for power in range(12)),
)
"""Seconds, ascending: each a part of a day, or days; the last is longer than any range."""
_Key: TypeAlias = tuple[str | None, str, int, str]
"""GPU, mode, version and unit."""
DIGITS: Final = 6
"""Significant ones of a figure: more than any run repeats."""


@dataclass(frozen=True, slots=True)
class Series:
    """Figures that compare with each other, in columns: one entry for each step that has runs.

    Units: figures are in ``unit``, to six digits; they are null where every run was marked.
    ``gpu`` is a UUID, null for the CPU. ``at_s`` is where a step begins; ``n`` counts the unmarked
    runs in it and ``marked`` the others. ``median``, ``p10`` and ``p90`` are those of the runs'
    medians, ``minimum`` and ``maximum`` the ends of all that was measured.
    """

    gpu: str | None
    mode: str
    version: int
    unit: str
    at_s: list[int]
    n: list[int]
    marked: list[int]
    median: list[float | None]
    p10: list[float | None]
    p90: list[float | None]
    minimum: list[float | None]
    maximum: list[float | None]
    drivers: list[list[str]]


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of ``length_s``, numbered from 1970: the first and the last of a range."""

    length_s: int
    first: int
    last: int

    @classmethod
    def over(cls, since_s: float, until_s: float, *, most: int, least_s: int) -> Steps:
        """Give the shortest steps of a round length, ``most`` of which are as long as the range.

        One more is needed where the range does not begin with a step. A range that ``most`` steps
        of whole seconds fill exactly gets these, round or not: who asks has a grid of his own.
        """
        own_s = (until_s - since_s) / most
        if own_s.is_integer() and own_s >= least_s and since_s % own_s == 0:
            return cls._of(int(own_s), since_s, until_s)
        length_s = next(one for one in LENGTHS_S if one >= max(own_s, least_s))
        return cls._of(length_s, since_s, until_s)

    @classmethod
    def _of(cls, length_s: int, since_s: float, until_s: float) -> Steps:
        first = math.floor(since_s / length_s)
        return cls(length_s, first, max(math.ceil(until_s / length_s) - 1, first))

    @property
    def since_s(self) -> int:
        """When the first begins."""
        return self.first * self.length_s

    @property
    def until_s(self) -> int:
        """When the last ends."""
        return (self.last + 1) * self.length_s

    def of(self, at_s: float) -> int:
        """Give the number of the step that a moment lies in; an hour may begin before them all."""
        return max(math.floor(at_s / self.length_s), self.first)


class _Point:
    """What fell into one step of one series."""

    __slots__ = ("drivers", "least", "marked", "medians", "most", "runs")

    def __init__(self) -> None:
        self.medians: list[float] = []
        self.least, self.most = math.inf, -math.inf
        self.runs = self.marked = 0
        self.drivers: set[str] = set()

    def add(self, row: Thin) -> None:
        """Take a run or an hour in; marked runs are counted, and no figure rests on them."""
        self.runs += row.n
        self.marked += row.marked
        if row.driver:
            self.drivers.add(row.driver)
        if not row.n or not finite(row.median):
            return
        self.medians.append(row.median)
        if finite(row.minimum) and row.minimum < self.least:
            self.least = row.minimum
        if finite(row.maximum) and row.maximum > self.most:
            self.most = row.maximum

    def figures(self) -> tuple[float | None, ...]:
        """Give median, p10, p90, minimum and maximum; none of a step of marked runs only."""
        if not self.medians:
            return (None,) * 5
        ordered = sorted(self.medians)
        told = (*(quantile(ordered, q) for q in (0.5, 0.1, 0.9)), self.least, self.most)
        return tuple(_rounded(figure) for figure in told)


def thinned(rows: Iterable[Thin], steps: Steps) -> list[Series]:
    """Sort rows into series and steps."""
    found: dict[_Key, dict[int, _Point]] = {}
    for row in rows:
        points = found.setdefault((row.gpu, row.mode, row.version, row.unit), {})
        number = steps.of(row.at_s)
        point = points.get(number)
        if point is None:
            point = points[number] = _Point()
        point.add(row)
    return [
        _series(key, dict(sorted(points.items())), steps)
        for key, points in sorted(found.items(), key=lambda one: str(one[0]))
    ]


def _series(key: _Key, points: dict[int, _Point], steps: Steps) -> Series:
    figures: Iterator[tuple[float | None, ...]] = zip(
        *(point.figures() for point in points.values()), strict=True
    )
    median, p10, p90, minimum, maximum = (list(column) for column in figures)
    return Series(
        *key,
        at_s=[number * steps.length_s for number in points],
        n=[point.runs for point in points.values()],
        marked=[point.marked for point in points.values()],
        median=median,
        p10=p10,
        p90=p90,
        minimum=minimum,
        maximum=maximum,
        drivers=[sorted(point.drivers) for point in points.values()],
    )


def _rounded(figure: float) -> float | None:
    return float(f"{figure:.{DIGITS}g}") if math.isfinite(figure) else None
