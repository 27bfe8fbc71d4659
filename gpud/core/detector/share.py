"""The share of samples in the slow power state: a driver that boosts less shows up only here.

That of samples during which others used the GPU is kept the same way. It is nobody's regression:
people are shown it beside their figures, and it is never an alarm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from gpud.core.detector.level import Point
from gpud.core.detector.parameters import KEEP, stepped
from gpud.core.detector.statistic import correlation, inflation, largest_gain, location
from gpud.core.detector.update import is_look
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

    Shapes: float[n] and float[m] of 0 and 1, n >= m. ``gap``: what a mark costs; the effect is that
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
class Marks:
    """Marks of samples, 1 or 0. What is frozen is the first ``KEEP`` of them.

    ``first`` are the first ``KEEP`` and ``tail`` the last 240, of ``count``.
    """

    first: list[int] = field(default_factory=list)
    tail: list[Point] = field(default_factory=list)  # ``y`` is the mark
    count: int = 0

    def add(self, point: Point, *, mark: bool) -> None:
        """Take one sample in."""
        if len(self.first) < KEEP:
            self.first.append(int(mark))
        self.tail.append(Point(point.seq, point.at_s, float(mark)))
        del self.tail[:-RECENT]
        self.count += 1

    @property
    def ratio(self) -> float | None:
        """The share among the latest samples, None before there are enough."""
        if len(self.tail) < FEWEST:
            return None
        return sum(point.y for point in self.tail) / len(self.tail)

    def before(self, m: int, parameters: Parameters) -> list[int]:
        """Give the marks before the last ``m``; none while they are too few to compare with."""
        length = stepped(min(len(self.first), self.count - m))
        return self.first[:length] if length >= parameters.share_reference * m else []

    def latest(self, m: int) -> list[float]:
        """Give the last ``m``."""
        return [point.y for point in self.tail[-m:]]

    def placed(self, m: int) -> list[Point]:
        """Give the marks since the share moved, where the last ``m`` of them say that it did."""
        span = self.tail[-2 * m :]
        return span[largest_gain([point.y for point in span], m // 4) :]

    def restart(self, points: list[Point]) -> None:
        """Begin anew with the marks since a change."""
        self.first = [int(point.y) for point in points]
        self.tail = list(points)
        self.count = len(points)

    def state(self) -> dict[str, Any]:
        """Give all of it as plain data."""
        return {
            "first": "".join(map(str, self.first)),
            "seq": [point.seq for point in self.tail],
            "at_s": [point.at_s for point in self.tail],
            "tail": "".join(str(int(point.y)) for point in self.tail),
            "count": self.count,
        }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Marks:
        """Read back what ``state`` gave."""
        marks = (float(mark) for mark in state["tail"])
        tail = zip(state["seq"], state["at_s"], marks, strict=True)
        first = [int(mark) for mark in state["first"]]
        return cls(first, [Point(*one) for one in tail], state["count"])


@dataclass(slots=True)
class Share:
    """The slow samples of a stream.

    ``slow`` and ``usual`` are the latest logarithms in either state, whose distance says what a
    moved share costs.
    """

    marks: Marks = field(default_factory=Marks)
    slow: list[float] = field(default_factory=list)
    usual: list[float] = field(default_factory=list)

    def add(self, point: Point, *, slow: bool) -> None:
        """Take one sample in, marked or not."""
        self.marks.add(point, mark=slow)
        latest = self.slow if slow else self.usual
        latest.append(point.y)
        del latest[:-RECENT]

    def change(self, door: Door, parameters: Parameters) -> ShareChange | None:
        """Look for a share that moved, and so moved the mean; confirmed by the latest sample."""
        m = parameters.share_window
        if not self._enough() or not door.covers(m, parameters.window_span_s):
            return None
        before = self.marks.before(m, parameters)
        if not before or not moved(before, self.marks.latest(m), self._gap(), parameters):
            return None
        return self._told(before, self.marks.placed(m))

    def update(self, since_seq: int, door: Door, parameters: Parameters) -> ShareChange | None:
        """Look at all that a new driver brought, if it is time to."""
        points = [point for point in self.marks.tail if point.seq >= since_seq]
        m = len(points)
        if m < parameters.short or not is_look(m, door, parameters) or not self._enough():
            return None
        before = self.marks.before(m, parameters)
        if not before or not moved(before, self.marks.latest(m), self._gap(), parameters):
            return None
        return self._told(before, points)

    def _enough(self) -> bool:
        return min(len(self.slow), len(self.usual)) >= FEWEST

    def _gap(self) -> float:
        """Give what a mark costs; there may be several slow states."""
        return location(sorted(self.slow)).mean - median(self.usual)

    def _told(self, before: list[int], points: list[Point]) -> ShareChange:
        gap, latest = self._gap(), [point.y for point in points]
        share = sum(before) / len(before)
        return ShareChange(
            shift=(sum(latest) / len(latest) - share) * gap,
            points=points,
            reference=len(before),
            doubt=1.96 * error(before, latest) * abs(gap),
            before=median(self.usual) + share * gap,
        )

    def state(self) -> dict[str, Any]:
        """Give all of it as plain data."""
        return {"marks": self.marks.state(), "slow": self.slow, "usual": self.usual}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Share:
        """Read back what ``state`` gave."""
        marks = Marks.restored(state["marks"])
        return cls(marks, list(state["slow"]), list(state["usual"]))


@dataclass(frozen=True, slots=True)
class ShareChange:
    """The mean moved by ``shift`` although each state stayed as it was, since ``points``."""

    shift: float
    points: list[Point]
    reference: int
    doubt: float
    before: float  # logarithm of the mean level


@dataclass(slots=True)
class Busy:
    """The samples during which others used the GPU, and how their share last moved."""

    marks: Marks = field(default_factory=Marks)
    before: float | None = None
    since_s: float | None = None

    def add(self, point: Point, door: Door, parameters: Parameters, *, busy: bool) -> None:
        """Take one sample in, and note whether it confirms that the share moved."""
        self.marks.add(point, mark=busy)
        m = parameters.share_window
        if not door.covers(m, parameters.window_span_s):
            return
        before = self.marks.before(m, parameters)
        if before and moved(before, self.marks.latest(m), 1.0, parameters):
            points = self.marks.placed(m)
            self.before, self.since_s = sum(before) / len(before), points[0].at_s
            self.marks.restart(points)

    def state(self) -> dict[str, Any]:
        """Give all of it as plain data."""
        return {"marks": self.marks.state(), "before": self.before, "since_s": self.since_s}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Busy:
        """Read back what ``state`` gave."""
        return cls(Marks.restored(state["marks"]), state["before"], state["since_s"])
