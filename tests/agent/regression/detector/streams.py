"""Streams for the detector's tests: levels with noise, at one sample a minute, seeded."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from gpud.agent.regression.detector import (
    ENCODER,
    Alarm,
    Detector,
    Direction,
    DriverVerdict,
    Observation,
    decode_hook,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpud.core.sample import Flag

MINUTE_S, NIGHT_S = 60.0, 86400.0
FIRST_S = 1_760_000_000.0
LEVEL = 12.4e-6
OLD, NEW, NEWER = "572.16", "576.02", "577.00"


def reloaded(detector: Detector) -> Detector:
    """What a restart of the agent makes of a detector."""
    return msgspec.json.decode(ENCODER.encode(detector), type=Detector, dec_hook=decode_hook)


@dataclass
class Feed:
    """Pushes samples into one detector and keeps its alarms."""

    detector: Detector = field(default_factory=lambda: Detector(Direction.LOWER))
    noise: float = 0.02
    spacing_s: float = MINUTE_S
    driver: str = OLD
    at_s: float = FIRST_S
    alarms: list[Alarm] = field(default_factory=list)
    rng: random.Random = field(default_factory=lambda: random.Random(20))

    def values(self, values: Iterable[float], flags: tuple[Flag, ...] = ()) -> list[Alarm]:
        """Push exact values; return the alarms that they decided."""
        alarms = []
        for value in values:
            self.at_s += self.spacing_s
            alarm = self.detector.push(Observation(self.at_s, value, self.driver, flags))
            if alarm is not None:
                alarms.append(alarm)
        self.alarms += alarms
        return alarms

    def level(self, factor: float, count: int, *flags: Flag, driver: str = "") -> list[Alarm]:
        """Push ``count`` noisy samples of ``factor`` times the usual level."""
        self.driver = driver or self.driver
        value = LEVEL * factor
        noisy = (value * math.exp(self.rng.gauss(0, self.noise)) for _ in range(count))
        return self.values(noisy, flags)

    @property
    def verdict(self) -> DriverVerdict:
        """The verdict on the latest driver update, which there is."""
        assert self.detector.verdict is not None
        return self.detector.verdict

    @property
    def slowdown(self) -> float | None:
        return self.detector.standing().slowdown


def updated(factor: float, before: int = 300, after: int = 200) -> Feed:
    """A driver update that changes the level."""
    feed = Feed()
    feed.level(1, before)
    feed.level(factor, after, driver=NEW)
    return feed
