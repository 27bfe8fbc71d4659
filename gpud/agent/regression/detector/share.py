"""The share of samples in the slow power state: a driver that boosts less shows up only here.

That of samples during which others used the GPU is kept the same way. It is nobody's regression:
people are shown it beside their figures, and it is never an alarm.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec

from gpud.agent.regression.detector import parameters
from gpud.agent.regression.detector.level import LevelChange, LevelSample
from gpud.agent.regression.detector.model import ChangeKind
from gpud.agent.regression.detector.parameters import KEEP, stepped
from gpud.agent.regression.detector.reference import correlation, inflation, largest_gain, location
from gpud.core.stats import median

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.agent.regression.detector.intake import Intake

RECENT = 240
FEWEST = 8
_DIGITS = bytes.maketrans(b"01", b"\0\1")


def moved(before: Sequence[float], latest: Sequence[float], gap: float) -> bool:
    """Say whether the share of marks in ``latest`` is another than ``before``, for good.

    Shapes: float[n] and float[m] of 0 and 1, n >= m. ``gap``: what a mark costs; the effect is that
    much of the difference of the shares, and has to be in either half of ``latest``.
    """
    n, m = len(before), len(latest)
    share = sum(before) / n
    shift = (sum(latest) / m - share) * gap
    if abs(shift) <= parameters.SHARE_LEAST:
        return False
    sums = [0.0, *accumulate(before)]
    farthest = max(abs((sums[at + m] - sums[at]) / m - share) for at in range(n - m + 1))
    limit = max(
        parameters.SHARE_LEAST,
        parameters.SHARE_SIGMAS * abs(gap) * error(before, latest),
        parameters.SHARE_FACTOR * abs(gap) * farthest,
    )
    if abs(shift) <= limit:
        return False
    half, toward = m // 2, math.copysign(gap, shift * gap)
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


class Marks(msgspec.Struct):
    """Marks of samples, "1" or "0".

    ``first`` are those of the first ``KEEP`` of ``count`` samples, which are frozen; ``tail`` those
    of the last 240, which ``seqs`` and ``times_s`` place.
    """

    first: str = ""
    seqs: list[int] = msgspec.field(default_factory=list, name="seq")
    times_s: list[float] = msgspec.field(default_factory=list, name="at_s")
    tail: str = ""
    count: int = 0

    def __post_init__(self) -> None:
        """Check what was stored. Errors: ``ValueError`` for lists that do not match."""
        if not len(self.seqs) == len(self.times_s) == len(self.tail):
            raise ValueError("marks have lost some of their parts")
        if not set(self.first) | set(self.tail) <= {"0", "1"}:
            raise ValueError("marks are 0 or 1")

    def add(self, point: LevelSample, *, mark: bool) -> None:
        """Take in one sample."""
        digit = "1" if mark else "0"
        if len(self.first) < KEEP:
            self.first += digit
        self.seqs.append(point.seq)
        self.times_s.append(point.at_s)
        self.tail = (self.tail + digit)[-RECENT:]
        del self.seqs[:-RECENT], self.times_s[:-RECENT]
        self.count += 1

    @property
    def ratio(self) -> float | None:
        """The share among the latest samples, None before there are enough."""
        return self.tail.count("1") / len(self.tail) if len(self.tail) >= FEWEST else None

    def before(self, m: int) -> bytes:
        """Return the marks before the last ``m``; none while they are too few to compare with."""
        length = stepped(min(len(self.first), self.count - m))
        return _numbers(self.first[:length]) if length >= parameters.SHARE_REFERENCE * m else b""

    def latest(self, m: int) -> bytes:
        """Return the last ``m``."""
        return _numbers(self.tail[-m:])

    def points(self, m: int) -> list[LevelSample]:
        """Return the last ``m`` samples; ``y`` is the mark."""
        samples = zip(self.seqs[-m:], self.times_s[-m:], self.latest(m), strict=True)
        return [LevelSample(seq, at_s, float(mark)) for seq, at_s, mark in samples]

    def placed(self, m: int) -> list[LevelSample]:
        """Return the marks since the share moved, if the last ``m`` of them say that it did."""
        span = self.points(2 * m)
        return span[largest_gain([point.y for point in span], m // 4) :]

    def restart(self, points: list[LevelSample]) -> None:
        """Begin anew with the marks since a change."""
        self.first = self.tail = "".join(str(int(point.y)) for point in points)
        self.seqs = [point.seq for point in points]
        self.times_s = [point.at_s for point in points]
        self.count = len(points)


def _numbers(digits: str) -> bytes:
    """Return the marks as numbers: 0 or 1 each."""
    return digits.encode().translate(_DIGITS)


class Share(msgspec.Struct):
    """The slow samples of a stream.

    ``slow`` and ``usual`` are the latest logarithms in either state, whose distance says what a
    moved share costs.
    """

    marks: Marks = msgspec.field(default_factory=Marks)
    slow: list[float] = []
    usual: list[float] = []

    def add(self, point: LevelSample, *, slow: bool) -> None:
        """Take one sample in, marked or not."""
        self.marks.add(point, mark=slow)
        latest = self.slow if slow else self.usual
        latest.append(point.y)
        del latest[:-RECENT]

    def change(self, since_seq: int | None, intake: Intake) -> LevelChange | None:
        """Look for a share that moved, and so moved the mean though each state stayed as it was.

        ``since_seq``: look at all that a new driver brought since, if it is time to, and longer
        than one visit lasts; and in any case at the latest window.
        """
        if min(len(self.slow), len(self.usual)) < FEWEST:
            return None
        if since_seq is not None:
            points = [point for point in self.marks.points(RECENT) if point.seq >= since_seq]
            m = len(points)
            long = m >= parameters.SHORT and intake.covers(m, parameters.SHARE_LOOK_S)
            if long and intake.is_look(m):
                finding = self._moved(m, points)
                if finding is not None:
                    return finding
        m = parameters.SHARE_WINDOW
        return self._moved(m, None) if intake.fills_window(m) else None

    def _moved(self, m: int, points: list[LevelSample] | None) -> LevelChange | None:
        """Compare the last ``m`` samples; ``points`` are of the new share, None: to be placed."""
        usual = median(self.usual)
        gap = location(sorted(self.slow)).mean - usual  # there may be several slow states
        before = self.marks.before(m)
        if not before or not moved(before, self.marks.latest(m), gap):
            return None
        points = self.marks.placed(m) if points is None else points
        latest, share = [point.y for point in points], sum(before) / len(before)
        shift = (sum(latest) / len(latest) - share) * gap
        if shift > 0 and len(before) < parameters.SHARE_WORSE:
            return None
        return LevelChange(
            kind=ChangeKind.SLOW_STATE,
            points=points,
            first=points[0],
            before=usual + share * gap,
            shift=shift,
            doubt=1.96 * error(before, latest) * abs(gap),
            reference=len(before),
        )


class Busy(msgspec.Struct):
    """The samples during which others used the GPU, and how their share last moved."""

    marks: Marks = msgspec.field(default_factory=Marks)
    before: float | None = None
    since_s: float | None = None

    def add(self, point: LevelSample, intake: Intake, *, busy: bool) -> None:
        """Take one sample in, and note whether it confirms that the share moved."""
        self.marks.add(point, mark=busy)
        m = parameters.SHARE_WINDOW
        if not intake.fills_window(m):
            return
        before = self.marks.before(m)
        if before and moved(before, self.marks.latest(m), 1.0):
            points = self.marks.placed(m)
            self.before, self.since_s = sum(before) / len(before), points[0].at_s
            self.marks.restart(points)
