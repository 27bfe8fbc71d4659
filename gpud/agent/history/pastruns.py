"""Runs of the history, as the detectors take them in: in the order in which they were written.

Every function takes the open connection and lets SQLite's errors through; the store translates
them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from gpud.agent.history import historyrows
from gpud.agent.history.rows import Finite, Flags, Object, typed
from gpud.agent.regression.streams import Figures
from gpud.core.sample import Flag, Unit

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from gpud.core.sample import Condition
    from gpud.core.stream_key import StreamKey

_UNFLAGGED: Final = ("[]", "[]")
_UNFLAGGED_OR_SLOW: Final = ("[]", f'["{Flag.LOW.value}"]')
"""As ``flags`` is written."""


class PastRun(NamedTuple):
    """A good run, and its number in the history."""

    number: int
    figures: Figures


@dataclass(frozen=True, slots=True)
class Sides:
    """Conditions of the runs on either side of a change."""

    before: Sequence[Mapping[str, Condition]] = ()
    after: Sequence[Mapping[str, Condition]] = ()


class _Run(NamedTuple):
    number: int
    finished_s: Finite
    probe: str
    backend: str
    gpu: str | None
    conditions: Object
    flags: Flags


class _Median(NamedTuple):
    run: int
    mode: str
    unit: Unit
    median: Finite


def newest(connection: sqlite3.Connection) -> int:
    """Return the number of the run that was written last, 0 for none."""
    (number,) = connection.execute("SELECT max(id) FROM runs").fetchone()
    return number or 0


def first_within(connection: sqlite3.Connection, upto: int, span_s: float) -> int:
    """Return the number of a run after which those of the ``span_s`` before run ``upto`` come."""
    last = connection.execute(
        "SELECT finished_s FROM runs WHERE id <= ? ORDER BY id DESC LIMIT 1", (upto,)
    )
    for (finished_s,) in typed(last, tuple[Finite]):
        return min(upto, historyrows.first_run(connection, finished_s - span_s))
    return 0


def behind(
    connection: sqlite3.Connection, after: int, upto: int, limit: int
) -> tuple[list[PastRun], int]:
    """Return the good runs after one number and up to another, ``limit`` of them at the most.

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
    for one in typed(samples, _Median):
        medians[one.run].append(one[1:])
    runs = []
    for run in typed(rows, _Run):
        figures = tuple(sorted(medians[run.number]))
        basics = run.probe, run.backend, run.gpu, run.finished_s
        runs.append(PastRun(run.number, Figures(*basics, figures, run.conditions, run.flags)))
    return runs, reached


def around(
    connection: sqlite3.Connection,
    stream: StreamKey,
    since_s: float,
    most: int,
    *,
    slow: bool = False,
) -> Sides:
    """Return the conditions of a stream's last good runs before a moment, and of the first since.

    Units: ``since_s`` is Unix time. Either side has at most ``most``. With ``slow`` those of the
    slow power state count too: where it is these that there are more of, they know why.
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
        conditions = [body for (body,) in typed(rows, tuple[Object])]
        sides.append(
            [one for one in conditions if (one.get("after.ac") is False) is stream.on_battery]
        )
    return Sides(*sides)
