"""Rows of the table ``alerts``: one JSON document each.

Every function takes the open connection and lets SQLite's errors through; the store translates
them. An alert that begins again is a row of its own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import msgspec

from gpud.agent.state import statusdocument
from gpud.agent.state.statusdocument import ToldAlert

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable

    from gpud.core.alerts import Alert

MOST: Final = 1000
"""Alerts that one request gets; one more shows that there are more."""


def put(transaction: sqlite3.Connection, alerts: Iterable[Alert]) -> None:
    """Write alerts, each in place of what was written of it before; the caller commits."""
    documents = [statusdocument.alert(alert) for alert in alerts]
    transaction.executemany(
        "INSERT OR REPLACE INTO alerts (fingerprint, starts_s, updated_s, ends_s, body)"
        " VALUES (?, ?, ?, ?, ?)",
        [(d.fingerprint, d.starts_s, d.updated_s, d.ends_s, _body(d)) for d in documents],
    )


def end_others(
    transaction: sqlite3.Connection, firing: Collection[tuple[str, float]], now_s: float
) -> None:
    """End the rows that fire and are not among ``firing``: fingerprints and beginnings."""
    rows = transaction.execute("SELECT fingerprint, starts_s FROM alerts WHERE ends_s IS NULL")
    transaction.executemany(
        "UPDATE alerts SET ends_s = max(?1, starts_s), updated_s = max(?1, starts_s), body = CASE"
        " WHEN json_valid(body) THEN json_set(body, '$.ends_s', max(?1, starts_s),"
        " '$.updated_s', max(?1, starts_s), '$.firing', json('false')) ELSE body END"
        " WHERE fingerprint = ?2 AND starts_s = ?3",
        [(now_s, *row) for row in rows.fetchall() if tuple(row) not in firing],
    )


def within(connection: sqlite3.Connection, since_s: float, limit: int = MOST) -> list[ToldAlert]:
    """Return what fired at any time since then, the latest beginning first."""
    rows = connection.execute(
        "SELECT CAST(body AS BLOB) FROM alerts WHERE ends_s IS NULL OR ends_s >= ?"
        " ORDER BY starts_s DESC, fingerprint LIMIT ?",
        (since_s, min(limit, MOST + 1)),
    )
    return [alert for (body,) in rows if (alert := _read(body)) is not None]


def _body(document: ToldAlert) -> str:
    # Not msgspec's encoder: it refuses half a surrogate pair, which becomes "?" here.
    text = json.dumps(msgspec.to_builtins(document), ensure_ascii=False)
    return text.encode(errors="replace").decode()


def _read(body: bytes) -> ToldAlert | None:
    try:
        return msgspec.json.decode(body, type=ToldAlert)
    except msgspec.MsgspecError:
        return None
