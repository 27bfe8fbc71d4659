"""The share of samples in the slow power state: a driver that boosts less shows up only here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from gpud.core.detector.level import Point
from gpud.core.detector.parameters import KEEP, stepped
from gpud.core.detector.statistic import correlation, inflation, largest_gain
from gpud.core.stats import median

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.core.detector.door import Door
    from gpud.core.detector.parameters import Parameters

RECENT = 240
FEWEST = 8


def moved(
    before: Sequence[float], latest: Sequence[float], gap: float, parameters: Parameters
) -> bool:
    """Say whether the share of marks in ``latest`` is another than ``before``, for good.

    Shapes: float[n] and float[m] of 0 and 1, n > m. ``gap``: what a mark costs; the effect is that
    much of the difference of the shares, and has to be in either half of ``latest``.
    """
    n, m = len(before), len(latest)
    share = sum(before) / n
    found = (sum(latest) / m - share) * gap
    if abs(found) <= parameters.share_least:
        return False
    sums = [0.0, *accumulate(before)]
    farthest = max(abs((sums[at + m] - sums[at]) / m - share) for at in range(n - m + 1))
    limit = max(
        parameters.share_least,
        parameters.share_sigmas * abs(gap) * error(before, latest),
        parameters.share_factor * abs(gap) * farthest,
    )
    if abs(found) <= limit:
        return False
    half, toward = m // 2, math.copysign(gap, found * gap)
    return all(
        (sum(part) / len(part) - share) * toward > limit / 2
        for part in (latest[:half], latest[half:])
    )


def error(before: Sequence[float], latest: Sequence[float]) -> float:
    """Give the standard error of the difference of two shares.

    Two spells of counting, wider by how the samples of one visit hang together; a share of 0 or 1
    in the window is not certain either.
    """
    n, m = len(before), len(latest)
    old, new = sum(before) / n, sum(latest) / m
    variance = old * (1 - old) * inflation(correlation(before, old, 1.0)) ** 2 / n
    variance += (new * (1 - new) * inflation(correlation(latest, new, 1.0)) ** 2 + 1 / m) / m
    return math.sqrt(variance)


@dataclass(slots=True)
class Share:
    """Marks of the stream's samples: 1 slow, 0 not. What is frozen is the first ``KEEP`` of them.

    ``marks`` are the first ``KEEP`` and ``tail`` the last 240, of ``count``; ``slow`` and ``usual``
    are the latest logarithms in either state, whose distance says what a moved share costs.
    """

    marks: list[int] = field(default_factory=list)
    tail: list[Point] = field(default_factory=list)  # ``y`` is the mark
    count: int = 0
    slow: list[float] = field(default_factory=list)
    usual: list[float] = field(default_factory=list)

    def add(self, point: Point, *, slow: bool) -> None:
        """Take one sample in, marked or not."""
        if len(self.marks) < KEEP:
            self.marks.append(int(slow))
        self.tail.append(Point(point.seq, point.at_s, float(slow)))
        del self.tail[:-RECENT]
        self.count += 1
        latest = self.slow if slow else self.usual
        latest.append(point.y)
        del latest[:-RECENT]

    @property
    def ratio(self) -> float | None:
        """The share among the latest samples, None before there are enough."""
        if len(self.tail) < FEWEST:
            return None
        return sum(point.y for point in self.tail) / len(self.tail)

    def change(self, door: Door, parameters: Parameters) -> ShareChange | None:
        """Look for a share that moved, and so moved the mean; confirmed by the latest sample."""
        m = parameters.share_window
        length = stepped(min(len(self.marks), self.count - m))
        if length < parameters.share_reference * m or min(len(self.slow), len(self.usual)) < FEWEST:
            return None
        if not door.covers(m, parameters.window_span_s):
            return None
        gap = median(self.slow) - median(self.usual)
        before = self.marks[:length]
        if not moved(before, [point.y for point in self.tail[-m:]], gap, parameters):
            return None
        span = self.tail[-2 * m :]
        points = span[largest_gain([point.y for point in span], m // 4) :]
        latest = [point.y for point in points]
        shift = (sum(latest) / len(latest) - sum(before) / length) * gap
        doubt = 1.96 * error(before, latest) * abs(gap)
        return ShareChange(shift, points, length, doubt, median(self.usual))

    def restart(self, points: list[Point]) -> None:
        """Begin anew with the marks since the change."""
        self.marks = [int(point.y) for point in points]
        self.tail = list(points)
        self.count = len(points)

    def state(self) -> dict[str, Any]:
        """Give all of it as plain data."""
        return {
            "marks": "".join(map(str, self.marks)),
            "seq": [point.seq for point in self.tail],
            "at_s": [point.at_s for point in self.tail],
            "tail": "".join(str(int(point.y)) for point in self.tail),
            "count": self.count,
            "slow": self.slow,
            "usual": self.usual,
        }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Share:
        """Read back what ``state`` gave."""
        marks = (float(mark) for mark in state["tail"])
        tail = zip(state["seq"], state["at_s"], marks, strict=True)
        return cls(
            marks=[int(mark) for mark in state["marks"]],
            tail=[Point(*one) for one in tail],
            count=state["count"],
            slow=list(state["slow"]),
            usual=list(state["usual"]),
        )


@dataclass(frozen=True, slots=True)
class ShareChange:
    """The mean moved by ``shift`` although each state stayed as it was, since ``points``."""

    shift: float
    points: list[Point]
    reference: int
    doubt: float
    before: float  # logarithm of the usual state's level
