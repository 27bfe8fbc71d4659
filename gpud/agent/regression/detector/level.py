"""One level of a stream: its reference, frozen once long enough, and its latest samples."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from gpud.agent.regression.detector.parameters import KEEP, WINDOWS, stepped
from gpud.agent.regression.detector.reference import Reference
from gpud.core.stats import median

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpud.agent.regression.detector.model import ChangeKind

    Floats: TypeAlias = array[float]
    Integers: TypeAlias = array[int]
else:  # as types that msgspec can tell apart; Python 3.11 takes no ``array[int]``

    class Floats(array):
        """An array of type "d"."""

    class Integers(array):
        """An array of type "q"."""


@dataclass(frozen=True, slots=True)
class LevelSample:
    """One judged sample: ``y`` is the logarithm of its value, turned so that bigger is worse."""

    seq: int
    at_s: float
    y: float


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A confirmed change: ``points`` are of the new level, ``first`` is where it began.

    Logarithms: ``before`` of the old level, ``shift`` of the new one from it, ``doubt`` half the
    width of the shift's interval. ``reference`` counts the samples of the old level.
    """

    kind: ChangeKind
    points: list[LevelSample]
    first: LevelSample
    before: float
    shift: float
    doubt: float
    reference: int


class SpeedLevel(msgspec.Struct, dict=True):
    """``count`` samples belong to it.

    ``ref`` holds the logarithms of the first ``KEEP``; ``seqs``, ``times_s`` and ``ys`` are of the
    last ``KEEP``. Arrays, because there are two levels to a stream and dozens of streams.
    """

    driver: str
    ref: Floats = msgspec.field(default_factory=lambda: array("d"))
    seqs: Integers = msgspec.field(default_factory=lambda: array("q"), name="seq")
    times_s: Floats = msgspec.field(default_factory=lambda: array("d"), name="at_s")
    ys: Floats = msgspec.field(default_factory=lambda: array("d"), name="y")
    count: int = 0

    def __post_init__(self) -> None:
        """Complete a stored level. Errors: ``ValueError`` for lists that do not match."""
        if not len(self.seqs) == len(self.times_s) == len(self.ys):
            raise ValueError("a level's samples have lost some of their parts")
        if not self.ref:  # stored as null while it was the same as ``ys``
            self.ref.extend(self.ys)

    @cached_property
    def _references(self) -> dict[int, Reference]:
        return {}

    def add(self, point: LevelSample) -> None:
        """Take one more sample in."""
        if len(self.ref) < KEEP:
            self.ref.append(point.y)
        self.seqs.append(point.seq)
        self.times_s.append(point.at_s)
        self.ys.append(point.y)
        if len(self.ys) > KEEP:
            del self.seqs[0], self.times_s[0], self.ys[0]
        self.count += 1
        if len(self._references) > 1:  # no window asks for less than the longest leaves
            least = stepped(min(KEEP, self.count - WINDOWS[-1][0]))
            for length in [length for length in self._references if length < least]:
                del self._references[length]

    def extended(self, points: Iterable[LevelSample]) -> SpeedLevel:
        """Take several in; returns itself."""
        for point in points:
            self.add(point)
        return self

    def latest(self, m: int) -> array[float]:
        """Return the logarithms of the last ``m`` samples, fewer where there are fewer."""
        return self.ys[-m:]

    def points(self, m: int) -> list[LevelSample]:
        """Return the last ``m`` samples, fewer where there are fewer."""
        last = zip(self.seqs[-m:], self.times_s[-m:], self.ys[-m:], strict=True)
        return [LevelSample(*sample) for sample in last]

    def reference(self, without: int) -> Reference | None:
        """Return the reference as it is without the last ``without`` samples; None for too few.

        It is looked at anew only when it has grown by a few percent, or every sample would cost as
        much as a whole level.
        """
        length = stepped(min(len(self.ref), self.count - without))
        if not length:
            return None
        reference = self._references.get(length)
        if reference is None:
            reference = self._references[length] = Reference(self.ref[:length])
        return reference

    def standard(self) -> Reference:
        """Return the last ``KEEP`` samples as a reference: what an update is compared with."""
        return Reference(self.ys[:])

    def rest(self) -> None:
        """Forget what can be worked out again, while nothing is asked of it."""
        self._references.clear()

    def rebase(self, shift: float) -> None:
        """Take what it knows for that of a level ``shift`` away: its noise, its power states."""
        self.ref = array("d", (value + shift for value in self.ref))
        self._references.clear()

    @property
    def centre(self) -> float:
        """The median of the reference."""
        return median(self.ref)
