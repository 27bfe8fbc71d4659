"""Maintenance of the history: runs are rolled up into hours, and old rows deleted.

In pieces, each a transaction of its own: a run that has finished meanwhile waits for one of them.

No clock is asked (ADR 21): a laptop whose battery clock is dead lives in another year until it is
set. Runs carry the order in which they were written, and that order leads. Age is counted from the
earliest of the last ``BELIEVED_HOURS`` different hours in which runs were written, so a clock that
is wrong deletes nothing until gpud has run for three days under it; one that is set back deletes
nothing at all. And the oldest rows by writing go first, up to the first that is not old: a wrong
time among right ones neither saves the others nor is lost before them.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gpud.agent.history import queries, records, telemetry
from gpud.agent.history.records import Finite, SavedState, encoded, typed
from gpud.agent.history.schema import (
    DAY_S,
    DRIVER,
    FURTHEST_S,
    HOUR_S,
    MINUTE_S,
    PROBES,
    VERSION,
)
from gpud.agent.history.store import Store
from gpud.agent.state.presence import GPU_FORGOTTEN, GPU_SEEN
from gpud.core.errors import StoreError
from gpud.core.stats import quantile
from gpud.document.machine import StoreSize

if TYPE_CHECKING:
    import sqlite3

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
BELIEVED_HOURS: Final = 72
"""Hours of running, not of the calendar."""
ROLLUPS: Final = "rollups"
"""Name of the row in ``states`` with the progress."""


async def keep(history: History, plan: sections.StoreSettings, *, rest_s: float = REST_S) -> None:
    """Roll up what has not been, then delete what is old according to ``plan``.

    A history that cannot be written is reported by the runs that cannot be; it is tried again.
    """
    pieces = (
        roll_up,
        partial(forget_runs, raw_days=plan.raw_days),
        partial(forget_the_rest, rollup_days=plan.rollup_days),
        partial(forget_telemetry, step_s=MINUTE_S, days=plan.raw_days),
        partial(forget_telemetry, step_s=HOUR_S, days=plan.rollup_days),
    )
    with suppress(StoreError):
        for piece in pieces:
            while await history.write(piece):  # noqa: ASYNC110  # a rest, not a wait
                await asyncio.sleep(rest_s)


async def measure(history: History, board: Board) -> None:
    """Publish how large and how old the history is; nothing while it cannot be read."""
    with suppress(StoreError):
        n_bytes = await history.ask(Store.size)
        runs = await history.read(queries.run_count)
        first_s = await history.read(queries.first_s)
        size = StoreSize(n_bytes, runs, history.waiting, history.dropped, first_s)
        board.publish(store=size)


# Hours


class RollupProgress(NamedTuple):
    """How far the runs are rolled up, and the last hours in which runs were written.

    ``hours`` are Unix seconds at their beginning, all different, in the order of writing.
    """

    upto_run: int = 0
    hours: tuple[int, ...] = ()

    @property
    def believed(self) -> tuple[float, float] | None:
        """The times that are believed, from inclusive, until exclusive; None: too few hours yet."""
        if len(self.hours) < BELIEVED_HOURS:
            return None
        return float(min(self.hours)), float(max(self.hours) + HOUR_S)


class _Hours(msgspec.Struct):
    hours: tuple[int, ...]


def progress(connection: sqlite3.Connection) -> RollupProgress:
    """Read the progress; a damaged one begins anew."""
    state = queries.state(connection, ROLLUPS)
    if state is None:
        return RollupProgress()
    try:
        return RollupProgress(state.upto_run, msgspec.json.decode(state.body, type=_Hours).hours)
    except msgspec.MsgspecError:
        return RollupProgress()


def roll_up(transaction: sqlite3.Connection) -> bool:
    """Roll up the hour of the oldest run that is in none yet; False while that hour goes on.

    An hour is over when a run of another was written after it. A run that came late, or under a
    clock set back, rolls its hour up again. Done twice, it changes nothing.
    """
    before = progress(transaction)
    rows = transaction.execute(
        "SELECT id, finished_s FROM runs WHERE id > ? AND finished_s > ? AND finished_s < ?"
        " ORDER BY id",
        (before.upto_run, -FURTHEST_S, FURTHEST_S),
    )
    hours = ((run, math.floor(at_s / HOUR_S) * HOUR_S) for run, at_s in rows)
    run, hour_s = next(hours, (0, 0))
    for number, begin_s in hours:
        if begin_s != hour_s:
            break
        run = number
    else:
        return False
    _roll_hour(transaction, hour_s)
    last = (*(hour for hour in before.hours if hour != hour_s), hour_s)[-BELIEVED_HOURS:]
    state = SavedState(ROLLUPS, run, float(hour_s), encoded({"hours": last}))
    records.write_states(transaction, [state])
    return True


class _Sample(NamedTuple):
    gpu_uuid: str
    probe: str
    mode: str
    version: int
    driver: str
    unit: str
    clean: int
    median: Finite
    minimum: Finite
    maximum: Finite


def _roll_hour(transaction: sqlite3.Connection, hour_s: int) -> None:
    """Write the summaries of one hour, out of all its runs that are there.

    A summary of more runs stays: the others were deleted since.
    """
    samples: defaultdict[tuple[str | int, ...], list[_Sample]] = defaultdict(list)
    rows = transaction.execute(
        f"SELECT coalesce(r.gpu_uuid, ''), r.probe, s.mode, {VERSION}, {DRIVER},"  # noqa: S608
        " s.unit, r.flags = '[]', s.median, s.minimum, s.maximum"
        f" FROM runs r JOIN samples s ON s.run_id = r.id WHERE r.probe IN {PROBES}"
        " AND r.finished_s >= ? AND r.finished_s < ? AND r.failure IS NULL",
        (hour_s, hour_s + HOUR_S),
    )
    for sample in typed(rows, _Sample):
        samples[sample[:5]].append(sample)
    transaction.executemany(
        "INSERT INTO rollups VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET unit = excluded.unit, n = excluded.n,"
        " flagged = excluded.flagged, median = excluded.median, p10 = excluded.p10,"
        " p90 = excluded.p90, minimum = excluded.minimum, maximum = excluded.maximum"
        " WHERE excluded.n + excluded.flagged >= n + flagged",
        [(hour_s, *series, *_summary(own)) for series, own in samples.items()],
    )


def _summary(samples: list[_Sample]) -> tuple[str | float | None, ...]:
    """Return unit, n and flagged; of the clean: median, p10 and p90 of the medians, and ends."""
    clean = [sample for sample in samples if sample.clean]
    counts = samples[-1].unit, len(clean), len(samples) - len(clean)
    if not clean:
        return (*counts, None, None, None, None, None)
    medians = sorted(sample.median for sample in clean)
    return (
        *counts,
        *(quantile(medians, share) for share in (0.5, 0.1, 0.9)),
        min(sample.minimum for sample in clean),
        max(sample.maximum for sample in clean),
    )


# Deletion


def forget_runs(transaction: sqlite3.Connection, raw_days: float) -> bool:
    """Delete the oldest runs that are rolled up; True if there may be more of them."""
    done = progress(transaction)
    if done.believed is None:
        return False
    from_s, until_s = done.believed[0] - raw_days * DAY_S, done.believed[1]
    old = _old(transaction, "runs", "finished_s", f"id <= {done.upto_run}", (from_s, until_s))
    if old:
        transaction.execute("DELETE FROM samples WHERE run_id <= ?", (old[-1],))
        transaction.execute("DELETE FROM runs WHERE id <= ?", (old[-1],))
    return len(old) == SLICE


def forget_the_rest(transaction: sqlite3.Connection, rollup_days: float) -> bool:
    """Delete the oldest summaries, events, alarms, verdicts and alerts; True if there may be more.

    What stays for ever: alerts that fire, which GPUs were seen and forgotten, the code that
    drivers made, the last event of each kind, and a person's commands that the detectors have not
    processed yet.
    """
    believed = progress(transaction).believed
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


def forget_telemetry(transaction: sqlite3.Connection, step_s: int, days: float) -> bool:
    """Delete the oldest telemetry of minutes or of hours; True if there may be more of it.

    Where no runs are written nothing says what time it is: then as many rows stay as fit in.
    """
    believed = progress(transaction).believed
    from_s = -math.inf if believed is None else believed[0] - days * DAY_S
    most = math.ceil((days * DAY_S + BELIEVED_HOURS * HOUR_S) / step_s)
    oldest_s = telemetry.begins_s(transaction, step_s, most)
    return telemetry.forget(transaction, step_s, max(from_s, oldest_s))


_LASTING: Final = (
    f"kind IN ('{GPU_SEEN}', '{GPU_FORGOTTEN}')"  # noqa: S608  # ours
    " OR id IN (SELECT max(id) FROM events GROUP BY kind)"
    " OR (json_valid(body) AND coalesce(json_extract(body, '$.after_run') >="
    f" coalesce((SELECT upto_run FROM states WHERE name = '{queries.CONTEXTS}'), 0), 0))"
)
"""Which events stay whatever their age.

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
