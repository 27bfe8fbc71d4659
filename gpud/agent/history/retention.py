"""Keeps the history sound and from growing for ever: hours are summed up, what is old is deleted.

In pieces, each a transaction of its own: a run that has finished meanwhile waits for one of them.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gpud.agent.history import rolluprows
from gpud.agent.state.events import StoreMeasured
from gpud.agent.state.snapshot import StoreSize
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from gpud.agent.history.store import History
    from gpud.agent.state.events import Event
    from gpud.core.sections import Store

EVERY_S: Final = 3600.0
FIRST_AFTER_S: Final = 60.0
"""A start has better things to do."""
MEASURED_FIRST_S: Final = 5.0
MEASURED_EVERY_S: Final = 60.0
REST_S: Final = 0.05
"""Between two pieces: the first pass over a month takes a minute, and nobody waits for it."""


async def keep(history: History, plan: Store, *, rest_s: float = REST_S) -> None:
    """Look the file through, roll up what has not been, then delete what ``plan`` says is old.

    One that is damaged is set aside by ``History``, and a new one begun. Looking through half a
    gigabyte takes a second, in which a run that has finished waits.

    A history that cannot be written is told by the runs that cannot be; it is tried again later.
    """
    pieces: tuple[Callable[[sqlite3.Connection], bool], ...] = (
        rolluprows.roll_up,
        lambda open_: rolluprows.forget_runs(open_, raw_days=plan.raw_days),
        lambda open_: rolluprows.forget_the_rest(open_, rollup_days=plan.rollup_days),
    )
    with suppress(StoreError):
        await history.ask(lambda store: store.look_through())
        for piece in pieces:
            more = True
            while more:
                more = await _done(history, piece)
                await asyncio.sleep(rest_s)


async def measure(history: History, publish: Callable[[Event], None]) -> None:
    """Say how large and how old the history is; nothing while it cannot be read."""
    with suppress(StoreError):
        n_bytes, runs, first_s = await history.ask(lambda store: (*store.size(), store.first_s()))
        size = StoreSize(n_bytes, runs, history.waiting, history.dropped, first_s)
        publish(StoreMeasured(size, time.time()))


async def _done(history: History, piece: Callable[[sqlite3.Connection], bool]) -> bool:
    return await history.ask(lambda store: store.write(piece))
