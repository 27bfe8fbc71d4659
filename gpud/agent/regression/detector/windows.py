"""Windows of samples against a reference: the trial of a new driver, and changes under the same."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from gpud.agent.regression.detector import parameters
from gpud.agent.regression.detector.level import LevelChange, LevelSample, SpeedLevel
from gpud.agent.regression.detector.model import ChangeKind
from gpud.agent.regression.detector.reference import largest_gain
from gpud.agent.regression.detector.share import moved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.agent.regression.detector.intake import Intake
    from gpud.agent.regression.detector.reference import Reference

FEWEST_AFTER = 3
DRIFTING = 0.6
"""A change whose beginning has less than this of what its end has came little by little."""


class Trial(msgspec.Struct, dict=True):
    """One driver update that has no verdict yet. ``base`` is the level before it.

    ``left`` is the driver that went, another than the base's if it brought too little to compare
    with. ``reported``: the share of slow samples had a verdict, and the level has none yet.
    """

    base: SpeedLevel
    driver: str
    since_seq: int
    since_s: float
    left: str
    reported: bool = msgspec.field(default=False, name="told")

    @cached_property
    def before(self) -> Reference:
        """The last samples of the level before, as they were when the driver changed."""
        return self.base.standard()

    def finding(self, level: SpeedLevel, intake: Intake) -> LevelChange | None:
        """Look at all that the new driver brought, if it is time to; give a confirmed change."""
        m, before = level.count, self.before
        if not intake.is_look(m):
            return None
        values = level.latest(m)
        shift, limit = before.shift(values), self.limit(m)
        if abs(shift) <= limit or not before.agrees(values, shift):
            return None
        if not both_halves(before, values, shift, limit):
            return None
        first = LevelSample(self.since_seq, self.since_s, 0.0)
        return _finding(ChangeKind.DRIVER, before, level.points(m), first)

    def limit(self, m: int) -> float:
        """Give the smallest shift that ``m`` samples of the new driver could confirm."""
        least = parameters.UPDATE_LEAST_SHORT if m < parameters.SHORT else parameters.UPDATE_LEAST
        return max(least, self.before.doubt(m))


def change(level: SpeedLevel, intake: Intake) -> LevelChange | None:
    """Look for a change under the same driver; the shortest window that confirms it wins."""
    for m, least in parameters.WINDOWS:
        if level.count < m or not intake.fills_window(m):
            continue
        reference = level.reference(without=m)
        if reference is None or min(len(level.ref), level.count - m) < m:
            continue
        window = level.latest(m)
        shift = reference.shift(window)
        if _confirmed(reference, window, shift, least):
            finding = _placed(level, reference, m, shift)
            if finding is not None:
                return finding
    return _mixture(level, intake)


def both_halves(reference: Reference, values: Sequence[float], shift: float, limit: float) -> bool:
    """Say whether either half of a window has half of what is needed: else it came or went."""
    half, sign = len(values) // 2, math.copysign(1, shift)
    return all(reference.shift(part) * sign > limit / 2 for part in (values[:half], values[half:]))


def _finding(
    kind: ChangeKind,
    reference: Reference,
    points: list[LevelSample],
    first: LevelSample | None = None,
) -> LevelChange:
    return LevelChange(
        kind=kind,
        points=points,
        first=first or points[0],
        before=reference.raw.median,
        shift=reference.located([point.y for point in points]).mean,
        doubt=reference.doubt(len(points)),
        reference=len(reference.values),
    )


def _mixture(level: SpeedLevel, intake: Intake) -> LevelChange | None:
    """Look for more or fewer visits to the slow one of two states whose flag is not known."""
    m = parameters.SHARE_WINDOW
    if level.count < m or not intake.fills_window(m):
        return None
    reference = level.reference(without=m)
    if reference is None or len(reference.centres) == 1:
        return None
    if len(reference.values) < parameters.SHARE_REFERENCE * m:
        return None
    low, high = reference.centres
    between, gap = (low + high) / 2, high - low
    points = level.points(2 * m)
    marks = [float(point.y >= between) for point in points]
    before = [float(value >= between) for value in reference.values]
    if not moved(before, marks[-m:], gap):
        return None
    cut = largest_gain(marks, m // 4)
    share = sum(before) / len(before)
    shift = (sum(marks[cut:]) / (len(marks) - cut) - share) * gap
    finding = _finding(ChangeKind.SLOW_STATE, reference, points[cut:])
    return replace(finding, before=low + share * gap, shift=shift)


def _confirmed(reference: Reference, window: Sequence[float], shift: float, least: float) -> bool:
    m = len(window)
    limit = max(least, parameters.SIGMAS * reference.noise(m))
    if abs(shift) <= limit:
        return False  # nearly always, and before the more expensive computation
    strayings = reference.strayings(m)
    if strayings:
        limit = max(limit, parameters.FACTOR * strayings[-1])
    if abs(shift) <= limit or not reference.agrees(window, shift):
        return False
    return both_halves(reference, window, shift, limit)


def _placed(level: SpeedLevel, reference: Reference, m: int, shift: float) -> LevelChange | None:
    """Find where the change began; None if little is left of it from there on."""
    points = level.points(min(3 * m + 60, max(level.count, m + 4)))
    sign = math.copysign(1, shift)
    residuals = reference.residuals([point.y for point in points])
    middle = reference.centred.median + shift / 2
    nearer = [float((residual - middle) * sign > 0) for residual in residuals]
    cut = largest_gain(nearer, max(FEWEST_AFTER, min(m // 4, len(points) // 4)))
    after = [point.y for point in points[cut:]]
    third = max(1, len(after) // 3)
    early, late = reference.located(after[:third]).mean, reference.located(after[-third:]).mean
    finding = _finding(ChangeKind.STEP, reference, points[cut:])
    if finding.shift * sign < parameters.PLACED_LEAST:
        return None
    slowly = early * sign < DRIFTING * abs(late)
    return replace(finding, kind=ChangeKind.DRIFT) if slowly else finding
