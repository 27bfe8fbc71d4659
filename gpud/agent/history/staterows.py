"""States, alarms and verdicts as rows of the history: the tables of the same names.

Every function takes the open connection and lets SQLite's errors through; the store translates
them. ``upto_run`` of the row ``contexts`` is the newest run that all states of streams have taken
in: a stream whose row is older has had no sample since.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from gpud.agent.history import pastruns
from gpud.agent.history.rows import Finite, typed
from gpud.agent.regression.streams import key, named
from gpud.core.errors import WireError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

    from gpud.agent.regression.judging import Decided, Settled
    from gpud.core.stream_key import StreamKey

CONTEXTS: Final = "contexts"
STREAM: Final = "stream:"


class State(NamedTuple):
    """One row of ``states``. Units: ``at_s`` is Unix time."""

    name: str
    upto_run: int
    at_s: float
    body: str

    def decoded(self) -> dict[str, Any]:
        """Give the body as data. Errors: ``WireError`` for what is no JSON object."""
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise WireError(f"the state {self.name} is damaged: {error}") from error


class LastAlarm(NamedTuple):
    """The last alarm of a stream: the sample that decided it, and when that was taken."""

    stream: str
    seq: int
    at_s: Finite


class Start(NamedTuple):
    """What the history holds when evaluation begins."""

    newest_run: int
    contexts: State | None
    streams: tuple[StreamKey, ...]  # that have a state
    alarms: Mapping[StreamKey, LastAlarm]


def encoded(body: Any) -> str:  # noqa: ANN401  # plain data
    """Write a body."""
    return json.dumps(body, separators=(",", ":"))


def of_stream(stream: StreamKey) -> str:
    """Name the row of a stream."""
    return f"{STREAM}{named(stream)}"


def put(transaction: sqlite3.Connection, states: Iterable[State]) -> None:
    """Write states in the place of those of before."""
    transaction.executemany(
        "INSERT OR REPLACE INTO states (name, upto_run, at_s, body) VALUES (?, ?, ?, ?)", states
    )


def get(connection: sqlite3.Connection, name: str) -> State | None:
    """Return a state, None where there is none."""
    rows = connection.execute(
        "SELECT name, upto_run, at_s, body FROM states WHERE name = ?", (name,)
    )
    return next(typed(rows, State), None)


def start(connection: sqlite3.Connection) -> Start:
    """Return what is there to begin with."""
    names = connection.execute(
        "SELECT name FROM states WHERE name >= ? AND name < ?", (STREAM, f"{STREAM[:-1]};")
    )
    alarms = connection.execute("SELECT stream, max(seq), max(at_s) FROM alarms GROUP BY stream")
    return Start(
        pastruns.newest(connection),
        get(connection, CONTEXTS),
        tuple(_keys(name.removeprefix(STREAM) for (name,) in typed(names, tuple[str]))),
        {stream: last for last in typed(alarms, LastAlarm) for stream in _keys([last.stream])},
    )


def _keys(names: Iterable[str]) -> Iterator[StreamKey]:
    for name in names:
        with suppress(WireError):  # damaged
            yield key(name)


def tell(
    transaction: sqlite3.Connection, decided: Iterable[Decided], settled: Iterable[Settled]
) -> None:
    """Write alarms and verdicts; those that a replay finds again are there already, and stay."""
    transaction.executemany(
        "INSERT OR IGNORE INTO alarms (stream, seq, at_s, body) VALUES (?, ?, ?, ?)",
        [(named(one.key), one.alarm.seq, one.alarm.at_s, _alarm(one)) for one in decided],
    )
    transaction.executemany(
        "INSERT OR IGNORE INTO verdicts (stream, since_s, at_s, body) VALUES (?, ?, ?, ?)",
        [
            (
                named(one.key),
                one.verdict.since_s,
                one.at_s,
                encoded({"unit": one.unit, **asdict(one.verdict)}),
            )
            for one in settled
        ],
    )


def _alarm(one: Decided) -> str:
    differences = [difference._asdict() for difference in one.differences]
    return encoded({"unit": one.unit, **asdict(one.alarm), "differences": differences})
