"""What holds a GPU's clocks down, in words."""

from __future__ import annotations

from gpud.core.fields import SENTINELS

WORDS = (
    "idle",
    "set_clocks",
    "power_cap",
    "hw_slowdown",
    "sync_boost",
    "thermal",
    "hw_thermal",
    "hw_power_brake",
    "display_clocks",
    "board_limit",
    "reliability",
)
"""By bit. Source: nvml.h, nvmlClocksEventReasons and, for the last two, the older
nvmlClocksThrottleReasons."""


def words(bits: int) -> str:
    """Name the bits in their order, with commas; ``none`` for none, ``unknown`` for a foreign one.

    A sentinel gives nothing, which is how an empty text is read.
    """
    if bits in SENTINELS:
        return ""
    named = [word for bit, word in enumerate(WORDS) if bits >> bit & 1]
    if bits >> len(WORDS):
        named.append("unknown")
    return ",".join(named) or "none"
