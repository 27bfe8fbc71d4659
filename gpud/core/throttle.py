"""Reasons that hold a GPU's clocks down, as the words of the field ``throttle_reasons``."""

from __future__ import annotations

from typing import Final

from gpud.core.fields import SENTINELS

WORDS: Final = (
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

UNKNOWN: Final = "unknown"
"""The word for a bit that none of these stands for."""


def words(bits: int) -> str:
    """Name the bits in their order, with commas; ``none`` for none, ``unknown`` for a foreign one.

    A sentinel gives nothing, which is how an empty text is read.
    """
    if bits in SENTINELS:
        return ""
    named = [word for bit, word in enumerate(WORDS) if bits >> bit & 1]
    if bits >> len(WORDS):
        named.append(UNKNOWN)
    return ",".join(named) or "none"
