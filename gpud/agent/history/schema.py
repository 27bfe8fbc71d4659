"""Tables of the history, the migrations since version 0.1.0, and columns of a run in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.core.errors import StoreError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

FILE = "gpud.db"
"""The history, in the directory of what must survive a reboot."""

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400
FURTHEST_S: Final = 9e15
"""A Unix time beyond every clock; SQLite keeps infinities."""
CPU: Final = ""
"""In place of a GPU's UUID."""

CACHE_KIB = 512
"""Of pages that a connection keeps: the usual 2 MB are no faster here, and are never given back."""

PROBES: Final = (
    "(WITH RECURSIVE probes (name) AS (SELECT min(probe) FROM runs UNION ALL"
    " SELECT (SELECT min(probe) FROM runs WHERE probe > name) FROM probes WHERE name IS NOT NULL)"
    " SELECT name FROM probes WHERE name IS NOT NULL)"
)
"""Every probe that has runs: with ``probe IN`` it, an index leads to a time whatever the probe is.

A step for each probe, where DISTINCT would walk over every run.
"""
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
ON_BATTERY: Final = (
    "CASE WHEN json_valid(r.conditions)"
    """ THEN coalesce(json_type(r.conditions, '$."after.ac"') = 'false', 0) ELSE 0 END"""
)
PEER: Final = (
    "CASE WHEN json_valid(r.conditions) AND json_type(r.conditions, '$.peer') = 'text'"
    " THEN json_extract(r.conditions, '$.peer') END"
)
"""Columns of a run ``r``; one without a version is of the first, as in ``evaluation``."""

MIGRATIONS = (
    # Schema 5, of version 0.1.0; an hour of flagged runs only has no figure.
    """
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY,
        finished_s REAL NOT NULL,
        boot_id TEXT NOT NULL,
        probe TEXT NOT NULL,
        backend TEXT NOT NULL,
        gpu_uuid TEXT,
        duration_s REAL NOT NULL,
        failure TEXT,
        conditions TEXT NOT NULL,
        flags TEXT NOT NULL DEFAULT '[]',
        curve TEXT
    );
    CREATE INDEX runs_by_time ON runs (probe, finished_s);
    CREATE TABLE samples (
        run_id INTEGER NOT NULL REFERENCES runs (id),
        mode TEXT NOT NULL,
        unit TEXT NOT NULL,
        n INTEGER NOT NULL,
        median REAL NOT NULL,
        p10 REAL NOT NULL,
        p90 REAL NOT NULL,
        p99 REAL NOT NULL,
        minimum REAL NOT NULL,
        maximum REAL NOT NULL,
        null_median REAL,
        null_p99 REAL,
        buckets TEXT,
        peaks TEXT,
        PRIMARY KEY (run_id, mode)
    ) WITHOUT ROWID;
    CREATE TABLE events (
        id INTEGER PRIMARY KEY,
        at_s REAL NOT NULL,
        kind TEXT NOT NULL,
        body TEXT NOT NULL
    );
    CREATE INDEX events_by_time ON events (at_s);
    CREATE INDEX events_by_kind ON events (kind, at_s);
    CREATE TABLE states (
        name TEXT PRIMARY KEY,
        upto_run INTEGER NOT NULL,
        at_s REAL NOT NULL,
        body TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE alarms (
        id INTEGER PRIMARY KEY,
        stream TEXT NOT NULL,
        seq INTEGER NOT NULL,
        at_s REAL NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (stream, seq)
    );
    CREATE INDEX alarms_by_time ON alarms (at_s);
    CREATE TABLE verdicts (
        id INTEGER PRIMARY KEY,
        stream TEXT NOT NULL,
        since_s REAL NOT NULL,
        at_s REAL NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (stream, since_s)
    );
    CREATE INDEX verdicts_by_time ON verdicts (at_s);
    CREATE TABLE alerts (
        fingerprint TEXT NOT NULL,
        starts_s REAL NOT NULL,
        updated_s REAL NOT NULL,
        ends_s REAL,
        body TEXT NOT NULL,
        PRIMARY KEY (fingerprint, starts_s)
    ) WITHOUT ROWID;
    CREATE INDEX alerts_by_time ON alerts (starts_s);
    CREATE TABLE rollups (
        hour_s INTEGER NOT NULL,
        gpu_uuid TEXT NOT NULL,
        probe TEXT NOT NULL,
        mode TEXT NOT NULL,
        version INTEGER NOT NULL,
        driver TEXT NOT NULL,
        unit TEXT NOT NULL,
        n INTEGER NOT NULL,
        flagged INTEGER NOT NULL,
        median REAL,
        p10 REAL,
        p90 REAL,
        minimum REAL,
        maximum REAL,
        PRIMARY KEY (hour_s, gpu_uuid, probe, mode, version, driver),
        CHECK ((n = 0) = (median IS NULL))
    ) WITHOUT ROWID;
    """,
    # A percentile that no value lies beyond is none.
    """
    CREATE TABLE percentiles (
        run_id INTEGER NOT NULL REFERENCES runs (id),
        mode TEXT NOT NULL,
        unit TEXT NOT NULL,
        n INTEGER NOT NULL,
        median REAL NOT NULL,
        p10 REAL,
        p90 REAL,
        p99 REAL,
        minimum REAL NOT NULL,
        maximum REAL NOT NULL,
        null_median REAL,
        null_p99 REAL,
        buckets TEXT,
        peaks TEXT,
        PRIMARY KEY (run_id, mode)
    ) WITHOUT ROWID;
    INSERT INTO percentiles SELECT run_id, mode, unit, n, median, CASE WHEN n >= 10 THEN p10 END,
        CASE WHEN n >= 10 THEN p90 END, CASE WHEN n >= 100 THEN p99 END, minimum, maximum,
        null_median, null_p99, buckets, peaks FROM samples;
    DROP TABLE samples;
    ALTER TABLE percentiles RENAME TO samples;
    """,
    # Rows of a minute and of an hour; a ratio of throttling is the share of the samples.
    """
    CREATE TABLE telemetry (
        step_s INTEGER NOT NULL,
        at_s INTEGER NOT NULL,
        gpu_uuid TEXT NOT NULL,
        n INTEGER NOT NULL,
        temperature_celsius_mean REAL,
        temperature_celsius_minimum REAL,
        temperature_celsius_maximum REAL,
        power_watts_mean REAL,
        power_watts_minimum REAL,
        power_watts_maximum REAL,
        clock_sm_hertz_mean REAL,
        clock_sm_hertz_minimum REAL,
        clock_sm_hertz_maximum REAL,
        clock_memory_hertz_mean REAL,
        clock_memory_hertz_minimum REAL,
        clock_memory_hertz_maximum REAL,
        utilization_gpu_ratio_mean REAL,
        utilization_gpu_ratio_minimum REAL,
        utilization_gpu_ratio_maximum REAL,
        memory_used_bytes_mean REAL,
        memory_used_bytes_minimum REAL,
        memory_used_bytes_maximum REAL,
        throttle_idle_ratio REAL,
        throttle_set_clocks_ratio REAL,
        throttle_power_cap_ratio REAL,
        throttle_hw_slowdown_ratio REAL,
        throttle_sync_boost_ratio REAL,
        throttle_thermal_ratio REAL,
        throttle_hw_thermal_ratio REAL,
        throttle_hw_power_brake_ratio REAL,
        throttle_display_clocks_ratio REAL,
        throttle_board_limit_ratio REAL,
        throttle_reliability_ratio REAL,
        throttle_unknown_ratio REAL,
        PRIMARY KEY (step_s, at_s, gpu_uuid)
    ) WITHOUT ROWID;
    """,
)
"""The first makes a new file; each other leads to the next schema. Steps are only ever added."""
FIRST: Final = 5
NEWEST: Final = FIRST + len(MIGRATIONS) - 1


def among(column: str, names: Sequence[str]) -> str:
    """Write the condition that a column has one of these names; none are all."""
    return f"{column} IN ({', '.join('?' * len(names))})" if names else "1"


def refuse_newer(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema of a file; nothing of it is changed. Errors: StoreError for a newer one."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > NEWEST:
        raise StoreError(
            f"{path} was written by a newer gpud (schema {version}, this one knows {NEWEST})",
            reason="newer_schema",
            fix="upgrade gpud, or move the file away",
        )
    return version


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring a file to the newest schema, a step at a time; a copy of the older one stays beside it.

    Errors: StoreError for a newer one, sqlite3.Error and OSError where there is no room for a copy.
    """
    version = refuse_newer(connection, path)
    if 0 < version < FIRST:
        fix = "move the file away; gpud restart"
        raise StoreError(f"{path} is older than gpud 0.1.0", reason="older_schema", fix=fix)
    if 0 < version < NEWEST:
        _copy(connection, path, path.with_name(f"{path.name}.schema-{version}"))
    for step, script in enumerate(MIGRATIONS, start=FIRST):
        # executescript commits first, so the transaction is spelled out: all of a step or nothing.
        if step > version:
            connection.executescript(f"BEGIN; {script} PRAGMA user_version = {step}; COMMIT;")


def _copy(connection: sqlite3.Connection, path: Path, target: Path) -> None:
    """Write a copy, whole or not at all, in place of those of former migrations."""
    new = path.with_name(f"{path.name}.copy")
    new.unlink(missing_ok=True)
    try:
        connection.execute("VACUUM INTO ?", (str(new),))
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)
    for former in path.parent.glob(f"{path.name}.schema-*"):
        if former != target:
            former.unlink(missing_ok=True)
