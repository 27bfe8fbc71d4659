"""Intake of samples: refusals, pauses, the usual spacing, groups of samples, and silent streams."""

from __future__ import annotations

import math
from collections import Counter
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import msgspec

from gpud.agent.regression.detector import parameters
from gpud.agent.regression.detector.level import LevelSample
from gpud.agent.regression.detector.model import UNJUDGED, refusal
from gpud.agent.regression.detector.parameters import Spans
from gpud.core.sample import Flag
from gpud.core.stats import median

if TYPE_CHECKING:
    from gpud.agent.regression.detector.model import Observation

INTERVALS: Final = 31
"""Of which the median is the usual spacing."""
SETTLING: Final = "settling"

WATCHED: Final = 20
"""Samples, the latest, of which the judged ones are counted."""
SILENT: Final = 2
"""Or fewer of them are as good as none."""
JUDGED_AGAIN: Final = 10
"""So many end a silence: one clean run an hour is no end of it."""


class Intake(msgspec.Struct, dict=True):
    """Counts of what came, the usual spacing, and how many samples are still to settle.

    ``together`` is the number of samples that are judged as one.
    """

    next_seq: int = msgspec.field(default=0, name="seen")
    last_s: float | None = None
    driver: str | None = None
    refused: dict[str, int] = {}
    set_aside: dict[str, int] = {}
    together: int = 1
    intervals: list[float] = []
    settle: int = 0
    settle_from_s: float = 0.0

    def __post_init__(self) -> None:
        """Cover the usual spans; settings of others are no part of the state."""
        self.spans = Spans()

    @cached_property
    def spacing_s(self) -> float:
        """The usual interval between samples; 0 while it is unknown."""
        return median(self.intervals) if self.intervals else 0.0

    def fills_look(self, m: int) -> bool:
        """Return whether ``m`` judged samples reach over the time that a look has to cover."""
        return self.covers(m, self.spans.look_s)

    def fills_window(self, m: int) -> bool:
        """Return whether ``m`` judged samples reach over the time that a change has to last."""
        return self.covers(m, self.spans.window_s)

    def covers(self, m: int, span_s: float) -> bool:
        """Return whether ``m`` judged samples reach over so long, pauses between them left out."""
        n, usual = m * self.together, self.spacing_s
        if n * usual < span_s:  # nearly always, and before the sum
            return False
        latest = min(n, len(self.intervals))
        return self._covered_s[latest] + (n - latest) * usual >= span_s

    @cached_property
    def _covered_s(self) -> list[float]:
        """The time that the latest intervals took, by their number: a pause is no time of use."""
        usual = self.spacing_s
        return [0.0, *accumulate(min(interval, usual) for interval in reversed(self.intervals))]

    def is_look(self, m: int) -> bool:
        """Say whether so many samples of a new driver are looked at."""
        return m in parameters.LOOKS and self.fills_look(m)

    def refuse(self, observation: Observation) -> bool:
        """Count a sample; say whether it is refused altogether."""
        self.next_seq += 1
        reason = refusal(observation)
        if reason is not None:
            self.refused[reason] = self.refused.get(reason, 0) + 1
        return reason is not None

    def enter(self, observation: Observation) -> bool:
        """Note when and under which driver a sample was taken; say whether the driver is new."""
        at_s = observation.at_s
        pause = False
        if self.last_s is not None:
            # A clock set back makes an interval below zero, which says nothing about the spacing.
            interval = at_s - self.last_s
            # Of the last one as well: in a WSL2 of weeks each is up to four times the one before.
            usual = max([self.spacing_s, *self.intervals[-1:]])
            pause = interval > max(parameters.PAUSE_S, parameters.PAUSE_RATIO * usual) and usual > 0
            if interval > 0:
                self.intervals.append(interval)
                del self.intervals[:-INTERVALS]
                for stale in ("spacing_s", "_covered_s"):
                    self.__dict__.pop(stale, None)
        updated = self.driver is not None and observation.driver != self.driver
        if self.driver is None or updated or pause or Flag.RESUME in observation.flags:
            self.settle, self.settle_from_s = parameters.SETTLE, at_s
        self.last_s, self.driver = at_s, observation.driver
        return updated

    def settled(self, at_s: float) -> bool:
        """Say whether enough samples or time have gone by; counts this sample."""
        if self.settle > 0:
            self.settle -= 1
            if at_s - self.settle_from_s <= parameters.SETTLE_S:
                self._leave_out(SETTLING)
                return False
            self.settle = 0
        return True

    def marks(self, observation: Observation) -> frozenset[Flag]:
        """Return the flags that keep a sample from being judged, and count them."""
        marks = UNJUDGED.intersection(observation.flags)
        for mark in marks:
            self._leave_out(mark.value)
        return marks

    def _leave_out(self, reason: str) -> None:
        self.set_aside[reason] = self.set_aside.get(reason, 0) + 1

    def group_size(self) -> int:
        """Return how many samples are judged as one.

        So many that a window of ``SHARE_WINDOW`` covers the time which a change under the same
        driver has to last: at a sample a minute that is one, at one every ten seconds five.
        """
        spacing_s = self.spacing_s
        if spacing_s <= 0:
            return 1
        return max(1, math.ceil(self.spans.window_s / parameters.SHARE_WINDOW / spacing_s))


class Grouped(msgspec.Struct, array_like=True):
    """A sample that waits for the others of its group; ``slow`` is 1 or 0."""

    seq: int
    at_s: float
    y: float
    slow: int


def combined(group: list[Grouped]) -> tuple[LevelSample, bool]:
    """Return the sample that stands for a group, and whether it is slow.

    It has the place of the first, is slow if most are, and has the median of those that are as it
    is.
    """
    first = group[0]
    if len(group) == 1:
        return LevelSample(first.seq, first.at_s, first.y), bool(first.slow)
    slow = 2 * sum(sample.slow for sample in group) > len(group)
    y = median([sample.y for sample in group if bool(sample.slow) is slow])
    return LevelSample(first.seq, first.at_s, y), slow


class Silence(msgspec.Struct):
    """Why the latest samples were not judged, '' for one that was, and since when hardly any is."""

    latest: list[tuple[float, str]] = []
    since_s: float | None = None

    def add(self, at_s: float, why: str) -> None:
        """Take in one sample."""
        self.latest.append((at_s, why))
        del self.latest[:-WATCHED]
        judged = sum(not reason for _, reason in self.latest)
        if self.since_s is None:
            if len(self.latest) == WATCHED and judged <= SILENT:
                self.since_s = next(at_s for at_s, reason in self.latest if reason)
        elif judged >= JUDGED_AGAIN:
            self.since_s = None

    @property
    def why(self) -> str | None:
        """Why most of the latest samples were not judged, while the stream is silent."""
        if self.since_s is None:
            return None
        return Counter(reason for _, reason in self.latest if reason).most_common(1)[0][0]
