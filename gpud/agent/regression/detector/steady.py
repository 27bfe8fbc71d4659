"""Did the same driver become slower? Every sample is looked at, in windows of several lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpud.agent.regression.detector.model import Kind
from gpud.agent.regression.detector.share import moved
from gpud.agent.regression.detector.statistic import largest_gain, split_in_time
from gpud.agent.regression.detector.update import both_halves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.agent.regression.detector.intake import Intake
    from gpud.agent.regression.detector.level import Level, Point
    from gpud.agent.regression.detector.parameters import Parameters
    from gpud.agent.regression.detector.reference import Reference

FEWEST_EITHER_SIDE = 3
DRIFTING = 0.6
"""A change whose beginning has less than this of what its end has came little by little."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change within a level: what is of the next one, and how far that lies from this one."""

    kind: Kind
    before: float  # logarithm of this level
    shift: float
    points: list[Point]
    reference: Reference


def change(level: Level, intake: Intake, parameters: Parameters) -> Change | None:
    """Look for a change that the latest sample confirms; the shortest window that sees it wins."""
    for m, least in parameters.windows:
        if level.own < m or not intake.covers(m, parameters.window_span_s):
            continue
        reference = level.reference(without=m)
        if reference is None or min(len(level.ref), level.count - m) < m:
            continue
        window = level.latest(m)
        found = reference.shift(window)
        if not _confirmed(reference, window, found, least, parameters):
            continue
        placed = _placed(level, reference, m, found, parameters)
        if placed is not None:
            return placed
    return _mixture(level, intake, parameters)


def _mixture(level: Level, intake: Intake, parameters: Parameters) -> Change | None:
    """Look for more or fewer visits to the slow one of two states whose flag is not known."""
    m = parameters.share_window
    if level.own < m or not intake.covers(m, parameters.window_span_s):
        return None
    reference = level.reference(without=m)
    if reference is None or len(reference.centres) == 1:
        return None
    if len(reference.values) < parameters.share_reference * m:
        return None
    low, high = reference.centres
    between, gap = (low + high) / 2, high - low
    points = level.points(2 * m)
    marks = [float(point.y >= between) for point in points]
    before = [float(value >= between) for value in reference.values]
    if not moved(before, marks[-m:], gap, parameters):
        return None
    cut = largest_gain(marks, m // 4)
    share = sum(before) / len(before)
    shift = (sum(marks[cut:]) / (len(marks) - cut) - share) * gap
    return Change(Kind.SLOW_STATE, low + share * gap, shift, points[cut:], reference)


def _confirmed(
    reference: Reference,
    window: Sequence[float],
    found: float,
    least: float,
    parameters: Parameters,
) -> bool:
    m = len(window)
    limit = max(least, parameters.sigmas * reference.noise(m))
    if abs(found) <= limit:
        return False  # nearly always, and before the dearer question
    strayings = reference.strayings(m)
    if strayings:
        limit = max(limit, parameters.factor * strayings[-1])
    if abs(found) <= limit or not reference.agrees(window, found):
        return False
    return both_halves(reference, window, found, limit)


def _placed(
    level: Level, reference: Reference, m: int, found: float, parameters: Parameters
) -> Change | None:
    """Find where the change began; None if little is left of it from there on."""
    points = level.points(min(3 * m + 60, max(level.own, m + 4)))
    span = len(points)
    residuals = reference.residuals([point.y for point in points])
    cut = split_in_time(residuals, max(FEWEST_EITHER_SIDE, min(m // 4, span // 4)))
    after = [point.y for point in points[cut:]]
    moved = reference.located(after).mean
    if moved * found <= 0 or abs(moved) < parameters.placed_least:
        return None
    third = max(1, len(after) // 3)
    early, late = reference.located(after[:third]).mean, reference.located(after[-third:]).mean
    slowly = early * math.copysign(1, moved) < DRIFTING * abs(late)
    kind = Kind.DRIFT if slowly else Kind.STEP
    return Change(kind, reference.raw.median, moved, points[cut:], reference)
