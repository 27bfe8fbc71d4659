"""Two clocks and the distance between them.

A paused VM, a resumed laptop and a corrected wall clock all show as wall and monotonic time that
no longer advance together. WSL2 gives no other sign.
"""

from __future__ import annotations

from dataclasses import dataclass

BETWEEN_TICKS_S = 0.5
"""A parting of the clocks smaller than this, between two looks, is ordinary correction.

Some hosts step the clock by 0.35 to 0.4 s every half minute, others pause the machine for seconds.
"""

WITHIN_RUN_S = 0.05
"""A parting larger than this while a probe ran makes its figures worthless."""

ASLEEP_FROM_S = 30.0
REST_S = 10.0
"""How long nothing is measured after a pause that long. Short ones ask for no rest."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on both clocks. Units: Unix seconds and CLOCK_MONOTONIC seconds."""

    wall_s: float
    mono_s: float


def parted_s(before: Instant, after: Instant) -> float:
    """Say how far the wall clock moved beyond the monotonic one; negative: it was set back."""
    return (after.wall_s - before.wall_s) - (after.mono_s - before.mono_s)


def jumped(before: Instant, after: Instant, *, threshold_s: float) -> float | None:
    """Give the jump between two moments, None while the clocks agree to ``threshold_s``."""
    offset_s = parted_s(before, after)
    return offset_s if abs(offset_s) > threshold_s else None


def rest_s(offset_s: float) -> float:
    """Say how long to leave a machine alone whose clocks parted by ``offset_s``."""
    return REST_S if offset_s >= ASLEEP_FROM_S else 0.0
