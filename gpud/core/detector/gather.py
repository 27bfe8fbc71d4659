"""Samples that come so close together that several of them say no more than one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpud.core.detector.level import Point
from gpud.core.stats import median

if TYPE_CHECKING:
    from gpud.core.detector.door import Door
    from gpud.core.detector.parameters import Parameters


def together(door: Door, parameters: Parameters) -> int:
    """Give how many samples are judged as one.

    So many that a window of ``share_window`` covers the time which a change under the same driver
    has to last: at a sample a minute that is one, at one every ten seconds five.
    """
    spacing_s = door.spacing_s
    if spacing_s <= 0:
        return 1
    return max(1, math.ceil(parameters.window_span_s / parameters.share_window / spacing_s))


@dataclass(slots=True)
class Gather:
    """The samples that wait for their fellows: marked slow or not, in time order."""

    waiting: list[tuple[Point, bool]] = field(default_factory=list)

    def add(self, point: Point, *, slow: bool, count: int) -> tuple[Point, bool] | None:
        """Take one in; give the one that stands for all, once ``count`` are there.

        It bears the place of the first, is slow if most are, and has the median of those that are
        what it is.
        """
        self.waiting.append((point, slow))
        if len(self.waiting) < count:
            return None
        given, self.waiting = self.waiting, []
        if len(given) == 1:
            return given[0]
        most = 2 * sum(mark for _, mark in given) > len(given)
        first = given[0][0]
        y = median([one.y for one, mark in given if mark is most])
        return Point(first.seq, first.at_s, y), most

    def state(self) -> list[list[float]]:
        """Give all of it as plain data."""
        return [[one.seq, one.at_s, one.y, int(slow)] for one, slow in self.waiting]

    @classmethod
    def restored(cls, state: list[list[Any]]) -> Gather:
        """Read back what ``state`` gave."""
        return cls([(Point(seq, at_s, y), bool(slow)) for seq, at_s, y, slow in state])
