"""Writes of every table but ``rollups`` and ``alerts``; ``Store.write`` commits them.

Rows are written in the order in which they arrive, so ``id`` tells what came after what, whatever
the clock said meanwhile.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from gpud.agent.history.records import Entry, encoded
from gpud.agent.regression.evaluation import stream_name

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from gpud.agent.history.records import Run, State
    from gpud.agent.regression.commands import Command
    from gpud.agent.regression.evaluation import FinalVerdict, StreamAlarm


def run(transaction: sqlite3.Connection, run: Run) -> None:
    """Write a run with its samples.

    Errors: ``sqlite3.IntegrityError``, ``OverflowError`` or ``ValueError`` for values that cannot
    be stored.
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
            encoded(report.failure) if report.failure else None,
            encoded(report.conditions),
            encoded(run.flags),
            encoded(report.curve) if report.curve else None,
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
                encoded(sample.buckets) if sample.buckets else None,
                encoded(sample.peaks) if sample.peaks else None,
            )
            for sample in report.samples
        ],
    )


def events(transaction: sqlite3.Connection, entries: Iterable[Entry]) -> None:
    """Write events in order."""
    transaction.executemany(
        "INSERT INTO events (at_s, kind, body) VALUES (?, ?, ?)",
        [(entry.at_s, entry.kind, encoded(entry.body)) for entry in entries],
    )


def command(transaction: sqlite3.Connection, command: Command, uid: int) -> Command:
    """Write a person's command behind the newest run; return it with its number and place."""
    (newest,) = transaction.execute("SELECT coalesce(max(id), 0) FROM runs").fetchone()
    placed = replace(command, after_run=newest)
    events(transaction, [Entry(placed.at_s, placed.kind, {**placed.body(), "uid": uid})])
    (number,) = transaction.execute("SELECT max(id) FROM events").fetchone()
    return replace(placed, number=number)


def states(transaction: sqlite3.Connection, rows: Iterable[State]) -> None:
    """Write states, each in place of the earlier one of its name."""
    transaction.executemany(
        "INSERT OR REPLACE INTO states (name, upto_run, at_s, body) VALUES (?, ?, ?, ?)", rows
    )


def results(
    transaction: sqlite3.Connection, decided: Iterable[StreamAlarm], settled: Iterable[FinalVerdict]
) -> None:
    """Write alarms and verdicts; those that a replay repeats are there already, and stay."""
    transaction.executemany(
        "INSERT OR IGNORE INTO alarms (stream, seq, at_s, body) VALUES (?, ?, ?, ?)",
        [(stream_name(one.key), one.alarm.seq, one.alarm.at_s, _alarm(one)) for one in decided],
    )
    transaction.executemany(
        "INSERT OR IGNORE INTO verdicts (stream, since_s, at_s, body) VALUES (?, ?, ?, ?)",
        [
            (
                stream_name(one.key),
                one.verdict.since_s,
                one.at_s,
                encoded({"unit": one.unit, **asdict(one.verdict)}),
            )
            for one in settled
        ],
    )


def _alarm(decided: StreamAlarm) -> str:
    differences = [difference._asdict() for difference in decided.differences]
    return encoded({"unit": decided.unit, **asdict(decided.alarm), "differences": differences})
