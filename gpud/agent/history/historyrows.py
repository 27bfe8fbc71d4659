"""What was measured, as somebody asks for it: runs, and hours where the runs are deleted.

Every function takes a connection and only reads. What a disk may have turned into something else
is passed over or left out; nothing here fails because of one row.
"""

from __future__ import annotations

import heapq
import json
import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from gpud.agent.history import reader
from gpud.agent.history.historyscope import ROLLUPS_SINCE, probes, raw_from_s
from gpud.agent.history.runrows import PROBES
from gpud.agent.history.wanted import hours_sql, runs_sql

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping

    from gpud.agent.history.wanted import Wanted

FIGURES: Final = ("median", "p10", "p90", "p99", "minimum", "maximum")


@dataclass(frozen=True, slots=True)
class Row:
    """One mode of one run, a run without figures, or one mode of an hour.

    Units: ``at_s`` is Unix time, of an hour its beginning; figures are in ``unit``. ``n`` counts
    what was timed in a run, and the unmarked runs of an hour: its median, p10 and p90 are those of
    their medians, its ends those of all they timed.
    """

    at_s: float
    hourly: bool
    gpu: str | None  # None: the CPU, or a run that failed before it saw the GPU
    probe: str
    version: int | None = None
    mode: str | None = None
    unit: str | None = None
    n: int | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    flagged: int = 0  # marked runs of an hour
    failure: Mapping[str, Any] | None = None
    backend: str | None = None
    duration_s: float | None = None
    boot_id: str | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    run: int = 0  # its number, in the order of writing


def newest(connection: sqlite3.Connection, wanted: Wanted, limit: int) -> list[Row]:
    """Give the newest rows, the newest last; hours stand in for runs that are deleted."""
    from_s = raw_from_s(connection)
    found: list[Row] = []
    since_s = max(wanted.since_s, from_s)
    for row in runs_backwards(connection, replace(wanted, since_s=since_s)):
        found.append(row)
        if len(found) == limit:
            return found[::-1]
    until_s = min(wanted.until_s, from_s)
    hours = _hours(connection, replace(wanted, until_s=until_s), "DESC", limit - len(found))
    return [*found, *hours][::-1]


def runs_backwards(connection: sqlite3.Connection, wanted: Wanted) -> Iterator[Row]:
    """Go back in time: the index leads to the newest runs of each probe, and no further."""
    where, values = runs_sql(replace(wanted, probes=()))
    select = _select(connection)
    names = wanted.probes or probes(connection)
    each = (
        connection.execute(
            f"{select} WHERE r.probe = ? AND {where} ORDER BY r.finished_s DESC, r.id DESC,"
            " s.mode DESC",
            (name, *values),
        )
        for name in names
    )
    merged = heapq.merge(*each, key=itemgetter(1, 0), reverse=True)  # by time, then number
    return (row for told in merged if (row := _run(told)) is not None)


def runs_after(
    connection: sqlite3.Connection, wanted: Wanted, *, after_run: int, most_runs: int
) -> tuple[list[Row], int | None]:
    """Give the rows of the next runs in the order of writing, and the last of those runs.

    None for it: there are no more. Runs that are not wanted count as well, so an answer may be
    empty and not the last.
    """
    (last,) = connection.execute(
        "SELECT max(id) FROM (SELECT id FROM runs WHERE id > ? ORDER BY id LIMIT ?)",
        (after_run, most_runs),
    ).fetchone()
    if last is None:
        return [], None
    where, values = runs_sql(wanted)
    cursor = connection.execute(
        f"{_select(connection)} WHERE r.id > ? AND r.id <= ? AND {where} ORDER BY r.id, s.mode",
        (after_run, last, *values),
    )
    return [row for told in cursor if (row := _run(told)) is not None], last


def first_run(connection: sqlite3.Connection, since_s: float) -> int:
    """Give the number before that of the run written first among those since ``since_s``."""
    (first,) = connection.execute(
        f"SELECT min(id) FROM runs WHERE probe IN {PROBES} AND finished_s >= ?",  # noqa: S608
        (since_s,),
    ).fetchone()
    return 2**63 - 1 if first is None else first - 1


def hours_after(
    connection: sqlite3.Connection, wanted: Wanted, *, after_s: float, most_s: float
) -> tuple[list[Row], float | None]:
    """Give the next hours, ``most_s`` of time from the first one, and where to go on; None: end."""
    if reader.schema(connection) < ROLLUPS_SINCE:
        return [], None
    (first,) = connection.execute(
        "SELECT min(hour_s) FROM rollups WHERE hour_s > ?", (after_s,)
    ).fetchone()
    if first is None or first >= wanted.until_s:
        return [], None
    until_s = min(first + most_s, wanted.until_s)
    part = replace(wanted, since_s=max(wanted.since_s, first), until_s=until_s)
    return list(_hours(connection, part, "ASC", -1)), until_s - 1


def _select(connection: sqlite3.Connection) -> str:
    flags = "r.flags" if reader.schema(connection) > 1 else "'[]'"
    return (
        "SELECT r.id, r.finished_s, r.gpu_uuid, r.probe, r.backend, r.duration_s, r.boot_id,"  # noqa: S608  # ours
        f" r.failure, r.conditions, {flags}, s.mode, s.unit, s.n, s.median, s.p10, s.p90, s.p99,"
        " s.minimum, s.maximum FROM runs r LEFT JOIN samples s ON s.run_id = r.id"
    )


def _hours(connection: sqlite3.Connection, wanted: Wanted, order: str, limit: int) -> Iterator[Row]:
    if reader.schema(connection) < ROLLUPS_SINCE or limit == 0:
        return
    where, values = hours_sql(wanted)
    told = connection.execute(
        "SELECT hour_s, gpu_uuid, probe, mode, version, driver, unit, n, flagged, median, p10, p90,"  # noqa: S608  # ours
        f" NULL, minimum, maximum FROM rollups WHERE {where} ORDER BY hour_s {order},"
        f" gpu_uuid {order}, probe {order}, mode {order}, version {order}, driver {order} LIMIT ?",
        (*values, limit),
    )
    for at_s, gpu, probe, mode, version, driver, unit, n, flagged, *figures in told:
        yield Row(
            float(at_s),
            hourly=True,
            gpu=gpu or None,
            probe=probe,
            version=version,
            mode=mode,
            unit=unit,
            n=n,
            figures=_known(figures),
            flagged=flagged,
            conditions={"driver_version": driver} if driver else {},
        )


def _run(told: tuple[Any, ...]) -> Row | None:
    run, at_s, gpu, probe, backend, duration_s, boot_id, failure, conditions, flags, *sample = told
    mode, unit, n, *figures = sample
    if mode is None and failure is None:
        return None
    known = _object(conditions)
    version = known.get("probe_version")
    return Row(
        at_s,
        hourly=False,
        gpu=gpu,
        probe=probe,
        version=version if type(version) is int else None,
        mode=mode,
        unit=unit,
        n=n,
        figures=_known(figures),
        flags=() if flags == "[]" else _words(flags),
        failure=None if failure is None else _object(failure),
        backend=backend,
        duration_s=duration_s if _finite(duration_s) else None,
        boot_id=boot_id,
        conditions=known,
        run=run,
    )


def _known(figures: list[Any]) -> dict[str, float]:
    return {name: figure for name, figure in zip(FIGURES, figures, strict=True) if _finite(figure)}


def _finite(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


@lru_cache(maxsize=64)  # the modes of a run come one after the other
def _object(text: object) -> dict[str, Any]:
    found = _decoded(text)
    return found if isinstance(found, dict) else {}


def _words(text: object) -> tuple[str, ...]:
    found = _decoded(text)
    return tuple(word for word in found if isinstance(word, str)) if isinstance(found, list) else ()


def _decoded(text: object) -> Any:  # noqa: ANN401  # whatever JSON there is
    """Read JSON into what can be written again; None for what is none."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
        if isinstance(text, str) and "\\ud" in text.lower():  # JSON can spell half a character
            found = json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return found
