"""Maintenance of the history: hours are summed up, what is old is deleted, damage is looked for.

In pieces, each a transaction of its own: a run that has finished meanwhile waits for one of them.

No clock is asked (ADR 21). Age is counted from the earliest of the last ``BELIEVED_HOURS``
different hours in which runs were written, so a clock that is wrong deletes nothing until gpud has
run for three days under it; one that is set back deletes nothing at all. And the oldest rows by
writing go first, up to the first that is not old: a wrong time among right ones neither saves the
others nor is lost before them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from gpud.agent.history import queries, rollups
from gpud.agent.history.schema import DAY_S
from gpud.agent.history.store import Store
from gpud.agent.regression.changes import KINDS
from gpud.agent.state.presence import GPU_FORGOTTEN, GPU_SEEN
from gpud.agent.state.snapshot import StoreSize
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from gpud.agent.history.store import History
    from gpud.agent.state.board import Board
    from gpud.core import sections

EVERY_S: Final = 3600.0
FIRST_AFTER_S: Final = 60.0
"""A start has better things to do."""
MEASURED_FIRST_S: Final = 5.0
MEASURED_EVERY_S: Final = 60.0
REST_S: Final = 0.05
"""Between two pieces: the first pass over a month takes a minute, and nobody waits for it."""
SLICE: Final = 200
"""Rows that one piece deletes: some 5 ms, and a run that waits to be written waits no longer."""


async def keep(history: History, plan: sections.StoreSettings, *, rest_s: float = REST_S) -> None:
    """Check the file, roll up what has not been, then delete what is old according to ``plan``.

    ``History`` sets a damaged one aside, and begins a new one. The check of half a gigabyte takes a
    second, in which a run that has finished waits. A history that cannot be written is reported by
    the runs that cannot be; it is tried again later.
    """
    pieces: tuple[Callable[[sqlite3.Connection], bool], ...] = (
        rollups.roll_up,
        lambda transaction: forget_runs(transaction, plan.raw_days),
        lambda transaction: forget_the_rest(transaction, plan.rollup_days),
    )
    with suppress(StoreError):
        await history.ask(Store.check)
        for piece in pieces:
            more = True
            while more:
                more = await history.write(piece)
                await asyncio.sleep(rest_s)


async def measure(history: History, board: Board) -> None:
    """Publish how large and how old the history is; nothing while it cannot be read."""
    with suppress(StoreError):
        n_bytes = await history.ask(Store.size)
        runs = await history.read(queries.run_count)
        first_s = await history.read(queries.first_s)
        size = StoreSize(n_bytes, runs, history.waiting, history.dropped, first_s)
        board.publish(store=size)


def forget_runs(transaction: sqlite3.Connection, raw_days: float) -> bool:
    """Delete the oldest runs that are rolled up; True if there may be more of them."""
    progress = rollups.progress(transaction)
    if progress.believed is None:
        return False
    from_s, until_s = progress.believed[0] - raw_days * DAY_S, progress.believed[1]
    where = f"id <= {progress.upto_run}"
    old = _old(transaction, "runs", "finished_s", where, (from_s, until_s))
    if old:
        transaction.execute("DELETE FROM samples WHERE run_id <= ?", (old[-1],))
        transaction.execute("DELETE FROM runs WHERE id <= ?", (old[-1],))
    return len(old) == SLICE


def forget_the_rest(transaction: sqlite3.Connection, rollup_days: float) -> bool:
    """Delete the oldest summaries, events, alarms, verdicts and alerts; True if there may be more.

    What stays for ever: alerts that fire, which GPUs were seen and forgotten, the last event of
    each kind, and a person's commands that the detectors have not processed yet.
    """
    believed = rollups.progress(transaction).believed
    if believed is None:
        return False
    from_s, until_s = believed[0] - rollup_days * DAY_S, believed[1]
    more = _forget_hours(transaction, from_s)
    for table, where in (("events", f"NOT ({_LASTING})"), ("alarms", "1"), ("verdicts", "1")):
        old = _old(transaction, table, "at_s", where, (from_s, until_s))
        transaction.executemany(
            f"DELETE FROM {table} WHERE id = ?",  # noqa: S608  # ours
            [(number,) for number in old],
        )
        more |= len(old) == SLICE
    transaction.execute(
        "DELETE FROM alerts WHERE ends_s IS NOT NULL AND ends_s < ? AND updated_s < ?",
        (from_s, from_s),
    )
    return more


_CHANGES: Final = ", ".join(f"'{kind}'" for kind in KINDS)
_LASTING: Final = (
    f"kind IN ('{GPU_SEEN}', '{GPU_FORGOTTEN}')"  # noqa: S608  # ours
    " OR id IN (SELECT max(id) FROM events GROUP BY kind)"
    f" OR id IN (SELECT max(id) FROM events WHERE kind IN ({_CHANGES})"
    " AND json_valid(body) AND json_type(body, '$.new') = 'text' GROUP BY kind)"
    " OR (json_valid(body) AND coalesce(json_extract(body, '$.after_run') >="
    f" coalesce((SELECT upto_run FROM states WHERE name = '{queries.CONTEXTS}'), 0), 0))"
)
"""Which events stay whatever their age; the second "last" is that of ``queries.last_changes``.

``contexts`` says which runs, and with them which commands, the detectors have processed.
"""


def _old(
    transaction: sqlite3.Connection, table: str, column: str, where: str, young: tuple[float, float]
) -> list[int]:
    """Return the numbers of the oldest rows by writing, up to the first that is ``young``."""
    rows = transaction.execute(
        f"SELECT id, {column} >= ? AND {column} < ? FROM {table} WHERE {where}"  # noqa: S608  # ours
        " ORDER BY id LIMIT ?",
        (*young, SLICE),
    )
    return [number for number, _ in takewhile(lambda row: not row[1], rows)]


def _forget_hours(transaction: sqlite3.Connection, from_s: float) -> bool:
    """Delete at most a day's summaries: each hour has one for every series."""
    (oldest_s,) = transaction.execute("SELECT min(hour_s) FROM rollups").fetchone()
    if oldest_s is None or oldest_s >= from_s:
        return False
    until_s = min(from_s, float(oldest_s + DAY_S))
    transaction.execute("DELETE FROM rollups WHERE hour_s < ?", (until_s,))
    return True
