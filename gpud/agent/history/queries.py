"""Queries that turn rows into typed values; a damaged row is skipped.

Each takes the open connection and passes on SQLite's errors, which ``Store`` and ``reader``
translate. Times are Unix times.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gpud.agent.history.records import Entry, Finite, Flags, RecordBody, SavedState, typed
from gpud.agent.history.schema import HOUR_S, ON_BATTERY, PEER, PROBES, VERSION, among
from gpud.agent.regression import commands
from gpud.agent.regression.evaluation import RunFigures, stream_key
from gpud.agent.state.facts import GPUS, KINDS
from gpud.agent.state.presence import GPU_FORGOTTEN, GPU_SEEN, remembered
from gpud.core.errors import WireError
from gpud.core.sample import Flag, Unit
from gpud.core.streams import StreamKey

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpud.agent.regression.commands import Command
    from gpud.core.sample import Condition
    from gpud.document.machine import Expected

MOST_EVENTS: Final = 1000
"""Events that one query returns at most, and one more that shows that there are more."""
RECENT_RUNS: Final = 2000
"""Newest runs that are searched for GPUs and modes."""
SIMILAR_RUNS: Final = 500
"""Runs searched for what is usual on mains and on battery."""
CONTEXTS: Final = "contexts"
"""The state of all streams; ``upto_run`` is the newest run that all their states contain."""
STREAM: Final = "stream:"
_UNFLAGGED: Final = ("[]", "[]")
_UNFLAGGED_OR_SLOW: Final = ("[]", f'["{Flag.LOW.value}"]')
"""As ``flags`` is written."""


# Events


@dataclass(frozen=True, slots=True)
class Window:
    """Selection of events: since inclusive, until exclusive; no kinds means all."""

    since_s: float | None = None
    until_s: float | None = None
    kinds: tuple[str, ...] = ()
    limit: int = MOST_EVENTS


def events(connection: sqlite3.Connection, window: Window) -> list[Entry]:
    """Return the events of a window, newest first; of one moment the one written last."""
    since_s = -math.inf if window.since_s is None else window.since_s
    until_s = math.inf if window.until_s is None else window.until_s
    rows = connection.execute(
        "SELECT at_s, kind, body FROM events WHERE at_s >= ? AND at_s < ?"  # noqa: S608  # ours
        f" AND {among('kind', window.kinds)} ORDER BY at_s DESC, id DESC LIMIT ?",
        (since_s, until_s, *window.kinds, min(window.limit, MOST_EVENTS + 1)),
    )
    return [Entry(*row) for row in typed(rows, tuple[Finite, str, RecordBody])]


def last_changes(connection: sqlite3.Connection) -> dict[str, Entry]:
    """Return the newest change by kind, in order of writing: clocks are set back at times."""
    rows = _numbered(connection, KINDS)
    return {entry.kind: entry for _, entry in rows if isinstance(entry.body.get("new"), str)}


def gpu_events(connection: sqlite3.Connection) -> list[Entry]:
    """Return every event about which GPUs there are, in the order of writing."""
    return [entry for _, entry in _numbered(connection, (GPUS, GPU_SEEN, GPU_FORGOTTEN))]


def expected_gpus(connection: sqlite3.Connection) -> dict[str, Expected]:
    """Return the GPUs that are expected by all that the history has of them, by UUID."""
    return remembered((entry.at_s, entry.kind, entry.body) for entry in gpu_events(connection))


def person_commands(connection: sqlite3.Connection, after: int) -> list[Command]:
    """Return people's commands in rows beyond the number ``after``, in order."""
    rows = _numbered(connection, commands.KINDS, after)
    read = (commands.decoded(number, e.at_s, e.kind, e.body) for number, e in rows)
    return [command for command in read if command is not None]


def _numbered(
    connection: sqlite3.Connection, kinds: Sequence[str], after: int = 0
) -> Iterator[tuple[int, Entry]]:
    rows = connection.execute(
        "SELECT id, at_s, kind, body FROM events"  # noqa: S608  # ours
        f" WHERE {among('kind', kinds)} AND id > ? ORDER BY id",
        (*kinds, after),
    )
    for number, at_s, kind, body in typed(rows, tuple[int, Finite, str, RecordBody]):
        yield number, Entry(at_s, kind, body)


# Runs


class PastRun(NamedTuple):
    """A good run, and its number in the history."""

    number: int
    figures: RunFigures


class Sides(NamedTuple):
    """Conditions of the runs on either side of a change."""

    before: Sequence[Mapping[str, Condition]] = ()
    after: Sequence[Mapping[str, Condition]] = ()


Similar: TypeAlias = tuple[dict[str, "Condition"], tuple[Flag, ...]]
"""Conditions and flags of a run."""


class _RunRow(NamedTuple):
    number: int
    finished_s: Finite
    probe: str
    backend: str
    gpu: str | None
    conditions: RecordBody
    flags: Flags


class _Median(NamedTuple):
    run: int
    mode: str
    unit: Unit
    median: Finite


def newest_run(connection: sqlite3.Connection) -> int:
    """Return the number of the run that was written last, 0 for none."""
    (number,) = connection.execute("SELECT max(id) FROM runs").fetchone()
    return number or 0


def run_count(connection: sqlite3.Connection) -> int:
    """Return how many runs are kept without counting: the oldest go first, so none is missing."""
    (first,) = connection.execute("SELECT min(id) FROM runs").fetchone()
    return 0 if first is None else newest_run(connection) - int(first) + 1


def first_s(connection: sqlite3.Connection) -> float | None:
    """Return the time of the oldest run, or of an hour summed up of older ones; None: neither."""
    rows = connection.execute(
        "SELECT (SELECT finished_s FROM runs ORDER BY id LIMIT 1),"
        " (SELECT min(hour_s) FROM rollups)"
    )
    for run_s, hour_s in typed(rows, tuple[Finite | None, Finite | None]):
        run_first = hour_s is None or (run_s is not None and run_s < hour_s + HOUR_S)
        return run_s if run_first else hour_s
    return None


def last_finished_s(connection: sqlite3.Connection, probe: str) -> float | None:
    """Return when the run of ``probe`` that was written last had ended."""
    rows = connection.execute(
        "SELECT finished_s FROM runs WHERE probe = ? ORDER BY id DESC LIMIT 1", (probe,)
    )
    return next((at_s for (at_s,) in typed(rows, tuple[Finite])), None)


def similar_runs(connection: sqlite3.Connection, probe: str, gpu_uuid: str) -> list[Similar]:
    """Return conditions and flags of good runs that are unflagged or were slow, newest first.

    Read backwards until there are enough: by the index SQLite would fetch and sort a month of them.
    """
    rows = connection.execute(
        "SELECT conditions, flags FROM runs NOT INDEXED WHERE probe = ? AND gpu_uuid = ?"
        " AND failure IS NULL AND flags IN (?, ?) ORDER BY id DESC LIMIT ?",
        (probe, gpu_uuid, *_UNFLAGGED_OR_SLOW, SIMILAR_RUNS),
    )
    return list(typed(rows, tuple[RecordBody, Flags]))


def first_run(connection: sqlite3.Connection, since_s: float) -> int:
    """Return the number before that of the run written first among those since ``since_s``."""
    (first,) = connection.execute(
        f"SELECT min(id) FROM runs WHERE probe IN {PROBES} AND finished_s >= ?",  # noqa: S608
        (since_s,),
    ).fetchone()
    return 2**63 - 1 if first is None else first - 1


def first_run_within(connection: sqlite3.Connection, upto: int, span_s: float) -> int:
    """Return the number of a run after which those of the ``span_s`` before run ``upto`` come."""
    last = connection.execute(
        "SELECT finished_s FROM runs WHERE id <= ? ORDER BY id DESC LIMIT 1", (upto,)
    )
    for (finished_s,) in typed(last, tuple[Finite]):
        return min(upto, first_run(connection, finished_s - span_s))
    return 0


def good_runs(
    connection: sqlite3.Connection, after: int, upto: int, limit: int
) -> tuple[list[PastRun], int]:
    """Return the good runs after one number and up to another, at most ``limit``, as written.

    Returns the number with which to go on as well: ``upto`` where that was all.
    """
    rows = connection.execute(
        "SELECT id, finished_s, probe, backend, gpu_uuid, conditions, flags FROM runs"
        " WHERE id > ? AND id <= ? AND failure IS NULL ORDER BY id LIMIT ?",
        (after, upto, limit),
    ).fetchall()
    reached = rows[-1][0] if len(rows) == limit else upto
    samples = connection.execute(
        "SELECT run_id, mode, unit, median FROM samples WHERE run_id > ? AND run_id <= ?",
        (after, reached),
    )
    medians: defaultdict[int, list[tuple[str, Unit, float]]] = defaultdict(list)
    for sample in typed(samples, _Median):
        medians[sample.run].append(sample[1:])
    runs = []
    for run in typed(rows, _RunRow):
        figures = tuple(sorted(medians[run.number]))
        basics = run.probe, run.backend, run.gpu, run.finished_s
        runs.append(PastRun(run.number, RunFigures(*basics, figures, run.conditions, run.flags)))
    return runs, reached


def conditions_around(
    connection: sqlite3.Connection,
    stream: StreamKey,
    since_s: float,
    most: int,
    *,
    slow: bool = False,
) -> Sides:
    """Return the conditions of a stream's last good runs before a moment, and of the first since.

    Either side has at most ``most``. ``slow``: include those of the slow power state, which
    explain an alarm about it.
    """
    flags = _UNFLAGGED_OR_SLOW if slow else _UNFLAGGED
    sides = []
    for order, compared in (("DESC", "<"), ("ASC", ">=")):
        rows = connection.execute(
            "SELECT conditions FROM runs WHERE probe = ? AND gpu_uuid IS ?"  # noqa: S608  # ours
            f" AND failure IS NULL AND flags IN (?, ?) AND finished_s {compared} ?"
            f" ORDER BY finished_s {order} LIMIT ?",
            (stream.probe, stream.gpu, *flags, since_s, most),
        )
        conditions = [body for (body,) in typed(rows, tuple[RecordBody])]
        sides.append(
            [
                body
                for body in conditions
                if (body.get("after.ac") is False) is stream.on_battery
                and body.get("peer") == stream.peer
            ]
        )
    return Sides(*sides)


# What is usual, for ``gpud probe``


def usual(
    connection: sqlite3.Connection, probes: Sequence[str], since_s: float
) -> dict[StreamKey, tuple[float, ...]]:
    """Return the medians of the good, unflagged runs of ``probes`` after ``since_s``, by stream.

    A distribution with two modes (``peaks``) has no median to compare with.
    """
    medians: defaultdict[StreamKey, list[float]] = defaultdict(list)
    for probe in probes:
        rows = connection.execute(
            f"SELECT r.gpu_uuid, s.mode, {VERSION}, {ON_BATTERY}, {PEER}, s.median"  # noqa: S608  # ours
            " FROM runs r JOIN samples s ON s.run_id = r.id WHERE r.probe = ?"
            " AND r.finished_s >= ? AND r.failure IS NULL AND r.flags = '[]' AND s.peaks IS NULL",
            (probe, since_s),
        )
        for gpu, mode, version, on_battery, peer, figure in typed(
            rows, tuple[str | None, str, int, int, str | None, Finite]
        ):
            key = StreamKey(gpu, probe, mode, version, bool(on_battery), peer)
            medians[key].append(figure)
    return {key: tuple(figures) for key, figures in medians.items()}


# States


class LastAlarm(NamedTuple):
    """The last alarm of a stream: the sample that decided it, and when that was taken."""

    stream: str
    seq: int
    at_s: Finite


class Start(NamedTuple):
    """What the history holds when evaluation begins."""

    newest_run: int
    contexts: SavedState | None
    streams: tuple[StreamKey, ...]  # that have a state
    alarms: Mapping[StreamKey, LastAlarm]


def state(connection: sqlite3.Connection, name: str) -> SavedState | None:
    """Return a state, None where there is none."""
    rows = connection.execute(
        "SELECT name, upto_run, at_s, body FROM states WHERE name = ?", (name,)
    )
    return next(typed(rows, SavedState), None)


def start(connection: sqlite3.Connection) -> Start:
    """Return what evaluation begins with."""
    names = connection.execute(
        "SELECT name FROM states WHERE name >= ? AND name < ?", (STREAM, f"{STREAM[:-1]};")
    )
    alarms = connection.execute("SELECT stream, max(seq), max(at_s) FROM alarms GROUP BY stream")
    return Start(
        newest_run(connection),
        state(connection, CONTEXTS),
        tuple(_keys(name.removeprefix(STREAM) for (name,) in typed(names, tuple[str]))),
        {stream: last for last in typed(alarms, LastAlarm) for stream in _keys([last.stream])},
    )


def _keys(names: Iterable[str]) -> Iterator[StreamKey]:
    for name in names:
        with suppress(WireError):  # damaged
            yield stream_key(name)


# Names


def probes(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Return every probe that has runs or hours."""
    rows = connection.execute(f"SELECT name FROM {PROBES} UNION SELECT probe FROM rollups")  # noqa: S608
    return tuple(sorted(name for (name,) in typed(rows, tuple[str])))


_OF_PROBES: Final = ":probes = '[]' OR probe IN (SELECT value FROM json_each(:probes))"


def modes(connection: sqlite3.Connection, probes: Sequence[str]) -> tuple[str, ...]:
    """Return the modes of these probes, or of all, in the newest runs and in any hour."""
    rows = connection.execute(
        f"SELECT mode FROM rollups WHERE {_OF_PROBES} UNION SELECT mode FROM samples"  # noqa: S608
        f" WHERE run_id IN (SELECT id FROM runs WHERE {_OF_PROBES} ORDER BY id DESC LIMIT :recent)",
        {"probes": json.dumps(probes), "recent": RECENT_RUNS},
    )
    return tuple(sorted(mode for (mode,) in typed(rows, tuple[str])))


def gpus(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that were seen, or were measured lately."""
    rows = connection.execute(
        "SELECT gpu_uuid FROM (SELECT gpu_uuid FROM runs ORDER BY id DESC LIMIT ?)"
        " UNION SELECT json_extract(body, '$.uuid') FROM events"
        " WHERE kind = ? AND json_valid(body) ORDER BY 1",
        (RECENT_RUNS, GPU_SEEN),
    )
    return tuple(uuid for (uuid,) in typed(rows, tuple[str]))
