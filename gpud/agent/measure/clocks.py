"""The two clocks, read at one moment."""

from __future__ import annotations

import time

from gpud.core.clock import Instant

TOGETHER_S = 0.001
ATTEMPTS = 5
"""A scheduler that takes the processor away between two readings would look like a jump."""


def now() -> Instant:
    """Read wall and monotonic clock less than a millisecond apart, or as near as it gets."""
    nearest, gap_s = Instant(0.0, 0.0), float("inf")
    for _ in range(ATTEMPTS):
        before_s = time.monotonic()
        wall_s = time.time()
        after_s = time.monotonic()
        if after_s - before_s < gap_s:
            nearest, gap_s = Instant(wall_s, before_s), after_s - before_s
        if gap_s < TOGETHER_S:
            break
    return nearest


def local_min(wall_s: float) -> int:
    """Give the minute of the local day at a Unix time, by the time zone that holds now.

    A travelling laptop changes its zone while the agent runs; libc looks only when told to.
    """
    time.tzset()
    local = time.localtime(wall_s)
    return local.tm_hour * 60 + local.tm_min
