"""Finished runs, as rows of the history: the tables ``runs`` and ``samples``.

Every function takes the open connection and lets SQLite's errors through; the store translates
them. Rows are written in the order in which the history was told of them, so ``id`` tells what came
after what, whatever the clock said meanwhile.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from gpud.core.sample import Flag

if TYPE_CHECKING:
    import sqlite3
    from typing import Any

    from gpud.core.sample import Condition, RunReport

PROBES: Final = (
    "(WITH RECURSIVE known (name) AS (SELECT min(probe) FROM runs UNION ALL"
    " SELECT (SELECT min(probe) FROM runs WHERE probe > name) FROM known WHERE name IS NOT NULL)"
    " SELECT name FROM known WHERE name IS NOT NULL)"
)
"""Every probe that has runs: with ``probe IN`` it, an index leads to a time whatever the probe is.

A step for each probe, where DISTINCT would walk over every run.
"""


Undisturbed: TypeAlias = tuple[dict[str, "Condition"], tuple[Flag, ...]]
"""The conditions of a run, and its flags."""


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run as the history keeps it. Units: ``finished_s`` is Unix time."""

    report: RunReport
    finished_s: float
    boot_id: str
    flags: tuple[Flag, ...] = ()


def insert(transaction: sqlite3.Connection, run: Run) -> None:
    """Write a run with its samples; the caller commits.

    Errors: ``sqlite3.IntegrityError`` or ``OverflowError`` for what no disk could keep.
    """
    report = run.report
    cursor = transaction.execute(
        "INSERT INTO runs (finished_s, boot_id, probe, backend, gpu_uuid, duration_s, failure,"
        " conditions, flags, curve) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            run.finished_s,
            run.boot_id,
            report.probe,
            report.backend,
            report.device.uuid if report.device else None,
            report.duration_s,
            _json(asdict(report.failure)) if report.failure else None,
            _json(report.conditions),
            _json(run.flags),
            _json([asdict(point) for point in report.curve]) if report.curve else None,
        ),
    )
    transaction.executemany(
        "INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                cursor.lastrowid,
                sample.mode,
                sample.unit,
                sample.n,
                sample.median,
                sample.p10,
                sample.p90,
                sample.p99,
                sample.minimum,
                sample.maximum,
                sample.null_median,
                sample.null_p99,
                _json(asdict(sample.buckets)) if sample.buckets else None,
                _json([asdict(peak) for peak in sample.peaks]) if sample.peaks else None,
            )
            for sample in report.samples
        ],
    )


def count(connection: sqlite3.Connection) -> int:
    """Say how many runs are kept."""
    (runs,) = connection.execute("SELECT count(*) FROM runs").fetchone()
    return int(runs)


def span(connection: sqlite3.Connection) -> int:
    """Say how many runs are kept without counting them: the oldest go first, so none is missing."""
    first, last = connection.execute(
        "SELECT (SELECT min(id) FROM runs), (SELECT max(id) FROM runs)"
    ).fetchone()
    return 0 if last is None else int(last - first + 1)


def last_finished_s(connection: sqlite3.Connection, probe: str) -> float | None:
    """Give when the run of ``probe`` that was written last had ended."""
    row = connection.execute(
        "SELECT finished_s FROM runs WHERE probe = ? ORDER BY id DESC LIMIT 1", (probe,)
    ).fetchone()
    return None if row is None else float(row[0])


def undisturbed(
    connection: sqlite3.Connection, probe: str, gpu_uuid: str, most: int
) -> list[Undisturbed]:
    """Give the conditions and flags of good runs that bear none or were slow, newest first.

    Read backwards until there are enough: by the index SQLite would fetch and sort a month of them.
    """
    rows = connection.execute(
        "SELECT conditions, flags FROM runs NOT INDEXED"
        " WHERE probe = ? AND gpu_uuid = ? AND failure IS NULL"
        " AND flags IN ('[]', ?) ORDER BY id DESC LIMIT ?",
        (probe, gpu_uuid, _json([Flag.LOW]), most),
    )
    return [(json.loads(text), tuple(map(Flag, json.loads(flags)))) for text, flags in rows]


def _json(value: Any) -> str:  # noqa: ANN401  # plain data
    return json.dumps(value, separators=(",", ":"))
