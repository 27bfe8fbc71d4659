"""Ticks that all come at the same moment."""

from __future__ import annotations

import asyncio


def to_tick_s(every_s: float = 1.0) -> float:
    """Return the seconds to the next multiple of ``every_s`` on the clock of the running loop.

    What ticks by it wakes the process once for all: a wake-up costs more than most ticks do.
    """
    return every_s - asyncio.get_running_loop().time() % every_s
