"""Hourly summaries, and what may be deleted once they are written: the table ``rollups``.

Every function takes the open connection, does a bounded piece of work, and lets SQLite's errors
through; the caller commits after each piece. Done twice, a piece changes nothing.

No clock is asked: a laptop whose battery clock is dead lives in another year until it is set. Runs
carry the order in which they were written, and that order leads here. The time that age is counted
from is the earliest of the last ``BELIEVED_HOURS`` different hours in which runs were written, so a
clock that is wrong deletes nothing until gpud has run for three days under it; one that is set back
deletes nothing at all. And the oldest rows by writing go first, up to the first that is not old: a
wrong time among right ones neither saves the others nor is lost before them.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from gpud.agent.history.runrows import PROBES
from gpud.agent.regression.changes import KINDS
from gpud.agent.state.presence import GPU_FORGOTTEN, GPU_SEEN
from gpud.core.stats import quantile

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

HOUR_S: Final = 3600
DAY_S: Final = 86400
BELIEVED_HOURS: Final = 72
"""Hours of running, not of the calendar."""
SLICE: Final = 200
"""Rows that one piece of work deletes: some 5 ms, and a run that waits to be written waits no
longer."""
NAME: Final = "rollups"
"""Of the row in ``states`` that says how far the runs are rolled up."""

DRIVER: Final = (
    "CASE WHEN json_valid(r.conditions)"
    " AND json_type(r.conditions, '$.driver_version') = 'text'"
    " THEN json_extract(r.conditions, '$.driver_version') ELSE '' END"
)
VERSION: Final = (
    "CASE WHEN json_valid(r.conditions)"
    " AND json_type(r.conditions, '$.probe_version') = 'integer'"
    " THEN json_extract(r.conditions, '$.probe_version') ELSE 1 END"
)
"""Columns of a run ``r``; a version that is not told is the first, as it is of a stream."""


@dataclass(frozen=True, slots=True)
class Standing:
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

    def reached(self, run: int, hour_s: int | None) -> Standing:
        """Give the standing after the runs up to ``run``, all of one hour; None: of no time."""
        if hour_s is None:
            return replace(self, upto_run=run)
        others = [known for known in self.hours if known != hour_s]
        return Standing(run, (*others, hour_s)[-BELIEVED_HOURS:])


def first_s(connection: sqlite3.Connection) -> float | None:
    """Give the Unix time of the oldest run, or of an hour summed up of older ones."""
    run_s, hour_s = connection.execute(
        "SELECT (SELECT finished_s FROM runs ORDER BY id LIMIT 1),"
        " (SELECT min(hour_s) FROM rollups)"
    ).fetchone()
    if hour_s is None or (run_s is not None and run_s < hour_s + HOUR_S):
        return None if run_s is None else float(run_s)
    return float(hour_s)


def standing(connection: sqlite3.Connection) -> Standing:
    """Read how far the runs are rolled up; a row that is not whole is begun anew."""
    row = connection.execute(
        "SELECT upto_run, body FROM states WHERE name = ? AND typeof(upto_run) = 'integer'"
        " AND typeof(body) = 'text' AND json_valid(body)",
        (NAME,),
    ).fetchone()
    if row is None:
        return Standing()
    body = json.loads(row[1])
    told = body.get("hours") if isinstance(body, dict) else None
    hours = [hour for hour in told if type(hour) is int] if isinstance(told, list) else []
    return Standing(row[0], tuple(dict.fromkeys(hours))[-BELIEVED_HOURS:])


def roll_up(transaction: sqlite3.Connection) -> bool:
    """Roll up the hour of the oldest run that is in none yet; False while that hour goes on.

    An hour is over when a run of another was written after it. A run that came late, or under a
    clock set back, rolls its hour up again.
    """
    known = standing(transaction)
    rows = transaction.execute(
        "SELECT id, finished_s FROM runs WHERE id > ? ORDER BY id", (known.upto_run,)
    )
    first = rows.fetchone()
    if first is None:
        return False
    run, hour_s = first[0], _hour(first[1])
    for later, finished_s in rows:
        if _hour(finished_s) != hour_s:
            break
        run = later
    else:
        return False
    if hour_s is not None:
        _roll_hour(transaction, hour_s)
    _keep(transaction, known.reached(run, hour_s), at_s=float(hour_s or 0))
    return True


def forget_runs(transaction: sqlite3.Connection, *, raw_days: float) -> bool:
    """Delete the oldest runs that are rolled up; True if there may be more of them."""
    known = standing(transaction)
    if known.believed is None:
        return False
    from_s, until_s = known.believed[0] - raw_days * DAY_S, known.believed[1]
    rows = transaction.execute(
        "SELECT id, finished_s FROM runs WHERE id <= ? ORDER BY id LIMIT ?", (known.upto_run, SLICE)
    ).fetchall()
    old = [run for run, _ in takewhile(lambda row: not _within(row[1], from_s, until_s), rows)]
    if old:
        transaction.execute("DELETE FROM samples WHERE run_id <= ?", (old[-1],))
        transaction.execute("DELETE FROM runs WHERE id <= ?", (old[-1],))
    return len(old) == SLICE


def forget_the_rest(transaction: sqlite3.Connection, *, rollup_days: float) -> bool:
    """Delete the oldest summaries, events, alarms, verdicts and alerts; True if there may be more.

    What stays for ever: alerts that fire, which GPUs were seen and forgotten, the last event of
    each kind, and what a person said that no detector has heard yet.
    """
    known = standing(transaction)
    if known.believed is None:
        return False
    from_s, until_s = known.believed[0] - rollup_days * DAY_S, known.believed[1]
    more = _forget_hours(transaction, from_s)
    for table, kept in (("events", _LASTING), ("alarms", "0"), ("verdicts", "0")):
        query = f"SELECT id, at_s FROM {table} WHERE NOT ({kept}) ORDER BY id LIMIT ?"  # noqa: S608
        rows = transaction.execute(query, (SLICE,)).fetchall()
        old = list(takewhile(lambda row: not _within(row[1], from_s, until_s), rows))
        transaction.executemany(
            f"DELETE FROM {table} WHERE id = ?",  # noqa: S608  # ours
            [(row,) for row, _ in old],
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
    " coalesce((SELECT upto_run FROM states WHERE name = 'contexts'), 0), 0))"
)
"""Which events stay whatever their age; the second reading of "last" is that of ``eventrows``.

``contexts`` says which runs the detectors have taken in, and with them what was said before.
"""


def _forget_hours(transaction: sqlite3.Connection, from_s: float) -> bool:
    """Delete a day's summaries at the most: each hour has one for every series."""
    (oldest_s,) = transaction.execute("SELECT min(hour_s) FROM rollups").fetchone()
    if oldest_s is None or oldest_s >= from_s:
        return False
    transaction.execute(
        "DELETE FROM rollups WHERE hour_s < ?", (min(from_s, float(oldest_s + DAY_S)),)
    )
    return True


@dataclass(frozen=True, slots=True)
class _Series:
    gpu_uuid: str
    probe: str
    mode: str
    version: int
    driver: str


def _roll_hour(transaction: sqlite3.Connection, hour_s: int) -> None:
    """Write the summaries of one hour, out of all its runs that are there.

    One that knows of more runs stays: the others were deleted since.
    """
    units: dict[_Series, str] = {}
    good: defaultdict[_Series, list[tuple[float, float, float]]] = defaultdict(list)
    marked: defaultdict[_Series, int] = defaultdict(int)
    rows = transaction.execute(
        f"SELECT coalesce(r.gpu_uuid, ''), r.probe, s.mode, {VERSION}, {DRIVER},"  # noqa: S608
        " s.unit, r.flags = '[]', s.median, s.minimum, s.maximum"
        f" FROM runs r JOIN samples s ON s.run_id = r.id WHERE r.probe IN {PROBES}"
        " AND r.finished_s >= ? AND r.finished_s < ? AND r.failure IS NULL",
        (hour_s, hour_s + HOUR_S),
    )
    for *names, unit, unmarked, median, minimum, maximum in rows:
        figures = (median, minimum, maximum)
        if not all(isinstance(one, float) and math.isfinite(one) for one in figures):
            continue
        series = _Series(*names)
        units[series] = unit
        if unmarked:
            good[series].append(figures)
        else:
            marked[series] += 1
    transaction.executemany(
        "INSERT INTO rollups VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET unit = excluded.unit, n = excluded.n,"
        " flagged = excluded.flagged, median = excluded.median, p10 = excluded.p10,"
        " p90 = excluded.p90, minimum = excluded.minimum, maximum = excluded.maximum"
        " WHERE excluded.n + excluded.flagged >= n + flagged",
        [
            (
                hour_s,
                series.gpu_uuid,
                series.probe,
                series.mode,
                series.version,
                series.driver,
                unit,
                len(good[series]),
                marked[series],
                *_summary(good[series]),
            )
            for series, unit in units.items()
        ],
    )


def _summary(runs: list[tuple[float, float, float]]) -> tuple[float | None, ...]:
    """Give median, p10 and p90 of the medians, minimum and maximum; no figure of no runs."""
    if not runs:
        return (None,) * 5
    medians = sorted(median for median, _, _ in runs)
    return (
        quantile(medians, 0.5),
        quantile(medians, 0.1),
        quantile(medians, 0.9),
        min(minimum for _, minimum, _ in runs),
        max(maximum for _, _, maximum in runs),
    )


def _keep(transaction: sqlite3.Connection, known: Standing, *, at_s: float) -> None:
    body: Mapping[str, object] = {"hours": known.hours}
    transaction.execute(
        "INSERT OR REPLACE INTO states (name, upto_run, at_s, body) VALUES (?, ?, ?, ?)",
        (NAME, known.upto_run, at_s, json.dumps(body, separators=(",", ":"))),
    )


def _within(at_s: object, from_s: float, until_s: float) -> bool:
    return isinstance(at_s, float) and from_s <= at_s < until_s


def _hour(finished_s: object) -> int | None:
    """Give the beginning of the hour; None for a time that no clock shows."""
    if not isinstance(finished_s, float) or not math.isfinite(finished_s):
        return None
    hour_s = math.floor(finished_s / HOUR_S) * HOUR_S
    return hour_s if abs(hour_s) < 2**53 else None
