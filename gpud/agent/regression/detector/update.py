"""Is a new driver slower than the level before it? A few looks, each at everything it brought."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from gpud.agent.regression.detector.level import Level
from gpud.core.stats import quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.agent.regression.detector.intake import Intake
    from gpud.agent.regression.detector.parameters import Parameters
    from gpud.agent.regression.detector.reference import Reference


class Trial(msgspec.Struct, dict=True):
    """One driver update that has no verdict yet. ``base`` is the level before it.

    ``left`` is the driver that went, another than the base's if it brought too little to compare
    with. ``told``: the share of slow samples had a verdict of its own, and the level has none yet.
    """

    base: Level
    driver: str
    since_seq: int
    since_s: float
    left: str
    told: bool = False

    @cached_property
    def before(self) -> Reference:
        """The level before, as it was when the driver changed."""
        return self.base.standard()

    def confirmed(self, level: Level, intake: Intake, parameters: Parameters) -> bool:
        """Look at all that the new driver brought, if it is time to; say whether it is a change."""
        m = level.own
        if not is_look(m, intake, parameters):
            return False
        values = level.latest(m)
        found = self.before.shift(values)
        limit = self.limit(parameters, m)
        if abs(found) <= limit or not self.before.agrees(values, found):
            return False
        return both_halves(self.before, values, found, limit)

    def limit(self, parameters: Parameters, m: int) -> float:
        """Give the smallest shift that ``m`` samples of the new driver could confirm."""
        before = self.before
        least = parameters.update_least
        if m < parameters.short:
            least = parameters.update_least_short
        strayings = before.strayings(m)
        farthest = quantile(strayings, parameters.update_quantile) if strayings else 0.0
        return max(
            least, parameters.update_sigmas * before.noise(m), parameters.update_factor * farthest
        )


def is_look(m: int, intake: Intake, parameters: Parameters) -> bool:
    """Say whether so many samples of a new driver are looked at."""
    return m in parameters.looks and intake.covers(m, parameters.look_span_s)


def both_halves(reference: Reference, values: Sequence[float], found: float, limit: float) -> bool:
    """Say whether either half of a window has half of what is needed: else it came or went."""
    half = len(values) // 2
    sign = math.copysign(1, found)
    return all(reference.shift(part) * sign > limit / 2 for part in (values[:half], values[half:]))
