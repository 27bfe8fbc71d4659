"""Records of the history: the type of each row, how it is written, and how it is read back.

Rows are written in the order in which they arrive, so ``id`` tells what came after what, whatever
the clock said meanwhile. ``Store.write`` commits the writes.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar

import msgspec

from gpud.agent.regression.evaluation import stream_name
from gpud.core.sample import Condition, Flag

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

    from gpud.agent.regression.commands import Command
    from gpud.agent.regression.evaluation import FinalVerdict, StreamAlarm
    from gpud.core.sample import RunReport

T = TypeVar("T")

Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""A column of figures or of Unix times: SQLite keeps infinities."""


class RecordBody(dict[str, Condition]):
    """A column with a JSON object of plain values."""


class Flags(tuple[Flag, ...]):
    """A column with the flags of a run."""

    __slots__ = ()


_DECODED_AS: Final[dict[type, Any]] = {RecordBody: dict[str, Condition], Flags: tuple[Flag, ...]}


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run. Units: ``finished_s`` is Unix time."""

    report: RunReport
    finished_s: float
    boot_id: str
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One event. Units: ``at_s`` is Unix time."""

    at_s: float
    kind: str
    body: Mapping[str, Condition] = field(default_factory=dict)


class SavedState(NamedTuple):
    """One row of ``states``: what the detectors, the alerts or the roll-ups go on with.

    ``upto_run`` is the newest run that it contains. Units: ``at_s`` is Unix time.
    """

    name: str
    upto_run: int
    at_s: float
    body: str


_ONE_THREAD: Final = threading.Lock()
_prepared: set[Any] = set()
"""Types of which msgspec knows all."""


def typed(rows: Iterable[tuple[Any, ...]], kind: type[T]) -> Iterator[T]:
    """Yield each row as ``kind``, a named tuple or a tuple of column types.

    The one place where a row that a damaged disk has changed is dropped.
    """
    with _ONE_THREAD:  # msgspec stores what it knows of a type before it has all of it
        if kind not in _prepared:
            msgspec.json.Decoder(kind, dec_hook=_decoded)
            _prepared.add(kind)
    for row in rows:
        try:
            value = msgspec.convert(row, kind, dec_hook=_decoded)
        except (msgspec.MsgspecError, RecursionError):
            continue
        yield value


def _decoded(kind: type, text: object) -> Any:  # noqa: ANN401  # of that type
    if not isinstance(text, str):
        raise TypeError("no text")
    return kind(msgspec.json.decode(text, type=_DECODED_AS[kind]))


def encoded(body: object) -> str:
    """Return plain data as it is stored."""
    return msgspec.json.encode(body).decode()


_FIGURES: Final = attrgetter(
    *("mode", "unit", "n", "median", "p10", "p90", "p99", "minimum", "maximum"),
    *("null_median", "null_p99"),
)


def write_run(transaction: sqlite3.Connection, run: Run) -> None:
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
    for sample in report.samples:
        buckets = encoded(sample.buckets) if sample.buckets else None
        peaks = encoded(sample.peaks) if sample.peaks else None
        transaction.execute(
            "INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (cursor.lastrowid, *_FIGURES(sample), buckets, peaks),
        )


def write_events(transaction: sqlite3.Connection, entries: Iterable[Entry]) -> None:
    """Write events in order."""
    transaction.executemany(
        "INSERT INTO events (at_s, kind, body) VALUES (?, ?, ?)",
        [(entry.at_s, entry.kind, encoded(entry.body)) for entry in entries],
    )


def write_command(transaction: sqlite3.Connection, command: Command, uid: int) -> Command:
    """Write a person's command behind the newest run; return it with its number and place."""
    (newest,) = transaction.execute("SELECT coalesce(max(id), 0) FROM runs").fetchone()
    placed = replace(command, after_run=newest)
    write_events(transaction, [Entry(placed.at_s, placed.kind, {**placed.body(), "uid": uid})])
    (number,) = transaction.execute("SELECT max(id) FROM events").fetchone()
    return replace(placed, number=number)


def write_states(transaction: sqlite3.Connection, rows: Iterable[SavedState]) -> None:
    """Write states, each in place of the earlier one of its name."""
    transaction.executemany(
        "INSERT OR REPLACE INTO states (name, upto_run, at_s, body) VALUES (?, ?, ?, ?)", rows
    )


def write_results(
    transaction: sqlite3.Connection, decided: Iterable[StreamAlarm], settled: Iterable[FinalVerdict]
) -> None:
    """Write alarms and verdicts; those that a replay repeats are there already, and stay."""
    for alarm in decided:
        differences = [{"kind": d.kind, "old": d.old, "new": d.new} for d in alarm.changed]
        body = {"unit": alarm.unit, **asdict(alarm.alarm), "differences": differences}
        transaction.execute(
            "INSERT OR IGNORE INTO alarms (stream, seq, at_s, body) VALUES (?, ?, ?, ?)",
            (stream_name(alarm.key), alarm.alarm.seq, alarm.alarm.at_s, encoded(body)),
        )
    for verdict in settled:
        body = {"unit": verdict.unit, **asdict(verdict.verdict)}
        transaction.execute(
            "INSERT OR IGNORE INTO verdicts (stream, since_s, at_s, body) VALUES (?, ?, ?, ?)",
            (stream_name(verdict.key), verdict.verdict.since_s, verdict.at_s, encoded(body)),
        )
