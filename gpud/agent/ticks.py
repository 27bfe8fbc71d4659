"""Ticks that all come at the same moment."""

from __future__ import annotations

import asyncio
from typing import Final

TICK_S: Final = 2.0
"""How often the agent looks at what tells of no change by itself: clocks, root's file, sinks."""


def to_tick_s(every_s: float = TICK_S) -> float:
    """Return the seconds to the next multiple of ``every_s`` on the clock of the running loop.

    What ticks by it wakes the process once for all: a wake-up costs more than most ticks do.
    """
    return every_s - asyncio.get_running_loop().time() % every_s
