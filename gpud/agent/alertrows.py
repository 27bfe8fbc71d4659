"""What was told, as rows of the history: the table ``alerts``, one JSON body each.

Every function takes the open connection and lets SQLite's errors through; the store translates
them. An alert that begins again is a row of its own.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from gpud.core.ledger_state import body

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Mapping

    from gpud.core.alerts import Alert

MOST: Final = 1000
"""Alerts that one question gives at the most, and one more that says that there are more."""
SOUND: Final = "typeof(body) = 'text' AND json_valid(body)"
"""What every row has that was written here; a disk may give back others, and they are passed over.
"""


def put(transaction: sqlite3.Connection, alerts: Iterable[Alert]) -> None:
    """Write alerts in the place of what was written of them before; the caller commits."""
    transaction.executemany(
        "INSERT OR REPLACE INTO alerts (fingerprint, starts_s, updated_s, ends_s, body)"
        " VALUES (?, ?, ?, ?, ?)",
        [
            (one.fingerprint, one.starts_s, one.updated_s, one.ends_s, _json(body(one)))
            for one in alerts
        ],
    )


def end_others(
    transaction: sqlite3.Connection, firing: Collection[tuple[str, float]], now_s: float
) -> None:
    """End the rows that fire and that nobody knows of any more, all but ``firing``."""
    rows = transaction.execute(
        "SELECT fingerprint, starts_s, CAST(body AS BLOB) FROM alerts WHERE ends_s IS NULL"
    ).fetchall()
    for fingerprint, starts_s, held in rows:
        if (fingerprint, starts_s) in firing:
            continue
        ends_s = max(now_s, starts_s)
        found = _read(held) or {}
        ended = _json({**found, "ends_s": ends_s, "updated_s": ends_s, "firing": False})
        transaction.execute(
            "UPDATE alerts SET ends_s = ?, updated_s = ?, body = ?"
            " WHERE fingerprint = ? AND starts_s = ?",
            (ends_s, ends_s, ended, fingerprint, starts_s),
        )


def within(
    connection: sqlite3.Connection, since_s: float, limit: int = MOST
) -> list[dict[str, Any]]:
    """Give what fired at any time since then, what began last first."""
    rows = connection.execute(
        f"SELECT CAST(body AS BLOB) FROM alerts WHERE (ends_s IS NULL OR ends_s >= ?) AND {SOUND}"  # noqa: S608  # ours
        " ORDER BY starts_s DESC, fingerprint LIMIT ?",
        (since_s, min(limit, MOST + 1)),
    )
    told = (found for (held,) in rows if (found := _read(held)) is not None)
    return [
        one
        for one in told
        if isinstance(one.get("fingerprint"), str) and isinstance(one.get("starts_s"), int | float)
    ]


def _read(held: bytes) -> dict[str, Any] | None:
    try:
        found = _sendable(json.loads(held.decode(errors="replace")))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _sendable(value: Any) -> Any:  # noqa: ANN401  # plain data
    """Give what can be sent on: JSON can spell half a character, and more than a float holds."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_sendable(one) for one in value]
    if isinstance(value, dict):
        return {_sendable(name): _sendable(one) for name, one in value.items()}
    return value


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
