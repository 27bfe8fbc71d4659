"""Every number the detector decides by, with its reason. Logarithms where not said otherwise.

They were chosen on plateaus: docs/detector.md says what was tried and how little it mattered.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field


def _effect(percent: float) -> float:
    return math.log(1 + percent / 100)


def _grid() -> tuple[int, ...]:
    sizes = [8]
    while sizes[-1] < KEEP:
        sizes.append(min(KEEP, max(sizes[-1] + 1, int(sizes[-1] * 1.07))))
    return tuple(sizes)


KEEP = 1000
"""Samples of a level that are its reference: 17 hours at one a minute. Then it is frozen, because a
reference that moves swallows a drift."""
GRID = _grid()
"""Lengths at which a growing reference is looked at anew: 7 % more samples change little."""


def stepped(length: int) -> int:
    """Give the largest entry of ``GRID`` not above ``length``; 0 where there is none."""
    at = bisect_right(GRID, length)
    return GRID[at - 1] if at else 0


@dataclass(frozen=True, slots=True)
class Parameters:
    """One set. Samples where a number is of samples; seconds end in ``_s``."""

    # The door
    settle: int = 3  # left out after a start, a pause and an update: caches and clocks are cold
    settle_s: float = 3600.0  # but not for longer: a night later everything is warm
    pause_s: float = 600.0  # an interval is a pause if it is longer than this
    pause_ratio: float = 5.0  # and than so many usual ones

    # Levels
    levels_kept: int = 4
    near: float = _effect(4)  # so close to an old level is that level
    excursion: int = 100  # of a level left again are added to the one returned to

    # A new driver against the level before
    looks: tuple[int, ...] = (8, 12, 20, 30, 45, 60, 90, 120)
    look_span_s: float = 1110.0  # a look covers 20 minutes, give or take the schedule's jitter
    update_least: float = _effect(6.5)
    update_least_short: float = _effect(10)  # below ``short`` samples
    short: int = 20
    update_sigmas: float = 3.0
    update_quantile: float = 0.98  # of the strayings of the reference's own windows
    update_factor: float = 1.1

    # Step and drift under one driver: window and least effect
    windows: tuple[tuple[int, float], ...] = field(
        default=(
            (8, _effect(12)),
            (12, _effect(11)),
            (20, _effect(10)),
            (40, _effect(8)),
            (60, _effect(8)),
            (120, _effect(8)),
            (240, _effect(8)),
        )
    )
    window_span_s: float = 5340.0  # 90 minutes, likewise: load and bursts are shorter
    sigmas: float = 4.5  # looked at with every sample, so stricter than an update
    factor: float = 1.2  # times the farthest that the reference's own windows stray
    placed_least: float = _effect(5.5)  # what must be left once the change has been placed

    # The share of samples in the slow power state
    share_window: int = 120
    share_reference: int = 3  # windows: visits come in bouts, so much has to be known of them
    share_least: float = _effect(10)  # of the mean, which bouts move more than they move a level
    share_sigmas: float = 3.5
    share_factor: float = 1.5
