"""What is let in: figures, not in the first moments after a pause, and unmarked."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpud.core.detector.model import UNJUDGED, refusal
from gpud.core.sample import Flag
from gpud.core.stats import median

if TYPE_CHECKING:
    from gpud.core.detector.model import Observation
    from gpud.core.detector.parameters import Parameters

INTERVALS = 31
"""Of which the median is the usual spacing."""
DIGITS = 7
"""Of a logarithm: a hundred-thousandth of a percent is no change."""
SETTLING = "settling"


@dataclass(slots=True)
class Door:
    """Counts what comes, knows the usual spacing, and when the stream has settled."""

    parameters: Parameters
    sign: int
    seen: int = 0
    last_s: float | None = None
    driver: str | None = None
    refused: Counter[str] = field(default_factory=Counter)
    set_aside: Counter[str] = field(default_factory=Counter)
    together: int = 1  # samples that are judged as one
    _intervals: list[float] = field(default_factory=list)
    _settle: int = 0
    _settle_from_s: float = 0.0
    _spacing_s: float | None = None  # None: to be worked out again

    @property
    def spacing_s(self) -> float:
        """The usual interval between samples; 0 while none is known."""
        if self._spacing_s is None:
            self._spacing_s = median(self._intervals) if self._intervals else 0.0
        return self._spacing_s

    def covers(self, m: int, span_s: float) -> bool:
        """Say whether ``m`` judged samples at the usual spacing reach over so much time."""
        return m * self.together * self.spacing_s >= span_s

    def refuse(self, observation: Observation) -> bool:
        """Count one that comes; say whether it has to stay outside altogether."""
        self.seen += 1
        reason = refusal(observation)
        if reason is not None:
            self.refused[reason] += 1
        return reason is not None

    def enter(self, observation: Observation) -> bool:
        """Take note of when and under which driver it was; say whether the driver is another."""
        at_s = observation.at_s
        pause = False
        if self.last_s is not None:
            # A clock set back makes an interval below zero, which says nothing about the spacing.
            interval = at_s - self.last_s
            usual = self.spacing_s
            limits = self.parameters
            pause = interval > max(limits.pause_s, limits.pause_ratio * usual) and usual > 0
            if interval > 0:
                self._intervals.append(interval)
                del self._intervals[:-INTERVALS]
                self._spacing_s = None
        updated = self.driver is not None and observation.driver != self.driver
        if self.driver is None or updated or pause or Flag.RESUME in observation.flags:
            self._settle, self._settle_from_s = self.parameters.settle, at_s
        self.last_s, self.driver = at_s, observation.driver
        return updated

    def settled(self, at_s: float) -> bool:
        """Say whether enough samples or time have gone by; counts this one."""
        if self._settle > 0:
            self._settle -= 1
            if at_s - self._settle_from_s <= self.parameters.settle_s:
                self.set_aside[SETTLING] += 1
                return False
            self._settle = 0
        return True

    def marks(self, observation: Observation) -> frozenset[Flag]:
        """Give what keeps it from being judged, nothing for most; counts it."""
        found = UNJUDGED.intersection(observation.flags)
        self.set_aside.update(mark.value for mark in found)
        return found

    def logarithm(self, value: float) -> float:
        """Turn a value so that bigger is worse and a ratio is a difference."""
        return round(self.sign * math.log(value), DIGITS)

    def state(self) -> dict[str, Any]:
        """Give all of it as plain data."""
        return {
            "seen": self.seen,
            "last_s": self.last_s,
            "driver": self.driver,
            "refused": dict(self.refused),
            "set_aside": dict(self.set_aside),
            "together": self.together,
            "intervals": self._intervals,
            "settle": self._settle,
            "settle_from_s": self._settle_from_s,
        }

    @classmethod
    def restored(cls, state: dict[str, Any], parameters: Parameters, sign: int) -> Door:
        """Read back what ``state`` gave."""
        return cls(
            parameters=parameters,
            sign=sign,
            seen=state["seen"],
            last_s=state["last_s"],
            driver=state["driver"],
            refused=Counter(state["refused"]),
            set_aside=Counter(state["set_aside"]),
            together=state["together"],
            _intervals=list(state["intervals"]),
            _settle=state["settle"],
            _settle_from_s=state["settle_from_s"],
        )
