"""What each sink was told, as one row of the history: the table ``states``, a JSON body.

Each function takes the open connection and lets SQLite's errors through; the store translates them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

NAME: Final = "delivery"


def kept(connection: sqlite3.Connection) -> dict[str, Any]:
    """Give what was kept, by sink; nothing where nothing is, or what is there is not readable."""
    row = connection.execute(
        "SELECT CAST(body AS BLOB) FROM states WHERE name = ?", (NAME,)
    ).fetchone()
    try:
        found = json.loads(row[0]) if row is not None else {}
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def keep(transaction: sqlite3.Connection, told: Mapping[str, Any], at_s: float) -> None:
    """Write it in place of what was there; the caller commits. ``at_s`` is Unix time."""
    transaction.execute(
        "INSERT OR REPLACE INTO states (name, upto_run, at_s, body) VALUES (?, 0, ?, ?)",
        (NAME, at_s, json.dumps(told, separators=(",", ":"))),
    )
