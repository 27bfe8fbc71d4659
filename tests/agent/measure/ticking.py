"""How long an event loop answers nobody, at its worst."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TICK_S = 0.005
HELD_UP_S = 0.4
"""Whoever answers nobody for so long has waited for what he watches, which hangs for longer.

The start of a process takes less where others work too: until the new one has its first turn on a
CPU, the old one stands still.
"""
RUN_DELAY = Path("/proc/thread-self/schedstat")


@dataclass
class Gap:
    """Units: seconds, beyond the tick itself."""

    largest_s: float = 0.0


@contextlib.asynccontextmanager
async def ticking() -> AsyncIterator[Gap]:
    """Tick while the block runs. What the machine made the thread wait for a CPU does not count."""
    gap = Gap()
    task = asyncio.create_task(_tick(gap))
    try:
        yield gap
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _tick(gap: Gap) -> None:
    while True:
        before_s, waited_s = time.monotonic(), _waited_s()
        await asyncio.sleep(TICK_S)
        late_s = time.monotonic() - before_s - TICK_S - (_waited_s() - waited_s)
        gap.largest_s = max(gap.largest_s, late_s)


def _waited_s() -> float:
    """How long this thread could have run and was not let."""
    try:
        return int(RUN_DELAY.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
