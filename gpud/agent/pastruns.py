"""Runs of the history, as the detectors take them in: in the order in which they were written.

Every function takes the open connection and lets SQLite's errors through; the store translates
them. A row that a damaged disk gives back is passed over.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpud.core.sample import Flag, Unit
from gpud.core.streams import Figures

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from gpud.core.sample import Condition
    from gpud.core.streams import StreamKey

_UNITS: Final = {unit.value: unit for unit in Unit}
_FLAGS: Final = {flag.value: flag for flag in Flag}
_JUDGED: Final = ("[]", "[]")
_JUDGED_OR_SLOW: Final = ("[]", f'["{Flag.LOW.value}"]')
"""As ``flags`` is written."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A good run, and its number in the history."""

    number: int
    figures: Figures


@dataclass(frozen=True, slots=True)
class Sides:
    """Conditions of the runs on either side of a change."""

    before: Sequence[Mapping[str, Condition]] = ()
    after: Sequence[Mapping[str, Condition]] = ()


def newest(connection: sqlite3.Connection) -> int:
    """Give the number of the run that was written last, 0 for none."""
    row = connection.execute("SELECT max(id) FROM runs").fetchone()
    return row[0] or 0


def first_within(connection: sqlite3.Connection, upto: int, span_s: float) -> int:
    """Give the number of a run after which those of the ``span_s`` before run ``upto`` come.

    Found by halving, because numbers and times grow together: where a clock was set the span is
    another one, which does no harm.
    """
    low = connection.execute("SELECT min(id) FROM runs").fetchone()[0] or 0
    last_s = _finished_s(connection, upto)
    if not low or last_s is None:
        return 0
    low, high = low - 1, upto
    while high - low > 1:
        middle = (low + high) // 2
        at_s = _finished_s(connection, middle)
        if at_s is None or at_s < last_s - span_s:
            low = middle
        else:
            high = middle
    return low


def behind(
    connection: sqlite3.Connection, after: int, upto: int, limit: int
) -> tuple[list[PastRun], int]:
    """Give the good runs after one number and up to another, at most about ``limit`` of them.

    Gives the number with which to go on as well: ``upto`` where that was all.
    """
    rows = connection.execute(
        "SELECT id, finished_s, CAST(probe AS BLOB), backend, CAST(gpu_uuid AS BLOB),"
        " CAST(conditions AS BLOB), CAST(flags AS BLOB), failure IS NULL FROM runs"
        " WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
        (after, upto, limit),
    ).fetchall()
    reached = rows[-1][0] if len(rows) == limit else upto
    medians = _medians(connection, after, reached)
    found = []
    for number, finished_s, probe, backend, gpu, conditions, flags, good in rows:
        if not good or type(finished_s) is not float:
            continue
        figures = Figures(
            _text(probe),
            str(backend),
            None if gpu is None else _text(gpu),
            finished_s,
            tuple(sorted(medians[number])),
            _object(conditions),
            _flags(flags),
        )
        found.append(PastRun(number, figures))
    return found, reached


def around(
    connection: sqlite3.Connection,
    stream: StreamKey,
    since_s: float,
    most: int,
    *,
    slow: bool = False,
) -> Sides:
    """Give the conditions of a stream's last good runs before a moment, and of the first since.

    Units: ``since_s`` is Unix time. Either side has at most ``most``. With ``slow`` those of the
    slow power state count too: where it is these that there are more of, they know why.
    """
    kept = _JUDGED_OR_SLOW if slow else _JUDGED
    found = []
    for order, compared in (("DESC", "<"), ("ASC", ">=")):
        rows = connection.execute(
            "SELECT CAST(conditions AS BLOB) FROM runs WHERE probe = ? AND gpu_uuid IS ?"  # noqa: S608  # ours
            f" AND failure IS NULL AND flags IN (?, ?) AND finished_s {compared} ?"
            f" ORDER BY finished_s {order} LIMIT ?",
            (stream.probe, stream.gpu, *kept, since_s, most),
        )
        said = [_object(body) for (body,) in rows]
        found.append([one for one in said if (one.get("after.ac") is False) is stream.on_battery])
    return Sides(*found)


def _medians(
    connection: sqlite3.Connection, after: int, upto: int
) -> defaultdict[int, list[tuple[str, Unit, float]]]:
    found: defaultdict[int, list[tuple[str, Unit, float]]] = defaultdict(list)
    rows = connection.execute(
        "SELECT run_id, CAST(mode AS BLOB), unit, median FROM samples"
        " WHERE run_id > ? AND run_id <= ?",
        (after, upto),
    )
    for run, mode, unit, median in rows:
        if unit in _UNITS and type(median) is float:
            found[run].append((_text(mode), _UNITS[unit], median))
    return found


def _finished_s(connection: sqlite3.Connection, number: int) -> float | None:
    """Give when a run ended; of a number that is gone, the next one that is there."""
    row = connection.execute(
        "SELECT finished_s FROM runs WHERE id >= ? ORDER BY id LIMIT 1", (number,)
    ).fetchone()
    return row[0] if row is not None and type(row[0]) is float else None


def _object(body: bytes) -> dict[str, Any]:
    found = _json(body)
    return found if isinstance(found, dict) else {}


def _flags(body: bytes) -> tuple[Flag, ...]:
    found = _json(body)
    said: Iterable[Any] = found if isinstance(found, list) else ()
    return tuple(_FLAGS[word] for word in said if isinstance(word, str) and word in _FLAGS)


def _json(body: bytes) -> Any:  # noqa: ANN401  # whatever is there
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _text(said: bytes) -> str:
    return said.decode(errors="replace")
