"""One level of a stream: its reference, frozen once long enough, and its latest samples."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpud.core.detector.parameters import KEEP, stepped
from gpud.core.detector.reference import Reference
from gpud.core.stats import median

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Point:
    """One judged sample: ``y`` is the logarithm of its value, turned so that bigger is worse."""

    seq: int
    at_s: float
    y: float


@dataclass(slots=True)
class Level:
    """``count`` samples belong to it, the last ``own`` of them since it was (re)entered.

    ``ref`` holds the logarithms of the first ``KEEP``; ``seqs``, ``times_s`` and ``ys`` are of the
    last ``KEEP``. Arrays, because there are some ten levels to a stream and dozens of streams.
    """

    driver: str
    ref: array[float] = field(default_factory=lambda: array("d"))
    seqs: array[int] = field(default_factory=lambda: array("q"))
    times_s: array[float] = field(default_factory=lambda: array("d"))
    ys: array[float] = field(default_factory=lambda: array("d"))
    count: int = 0
    own: int = 0
    _known: dict[int, Reference] = field(default_factory=dict)

    def add(self, point: Point) -> None:
        """Take one more sample in."""
        if len(self.ref) < KEEP:
            self.ref.append(point.y)
        self.seqs.append(point.seq)
        self.times_s.append(point.at_s)
        self.ys.append(point.y)
        if len(self.ys) > KEEP:
            del self.seqs[0], self.times_s[0], self.ys[0]
        self.count += 1
        self.own += 1

    def extended(self, points: Iterable[Point]) -> Level:
        """Take several in, and give itself."""
        for point in points:
            self.add(point)
        return self

    def latest(self, m: int) -> array[float]:
        """Give the logarithms of the last ``m`` samples, fewer where there are fewer."""
        return self.ys[-m:]

    def points(self, m: int) -> list[Point]:
        """Give the last ``m`` samples, fewer where there are fewer."""
        last = zip(self.seqs[-m:], self.times_s[-m:], self.ys[-m:], strict=True)
        return [Point(*one) for one in last]

    def reference(self, without: int) -> Reference | None:
        """Give the reference as it is without the last ``without`` samples; None for too few.

        It is looked at anew only when it has grown by a few percent, or every sample would cost as
        much as a whole level.
        """
        length = stepped(min(len(self.ref), self.count - without))
        if not length:
            return None
        known = self._known.get(length)
        if known is None:
            if len(self._known) >= _CACHED:
                self._known.clear()
            known = self._known[length] = Reference(self.ref[:length])
        return known

    def standard(self) -> Reference:
        """Give the last ``KEEP`` samples as a reference: what an update is compared with."""
        return Reference(self.ys[:])

    def rest(self) -> None:
        """Forget what can be worked out again, while nothing is asked of it."""
        self._known.clear()

    def rebase(self, shift: float) -> None:
        """Take what it knows for that of a level ``shift`` away: its noise, its power states."""
        self.ref = array("d", (value + shift for value in self.ref))
        self._known.clear()

    @property
    def centre(self) -> float:
        """The median of the reference."""
        return median(self.ref)

    def give_up(self, points: Sequence[Point]) -> None:
        """Forget the last ``points``, which turned out to be of the next level."""
        kept = len(self.ys) - len(points)
        del self.seqs[kept:], self.times_s[kept:], self.ys[kept:]
        self.count -= len(points)
        self.own = max(0, self.own - len(points))
        del self.ref[max(0, min(len(self.ref), self.count)) :]
        self._known.clear()

    def entered(self, level: Level, excursion: array[float]) -> Level:
        """Go on as the level that the stream came back to, under the driver it has now.

        ``level`` holds what was seen since; ``excursion`` what this level has to know from now on.
        """
        ref = (self.ref + excursion)[-KEEP:]
        count = max(self.count, len(ref))
        back = Level(level.driver, ref, self.seqs[:], self.times_s[:], self.ys[:], count)
        return back.extended(level.points(KEEP))

    def state(self) -> dict[str, Any]:
        """Give all of it as plain data."""
        shared = self.ref == self.ys  # half the size while it is young
        return {
            "driver": self.driver,
            "ref": None if shared else self.ref.tolist(),
            "seq": self.seqs.tolist(),
            "at_s": self.times_s.tolist(),
            "y": self.ys.tolist(),
            "count": self.count,
            "own": self.own,
        }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Level:
        """Read back what ``state`` gave. Errors: ``ValueError`` for lists that do not match."""
        seqs, times_s, ys = array("q", state["seq"]), array("d", state["at_s"]), state["y"]
        if not len(seqs) == len(times_s) == len(ys):
            raise ValueError("a level's samples have lost some of their parts")
        ref = ys if state["ref"] is None else state["ref"]
        given = array("d", ref), seqs, times_s, array("d", ys)
        return cls(state["driver"], *given, state["count"], state["own"])


_CACHED = 8
