"""One cause of slowness: the alarms that it raised, and which of them are over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from gpud.core.alerts import Alert, Cause, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gpud.core.detector import Alarm
    from gpud.core.sample import Unit
    from gpud.core.streams import StreamKey

Strand: TypeAlias = "tuple[StreamKey, int]"
"""Names an alarm: its stream, and the sample of it that decided."""


MOST_OVER: Final = 64
"""Alarms of a case that are over and kept: a stream may come and go while others stay slow."""


@dataclass(frozen=True, slots=True)
class Found:
    """An alarm of one stream, with what else is known of its moment.

    The alarm names its drivers as people do: "572.16", "576.02". ``judged``: samples that the
    stream had judged by then. ``changed`` is what an update made another, the contexts' difference;
    ``causes`` are ``gpud.core.causes.likely``'s.
    """

    key: StreamKey
    unit: Unit
    alarm: Alarm
    judged: int
    changed: tuple[Cause, ...] = ()
    causes: tuple[Cause, ...] = ()

    @property
    def slowdown(self) -> float:
        """How much slower, 1.12 for 12 %, whatever the unit: of a rate less is worse."""
        ratio = self.alarm.effect.ratio
        return max(ratio, 1 / ratio)


def strand(found: Found) -> Strand:
    """Name an alarm."""
    return found.key, found.alarm.seq


@dataclass(frozen=True, slots=True)
class Case:
    """Alarms of one cause, told as one alert. Times are Unix seconds.

    ``over`` are the alarms that ended. The case ends with the last one, and begins never again: the
    same cause anew is another case.
    """

    name: str
    labels: Mapping[str, str]
    found: tuple[Found, ...]
    starts_s: float
    updated_s: float
    over: frozenset[Strand] = frozenset()
    ends_s: float | None = None
    acknowledged_s: float | None = None

    @classmethod
    def of(cls, name: str, labels: Mapping[str, str], found: Iterable[Found], now_s: float) -> Case:
        """Open a case."""
        return cls(name, dict(labels), tuple(found), now_s, now_s)

    @property
    def firing(self) -> bool:
        """Whether an alarm of it is not over."""
        return self.ends_s is None

    @property
    def of_update(self) -> bool:
        """Whether it is about an update, of the driver or of what it runs on."""
        return "old" in self.labels

    @property
    def since_s(self) -> float:
        """Since when: of an update when it came, else when the first stream changed."""
        updates = [one.alarm.since_s for one in self.found if not one.alarm.suspect]
        return min(updates or [one.alarm.since_s for one in self.found])

    @property
    def open(self) -> tuple[Found, ...]:
        """The alarms that are not over."""
        return tuple(one for one in self.found if strand(one) not in self.over)

    @property
    def fingerprint(self) -> str:
        """That of its alert."""
        return Alert(self.name, Severity.WARNING, self.labels, "", "", 0.0, 0.0).fingerprint

    def on(self, gpu: str | None) -> bool:
        """Say whether it is about a GPU, by UUID; None is the CPU."""
        return any(one.key.gpu == gpu for one in self.found)

    def joined(self, found: Iterable[Found], now_s: float) -> Case:
        """Give it with more alarms; of those that are over, the latest are kept."""
        every = (*self.found, *found)
        past = [one for one in every if strand(one) in self.over][:-MOST_OVER]
        kept = tuple(one for one in every if one not in past)
        over = self.over & {strand(one) for one in kept}
        return replace(self, found=kept, over=over, updated_s=now_s)

    def without(self, over: Callable[[Found], bool], now_s: float) -> Case:
        """Give it without the alarms that are over; with the last of them it ends."""
        if not self.firing or not (ended := {strand(one) for one in self.open if over(one)}):
            return self
        after = replace(self, over=self.over | ended, updated_s=now_s)
        return after if after.open else after.closed(now_s)

    def closed(self, now_s: float) -> Case:
        """Give it ended; never before it began, whatever the clock was set to."""
        moment_s = max(now_s, self.starts_s)
        over = frozenset(strand(one) for one in self.found)
        return replace(self, over=over, ends_s=moment_s, updated_s=moment_s)
