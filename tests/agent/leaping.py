"""A clock for launchers and their event loop that leaps: no deadline is waited for."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine


class Clock:
    """The time of launchers and their event loop. It leaps once a child waits in the kernel.

    So no child needs to come that far within a budget, and no deadline is waited for.
    """

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_s

    def time(self) -> float:
        return time.time()

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        def loop() -> asyncio.AbstractEventLoop:
            made = asyncio.SelectorEventLoop()
            made.time = self.monotonic  # type: ignore[method-assign]
            return made

        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(story)

    def leap(self) -> None:
        """Let all deadlines pass."""
        self._ahead_s += 3600.0
