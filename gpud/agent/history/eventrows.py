"""What happened, as rows of the history: the table ``events``, one JSON body each.

Every function takes the open connection and lets SQLite's errors through; the store translates
them. Nothing is deleted here: whoever does must leave the last row of each kind, for it says what
was known, and the rows of ``gpu_seen`` and ``gpu_forgotten``, for they say which GPUs to expect.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gpud.agent.regression import commands

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from gpud.agent.regression.commands import Command
    from gpud.core.sample import Condition

COLUMNS = "at_s, CAST(kind AS BLOB), CAST(body AS BLOB)"
SOUND = "typeof(at_s) = 'real' AND abs(at_s) < 9e999 AND typeof(body) = 'text' AND json_valid(body)"
"""What every row has that was written here; a disk may give back others, and they are passed over.

Bytes, because text that is no UTF-8 would fail the whole question.
"""

MOST = 1000
"""Events that one question gives at the most, and one more that says that there are more."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One event. Units: ``at_s`` is Unix time."""

    at_s: float
    kind: str
    body: Mapping[str, Condition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Window:
    """Which events are asked for: since inclusive, until exclusive; no kinds means all."""

    since_s: float | None = None
    until_s: float | None = None
    kinds: tuple[str, ...] = ()
    limit: int = MOST


def insert(transaction: sqlite3.Connection, entries: Iterable[Entry]) -> None:
    """Write events in order; the caller commits."""
    transaction.executemany(
        "INSERT INTO events (at_s, kind, body) VALUES (?, ?, ?)",
        [
            (entry.at_s, entry.kind, json.dumps(entry.body, separators=(",", ":")))
            for entry in entries
        ],
    )


def within(connection: sqlite3.Connection, window: Window) -> list[Entry]:
    """Give the events of a window, newest first; of one moment the one written last."""
    where, values = [SOUND], list[float | str]()
    if window.since_s is not None:
        where.append("at_s >= ?")
        values.append(window.since_s)
    if window.until_s is not None:
        where.append("at_s < ?")
        values.append(window.until_s)
    if window.kinds:
        where.append(_among(window.kinds))
        values += window.kinds
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM events WHERE {' AND '.join(where)}"  # noqa: S608  # ours
        " ORDER BY at_s DESC, id DESC LIMIT ?",
        (*values, min(window.limit, MOST + 1)),
    )
    return [entry for row in rows if (entry := _entry(row)) is not None]


def last(connection: sqlite3.Connection, kinds: Sequence[str]) -> dict[str, Entry]:
    """Give the newest change of each kind, by order of writing: clocks are set back at times."""
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM events WHERE id IN"  # noqa: S608  # ours
        f" (SELECT max(id) FROM events WHERE {_among(kinds)} AND {SOUND}"
        " AND json_type(body, '$.new') = 'text' GROUP BY kind)",
        tuple(kinds),
    )
    return {entry.kind: entry for row in rows if (entry := _entry(row)) is not None}


def all_of(connection: sqlite3.Connection, kinds: Sequence[str]) -> list[Entry]:
    """Give every event of these kinds, in the order of writing."""
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM events"  # noqa: S608  # ours
        f" WHERE {_among(kinds)} AND {SOUND} ORDER BY id",
        tuple(kinds),
    )
    return [entry for row in rows if (entry := _entry(row)) is not None]


def numbered(
    connection: sqlite3.Connection, kinds: Sequence[str], after: int
) -> list[tuple[int, Entry]]:
    """Give the events of these kinds whose row number is beyond ``after``, with it, in order."""
    rows = connection.execute(
        f"SELECT id, {COLUMNS} FROM events"  # noqa: S608  # ours
        f" WHERE {_among(kinds)} AND id > ? AND {SOUND} ORDER BY id",
        (*kinds, after),
    )
    return [(row[0], entry) for row in rows if (entry := _entry(row[1:])) is not None]


def decisions(connection: sqlite3.Connection, after: int) -> list[Command]:
    """Give what people decided in rows beyond the number ``after``, in order."""
    rows = numbered(connection, commands.KINDS, after)
    found = (commands.understood(number, one.at_s, one.kind, one.body) for number, one in rows)
    return [command for command in found if command is not None]


def decide(transaction: sqlite3.Connection, command: Command, uid: int) -> Command:
    """Write what a person decided behind the newest run; gives it with its number and place."""
    (newest,) = transaction.execute("SELECT coalesce(max(id), 0) FROM runs").fetchone()
    placed = replace(command, after_run=newest)
    insert(transaction, [Entry(placed.at_s, placed.kind, {**placed.body(), "uid": uid})])
    (number,) = transaction.execute("SELECT max(id) FROM events").fetchone()
    return replace(placed, number=number)


def _among(kinds: Sequence[str]) -> str:
    return f"kind IN ({', '.join('?' * len(kinds))})"


def _entry(row: tuple[float, bytes, bytes]) -> Entry | None:
    """Read a row; None where its body is no object, as the body of every event is."""
    at_s, kind, body = row
    try:
        found = json.loads(body.decode(errors="replace"))
    except (ValueError, RecursionError):  # deeper, or a longer number, than SQLite minds
        return None
    if not isinstance(found, dict):
        return None
    plain = {_text(key): held for key, value in found.items() if (held := _plain(value)) is not _NO}
    return Entry(at_s, kind.decode(errors="replace"), plain)


_NO = object()


def _plain(value: object) -> Any:  # noqa: ANN401  # a condition, or ``_NO``
    if isinstance(value, str):
        return _text(value)
    fits = value is None or (isinstance(value, int | float) and math.isfinite(value))
    return value if fits else _NO


def _text(said: str) -> str:
    """Give a text that can be written: JSON can spell half a character."""
    return said.encode(errors="replace").decode()
