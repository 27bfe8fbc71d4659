"""Every number the detector decides by, with its reason. Logarithms where not said otherwise.

They were chosen on plateaus: docs/detector.md says what was tried and how little it mattered.
Samples where a number is of samples; seconds end in ``_S``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Final, NamedTuple


def _effect(percent: float) -> float:
    return math.log(1 + percent / 100)


class Spans(NamedTuple):
    """The time that must be covered, by the settings, before a change is believed."""

    look_s: float = 1110.0  # by a look at a new driver: 20 minutes, give or take the jitter
    window_s: float = 5340.0  # under the same driver: 90 minutes; load and bursts are shorter


# Intake
SETTLE: Final = 3  # not judged after a start, a pause and an update: caches and clocks are cold
SETTLE_S: Final = 3600.0  # but not for longer: a night later everything is warm
PAUSE_S: Final = 900.0  # an interval is a pause if it is longer than this
PAUSE_RATIO: Final = 5.0  # and than so many usual ones

# Levels
KEEP: Final = 1000
"""Samples of a level that are its reference: 17 hours at one a minute, a week at one every ten
minutes. Then it is frozen, because a reference that moves swallows a drift."""
NEAR: Final = _effect(4)  # so close to the level before an alarm is its end

# A new driver against the level before
LOOKS: Final = (8, 12, 20, 30, 45, 60, 90, 120)
UPDATE_LEAST: Final = _effect(6.5)
UPDATE_LEAST_SHORT: Final = _effect(10)  # below ``SHORT`` samples
SHORT: Final = 20

# Step and drift under one driver
WINDOWS: Final = tuple(
    (m, _effect(percent))
    for m, percent in ((8, 12), (12, 11), (20, 10), (40, 8), (60, 8), (120, 8), (240, 8))
)
"""Window and least effect."""
SIGMAS: Final = 4.5  # looked at with every sample, so stricter than the interval of an update
FACTOR: Final = 1.2  # times the farthest that the reference's own windows stray
PLACED_LEAST: Final = _effect(5.5)  # what must be left once the change has been placed

# The share of samples in the slow power state
SHARE_WINDOW: Final = 120
SHARE_LOOK_S: Final = 3300.0  # of an update: a visit lasts some 15 minutes, rarely an hour
SHARE_REFERENCE: Final = 3  # windows: visits come in bouts, so a reference has to be long
SHARE_WORSE: Final = 360  # samples before more visits are an alarm; fewer visits end one sooner
SHARE_LEAST: Final = _effect(10)  # of the mean, which bouts move more than they move a level
SHARE_SIGMAS: Final = 3.5
SHARE_FACTOR: Final = 1.5


def _grid() -> tuple[int, ...]:
    sizes = [8]
    while sizes[-1] < KEEP:
        sizes.append(min(KEEP, max(sizes[-1] + 1, int(sizes[-1] * 1.07))))
    return tuple(sizes)


GRID: Final = _grid()
"""Lengths at which a growing reference is looked at anew: 7 % more samples change little."""


def stepped(length: int) -> int:
    """Give the largest entry of ``GRID`` not above ``length``; 0 where there is none."""
    at = bisect_right(GRID, length)
    return GRID[at - 1] if at else 0
