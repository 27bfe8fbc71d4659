"""What happened, as rows of the history: the table ``events``, one JSON body each.

Every function takes the open connection and lets SQLite's errors through; the store translates
them. Nothing is deleted here: whoever does must leave the last row of each kind, for it says what
was known, and the rows of ``gpu_seen`` and ``gpu_forgotten``, for they say which GPUs to expect.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from gpud.core.sample import Condition

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
    where, values = ["json_valid(body)"], list[float | str]()
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
        f"SELECT at_s, kind, body FROM events WHERE {' AND '.join(where)}"  # noqa: S608  # ours
        " ORDER BY at_s DESC, id DESC LIMIT ?",
        (*values, min(window.limit, MOST + 1)),
    )
    return [_entry(row) for row in rows]


def last(connection: sqlite3.Connection, kinds: Sequence[str]) -> dict[str, Entry]:
    """Give the newest event of each kind, by order of writing: clocks are set back at times."""
    rows = connection.execute(
        "SELECT at_s, kind, body FROM events WHERE id IN"  # noqa: S608  # ours
        f" (SELECT max(id) FROM events WHERE {_among(kinds)} AND json_valid(body) GROUP BY kind)",
        tuple(kinds),
    )
    return {entry.kind: entry for entry in map(_entry, rows)}


def all_of(connection: sqlite3.Connection, kinds: Sequence[str]) -> list[Entry]:
    """Give every event of these kinds, in the order of writing."""
    rows = connection.execute(
        "SELECT at_s, kind, body FROM events"  # noqa: S608  # ours
        f" WHERE {_among(kinds)} AND json_valid(body) ORDER BY id",
        tuple(kinds),
    )
    return [_entry(row) for row in rows]


def _among(kinds: Sequence[str]) -> str:
    return f"kind IN ({', '.join('?' * len(kinds))})"


def _entry(row: tuple[float, str, str]) -> Entry:
    at_s, kind, body = row
    found = json.loads(body)
    return Entry(at_s, kind, found if isinstance(found, dict) else {})
