"""What there is in a history: probes, their modes, GPUs, and from when on the runs themselves.

Every function takes a connection and only reads.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gpud.agent.history import reader
from gpud.agent.history.rolluprows import HOUR_S
from gpud.agent.history.runrows import PROBES

if TYPE_CHECKING:
    import sqlite3

ROLLUPS_SINCE: Final = 5
"""The schema whose hours may be without figures."""
RECENT: Final = 2000
"""Newest runs that are looked through for the GPUs there are."""


def probes(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Name every probe that has runs or hours."""
    found = {name for (name,) in connection.execute(f"SELECT name FROM {PROBES}")}  # noqa: S608
    if reader.schema(connection) >= ROLLUPS_SINCE:
        found |= {name for (name,) in connection.execute("SELECT DISTINCT probe FROM rollups")}
    return tuple(sorted(found))


def gpus(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Name the GPUs that were seen, or were measured lately, by UUID."""
    rows = connection.execute(
        "SELECT gpu_uuid FROM (SELECT gpu_uuid FROM runs ORDER BY id DESC LIMIT ?)"
        " WHERE gpu_uuid IS NOT NULL UNION SELECT json_extract(body, '$.uuid') FROM events"
        " WHERE kind = 'gpu_seen' AND json_valid(body) ORDER BY 1",
        (RECENT,),
    )
    return tuple(uuid for (uuid,) in rows if isinstance(uuid, str))


def has_mode(connection: sqlite3.Connection, probe: str, mode: str) -> bool:
    """Say whether a probe had a mode in one of its newest runs, or in any hour."""
    held = connection.execute(
        "SELECT 1 FROM samples WHERE mode = ? AND run_id IN"
        " (SELECT id FROM runs WHERE probe = ? ORDER BY finished_s DESC LIMIT ?)",
        (mode, probe, RECENT),
    ).fetchone()
    if held is None and reader.schema(connection) >= ROLLUPS_SINCE:
        held = connection.execute(
            "SELECT 1 FROM rollups WHERE probe = ? AND mode = ? LIMIT 1", (probe, mode)
        ).fetchone()
    return held is not None


def raw_from_s(connection: sqlite3.Connection) -> float:
    """Say from when on the runs themselves are there; before, only hours are. Unix time.

    Minus infinity where none was deleted yet. The oldest hour may have lost some of its runs
    already: then its summary knows better.
    """
    if reader.schema(connection) < ROLLUPS_SINCE:
        return -math.inf
    (first_hour_s,) = connection.execute("SELECT min(hour_s) FROM rollups").fetchone()
    if first_hour_s is None:
        return -math.inf
    row = connection.execute("SELECT finished_s FROM runs ORDER BY id LIMIT 1").fetchone()
    if row is None:
        return math.inf
    if not (isinstance(row[0], float) and math.isfinite(row[0])):
        return -math.inf
    hour_s = float(math.floor(row[0] / HOUR_S) * HOUR_S)
    (summed,) = connection.execute(
        "SELECT total(n + flagged) FROM rollups WHERE hour_s = ?", (hour_s,)
    ).fetchone()
    (there,) = connection.execute(
        "SELECT count(*) FROM runs r JOIN samples s ON s.run_id = r.id"  # noqa: S608  # ours
        f" WHERE r.probe IN {PROBES} AND r.finished_s >= ? AND r.finished_s < ?"
        " AND r.failure IS NULL",
        (hour_s, hour_s + HOUR_S),
    ).fetchone()
    if summed > there:
        return hour_s + HOUR_S
    return hour_s if first_hour_s < hour_s else -math.inf
