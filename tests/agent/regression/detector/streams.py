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
    Observation,
    decode_hook,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpud.core.sample import Flag

MINUTE_S = 60.0
NIGHT_S = 86400.0
FIRST_S = 1_760_000_000.0


def reloaded(detector: Detector) -> Detector:
    """What a restart of the agent makes of a detector."""
    body = ENCODER.encode(detector)
    return msgspec.json.decode(body, type=Detector, dec_hook=decode_hook)


@dataclass
class Feed:
    """Pushes samples into one detector and keeps what it says."""

    detector: Detector = field(default_factory=lambda: Detector(Direction.LOWER))
    noise: float = 0.02
    spacing_s: float = MINUTE_S
    driver: str = "572.16"
    at_s: float = FIRST_S
    alarms: list[Alarm] = field(default_factory=list)
    rng: random.Random = field(default_factory=lambda: random.Random(20))

    def values(self, values: Iterable[float], flags: tuple[Flag, ...] = ()) -> list[Alarm]:
        """Push exact values; give the alarms that they decided."""
        found = []
        for value in values:
            self.at_s += self.spacing_s
            alarm = self.detector.push(Observation(self.at_s, value, self.driver, flags))
            if alarm is not None:
                found.append(alarm)
        self.alarms += found
        return found

    def level(self, value: float, count: int, flags: tuple[Flag, ...] = ()) -> list[Alarm]:
        """Push ``count`` noisy samples of one level."""
        return self.values(
            (value * math.exp(self.rng.gauss(0, self.noise)) for _ in range(count)), flags
        )
