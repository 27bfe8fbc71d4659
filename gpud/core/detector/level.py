"""One level of a stream: its reference, frozen once long enough, and its latest samples."""

from __future__ import annotations

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
    """``count`` samples belong to it, the last ``own`` of them since it was (re)entered."""

    driver: str
    ref: list[float] = field(default_factory=list)  # the first of them, at most ``KEEP``
    tail: list[Point] = field(default_factory=list)  # the last of them, at most ``KEEP``
    count: int = 0
    own: int = 0
    _known: dict[int, Reference] = field(default_factory=dict)

    def add(self, point: Point) -> None:
        """Take one more sample in."""
        if len(self.ref) < KEEP:
            self.ref.append(point.y)
        self.tail.append(point)
        if len(self.tail) > KEEP:
            del self.tail[0]
        self.count += 1
        self.own += 1

    def extended(self, points: Iterable[Point]) -> Level:
        """Take several in, and give itself."""
        for point in points:
            self.add(point)
        return self

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
            known = self._known[length] = Reference(tuple(self.ref[:length]))
        return known

    def latest(self) -> Reference:
        """Give the last ``KEEP`` samples as a reference: what an update is compared with."""
        return Reference(tuple(point.y for point in self.tail))

    @property
    def centre(self) -> float:
        """The median of the reference."""
        return median(self.ref)

    def give_up(self, points: Sequence[Point]) -> None:
        """Forget the last ``points``, which turned out to be of the next level."""
        del self.tail[len(self.tail) - len(points) :]
        self.count -= len(points)
        self.own = max(0, self.own - len(points))
        del self.ref[max(0, min(len(self.ref), self.count)) :]
        self._known.clear()

    def entered(self, level: Level, excursion: Sequence[Point]) -> Level:
        """Go on as the level that the stream came back to, under the driver it has now.

        ``level`` holds what was seen since; ``excursion`` what this level has to know from now on.
        """
        ref = [*self.ref, *(point.y for point in excursion)][-KEEP:]
        back = Level(level.driver, ref, list(self.tail), max(self.count, len(ref)))
        return back.extended(level.tail)

    def state(self) -> dict[str, Any]:
        """Give all of it as plain data."""
        shared = self.count == len(self.ref) == len(self.tail)  # half the size while it is young
        return {
            "driver": self.driver,
            "ref": None if shared else self.ref,
            "seq": [point.seq for point in self.tail],
            "at_s": [point.at_s for point in self.tail],
            "y": [point.y for point in self.tail],
            "count": self.count,
            "own": self.own,
        }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Level:
        """Read back what ``state`` gave."""
        tail = [Point(*one) for one in zip(state["seq"], state["at_s"], state["y"], strict=True)]
        ref = [point.y for point in tail] if state["ref"] is None else list(state["ref"])
        return cls(state["driver"], ref, tail, state["count"], state["own"])


_CACHED = 16
