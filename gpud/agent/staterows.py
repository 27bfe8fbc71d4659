"""What the detectors know, as rows of the history: the tables ``states``, ``alarms``, ``verdicts``.

Every function takes the open connection and lets SQLite's errors through; the store translates
them. ``upto_run`` of the row ``contexts`` is the newest run that all states have taken in: a stream
whose row is older has had no sample since.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from gpud.agent import pastruns
from gpud.core.errors import WireError
from gpud.core.streams import key, named

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

    from gpud.core.judging import Decided, Settled
    from gpud.core.streams import StreamKey

CONTEXTS: Final = "contexts"
STREAM: Final = "stream:"
ASIDE: Final = "aside:"
"""Before the name of a state that could not be read: kept for whoever wants to know why."""


@dataclass(frozen=True, slots=True)
class State:
    """One row of ``states``. Units: ``at_s`` is Unix time."""

    name: str
    upto_run: int
    at_s: float
    body: bytes

    def decoded(self) -> dict[str, Any]:
        """Give the body as data. Errors: ``WireError`` for what is no JSON object."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise WireError(f"the state {self.name} is damaged: {error}") from error
        if not isinstance(found, dict):
            raise WireError(f"the state {self.name} is damaged: it is no object")
        return found


@dataclass(frozen=True, slots=True)
class Told:
    """The last alarm of a stream: the sample that decided it, and when that was taken."""

    seq: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Start:
    """What the history holds when judging begins. ``streams``: when the latest sample was taken."""

    newest_run: int
    contexts: State | None
    streams: Mapping[StreamKey, float]
    told: Mapping[StreamKey, Told]


def encoded(body: Any) -> bytes:  # noqa: ANN401  # plain data
    """Write a body."""
    return json.dumps(body, separators=(",", ":")).encode()


def of_stream(stream: StreamKey) -> str:
    """Name the row of a stream."""
    return f"{STREAM}{named(stream)}"


def put(transaction: sqlite3.Connection, states: Iterable[State]) -> None:
    """Write states in the place of those of before."""
    transaction.executemany(
        "INSERT OR REPLACE INTO states (name, upto_run, at_s, body) VALUES (?, ?, ?, ?)",
        [(one.name, one.upto_run, one.at_s, one.body.decode()) for one in states],
    )


def get(connection: sqlite3.Connection, name: str) -> State | None:
    """Give a state, None where there is none."""
    row = connection.execute(
        "SELECT upto_run, at_s, CAST(body AS BLOB) FROM states WHERE name = ?", (name,)
    ).fetchone()
    if row is None or type(row[0]) is not int or type(row[1]) is not float:
        return None
    return State(name, row[0], row[1], row[2])


def streams(connection: sqlite3.Connection) -> dict[StreamKey, float]:
    """Give the streams that have a state, and when the latest sample of each was taken."""
    rows = connection.execute(
        "SELECT CAST(name AS BLOB), at_s FROM states WHERE name >= ? AND name < ?",
        (STREAM, f"{STREAM[:-1]};"),
    )
    found = {}
    for name, at_s in rows:
        try:
            stream = key(name.decode(errors="replace").removeprefix(STREAM))
        except WireError:
            continue
        if type(at_s) is float:
            found[stream] = at_s
    return found


def set_aside(transaction: sqlite3.Connection, names: Iterable[str]) -> None:
    """Rename states that could not be read; the latest of a name is kept."""
    for name in names:
        transaction.execute(
            "UPDATE OR REPLACE states SET name = ? WHERE name = ?", (f"{ASIDE}{name}", name)
        )


def told(connection: sqlite3.Connection) -> dict[StreamKey, Told]:
    """Give the last alarm of every stream that ever had one."""
    found = {}
    rows = connection.execute(
        "SELECT CAST(stream AS BLOB), max(seq), max(at_s) FROM alarms GROUP BY stream"
    )
    for name, seq, at_s in rows:
        try:
            stream = key(name.decode(errors="replace"))
        except WireError:
            continue
        if type(seq) is int and type(at_s) is float:
            found[stream] = Told(seq, at_s)
    return found


def start(connection: sqlite3.Connection) -> Start:
    """Give what is there to begin with."""
    return Start(
        pastruns.newest(connection),
        get(connection, CONTEXTS),
        streams(connection),
        told(connection),
    )


def tell(
    transaction: sqlite3.Connection, decided: Iterable[Decided], settled: Iterable[Settled]
) -> None:
    """Write alarms and verdicts; what a replay finds again is there already, and stays."""
    transaction.executemany(
        "INSERT OR IGNORE INTO alarms (stream, seq, at_s, body) VALUES (?, ?, ?, ?)",
        [
            (named(one.key), one.alarm.seq, one.alarm.at_s, encoded(_alarm(one)).decode())
            for one in decided
        ],
    )
    transaction.executemany(
        "INSERT OR IGNORE INTO verdicts (stream, since_s, at_s, body) VALUES (?, ?, ?, ?)",
        [
            (
                named(one.key),
                one.verdict.since_s,
                one.at_s,
                encoded({"unit": one.unit, **asdict(one.verdict)}).decode(),
            )
            for one in settled
        ],
    )


def _alarm(one: Decided) -> dict[str, Any]:
    differences = [difference._asdict() for difference in one.differences]
    return {"unit": one.unit, **asdict(one.alarm), "differences": differences}
