"""How often the listener has turned somebody away: counted at once, published once a second."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from gpud.core.events import TurnedAway
from gpud.core.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_S: Final = 1.0
"""A flood of refusals makes no flood of snapshots."""


class Tally:
    """What has been counted and not yet been published. It belongs to one loop."""

    def __init__(self) -> None:
        self._counts = Counter[Refused]()
        self._fresh = asyncio.Event()

    def count(self, reason: Refused) -> None:
        """Count one more."""
        self._counts[reason] += 1
        self._fresh.set()

    async def publish(self, post: Callable[[TurnedAway], None]) -> None:
        """Post what has come in, for ever."""
        while True:
            await self._fresh.wait()
            self._fresh.clear()
            counts, self._counts = self._counts, Counter()
            post(TurnedAway(dict(counts)))
            await asyncio.sleep(EVERY_S)
