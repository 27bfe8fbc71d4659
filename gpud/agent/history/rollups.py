"""Hourly summaries of the runs: the table ``rollups``.

No clock is asked: a laptop whose battery clock is dead lives in another year until it is set. Runs
carry the order in which they were written, and that order leads here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gpud.agent.history import queries, writes
from gpud.agent.history.records import Finite, State, encoded, typed
from gpud.agent.history.schema import HOUR_S
from gpud.agent.history.selection import DRIVER, FURTHEST_S, PROBES, VERSION
from gpud.core.stats import quantile

if TYPE_CHECKING:
    import sqlite3

BELIEVED_HOURS: Final = 72
"""Hours of running, not of the calendar."""
NAME: Final = "rollups"
"""Of the row in ``states`` with the progress."""


class Progress(NamedTuple):
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

    def after(self, run: int, hour_s: int) -> Progress:
        """Return the progress after the runs up to ``run``, all of one hour."""
        others = [hour for hour in self.hours if hour != hour_s]
        return Progress(run, (*others, hour_s)[-BELIEVED_HOURS:])


class _Hours(msgspec.Struct):
    hours: tuple[int, ...]


def progress(connection: sqlite3.Connection) -> Progress:
    """Read the progress; a damaged one begins anew."""
    state = queries.state(connection, NAME)
    try:
        hours = msgspec.json.decode(state.body, type=_Hours).hours if state else ()
    except msgspec.MsgspecError:
        return Progress()
    return Progress(state.upto_run if state else 0, hours)


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
    after = before.after(run, hour_s)
    state = State(NAME, after.upto_run, float(hour_s), encoded({"hours": after.hours}))
    writes.states(transaction, [state])
    return True


class _Series(NamedTuple):
    gpu_uuid: str
    probe: str
    mode: str
    version: int
    driver: str


class _Sample(NamedTuple):
    gpu_uuid: str
    probe: str
    mode: str
    version: int
    driver: str
    unit: str
    unmarked: int
    median: Finite
    minimum: Finite
    maximum: Finite


def _roll_hour(transaction: sqlite3.Connection, hour_s: int) -> None:
    """Write the summaries of one hour, out of all its runs that are there.

    A summary of more runs stays: the others were deleted since.
    """
    samples: defaultdict[_Series, list[_Sample]] = defaultdict(list)
    rows = transaction.execute(
        f"SELECT coalesce(r.gpu_uuid, ''), r.probe, s.mode, {VERSION}, {DRIVER},"  # noqa: S608
        " s.unit, r.flags = '[]', s.median, s.minimum, s.maximum"
        f" FROM runs r JOIN samples s ON s.run_id = r.id WHERE r.probe IN {PROBES}"
        " AND r.finished_s >= ? AND r.finished_s < ? AND r.failure IS NULL",
        (hour_s, hour_s + HOUR_S),
    )
    for sample in typed(rows, _Sample):
        samples[_Series(*sample[:5])].append(sample)
    transaction.executemany(
        "INSERT INTO rollups VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET unit = excluded.unit, n = excluded.n,"
        " flagged = excluded.flagged, median = excluded.median, p10 = excluded.p10,"
        " p90 = excluded.p90, minimum = excluded.minimum, maximum = excluded.maximum"
        " WHERE excluded.n + excluded.flagged >= n + flagged",
        [(hour_s, *series, *_summary(own)) for series, own in samples.items()],
    )


def _summary(samples: list[_Sample]) -> tuple[str | float | None, ...]:
    """Return unit, n and flagged; of the unmarked: median, p10 and p90 of the medians, and ends."""
    good = [sample for sample in samples if sample.unmarked]
    counts = samples[-1].unit, len(good), len(samples) - len(good)
    if not good:
        return (*counts, None, None, None, None, None)
    medians = sorted(sample.median for sample in good)
    return (
        *counts,
        quantile(medians, 0.5),
        quantile(medians, 0.1),
        quantile(medians, 0.9),
        min(sample.minimum for sample in good),
        max(sample.maximum for sample in good),
    )
