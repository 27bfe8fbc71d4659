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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpud.agent import reader
from gpud.agent.rolluprows import DRIVER, HOUR_S, VERSION
from gpud.agent.runrows import PROBES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping

CPU: Final = ""
"""In place of a GPU's UUID."""
FIGURES: Final = ("median", "p10", "p90", "p99", "minimum", "maximum")
ROLLUPS_SINCE: Final = 5
"""The schema whose hours may be without figures."""
RECENT: Final = 2000
"""Newest runs that are looked through for the GPUs there are."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows are asked for: since inclusive, until exclusive; none named means all."""

    since_s: float = -math.inf
    until_s: float = math.inf
    probes: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()  # UUIDs, and ``CPU``


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


class Thin(NamedTuple):
    """What a chart needs of one mode of a run, or of an hour: by the ten thousand, so no more.

    Units: as in ``Row``. ``n`` counts the unmarked runs, of a run itself 1 or 0. A figure may be
    anything that a disk makes of one.
    """

    at_s: float
    gpu: str | None
    mode: str
    version: int
    unit: str
    driver: str
    n: int
    marked: int
    median: float | None
    minimum: float | None
    maximum: float | None


def probes(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Name every probe that has runs or hours."""
    found = {name for (name,) in connection.execute(f"SELECT name FROM {PROBES}")}  # noqa: S608
    if reader.schema(connection) >= ROLLUPS_SINCE:
        found |= {name for (name,) in connection.execute("SELECT DISTINCT probe FROM rollups")}
    return tuple(sorted(found))


def gpus(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Name the GPUs that were seen, or were measured lately, by UUID."""
    rows = connection.execute(
        "SELECT gpu_uuid FROM (SELECT gpu_uuid FROM runs ORDER BY id DESC LIMIT ?)"
        " WHERE gpu_uuid IS NOT NULL UNION SELECT json_extract(body, '$.uuid') FROM events"
        " WHERE kind = 'gpu_seen' AND json_valid(body) ORDER BY 1",
        (RECENT,),
    )
    return tuple(uuid for (uuid,) in rows if isinstance(uuid, str))


def has_mode(connection: sqlite3.Connection, probe: str, mode: str) -> bool:
    """Say whether a probe had a mode in one of its newest runs, or in any hour."""
    held = connection.execute(
        "SELECT 1 FROM samples WHERE mode = ? AND run_id IN"
        " (SELECT id FROM runs WHERE probe = ? ORDER BY finished_s DESC LIMIT ?)",
        (mode, probe, RECENT),
    ).fetchone()
    if held is None and reader.schema(connection) >= ROLLUPS_SINCE:
        held = connection.execute(
            "SELECT 1 FROM rollups WHERE probe = ? AND mode = ? LIMIT 1", (probe, mode)
        ).fetchone()
    return held is not None


def raw_from_s(connection: sqlite3.Connection) -> float:
    """Say from when on the runs themselves are there; before, only hours are. Unix time.

    Minus infinity where none was deleted yet. The oldest hour may have lost some of its runs
    already: then its summary knows better.
    """
    if reader.schema(connection) < ROLLUPS_SINCE:
        return -math.inf
    (first_hour_s,) = connection.execute("SELECT min(hour_s) FROM rollups").fetchone()
    if first_hour_s is None:
        return -math.inf
    row = connection.execute("SELECT finished_s FROM runs ORDER BY id LIMIT 1").fetchone()
    if row is None:
        return math.inf
    if not _finite(row[0]):
        return -math.inf
    hour_s = float(math.floor(row[0] / HOUR_S) * HOUR_S)
    (summed,) = connection.execute(
        "SELECT total(n + flagged) FROM rollups WHERE hour_s = ?", (hour_s,)
    ).fetchone()
    (there,) = connection.execute(
        "SELECT count(*) FROM runs r JOIN samples s ON s.run_id = r.id"  # noqa: S608  # ours
        f" WHERE r.probe IN {PROBES} AND r.finished_s >= ? AND r.finished_s < ?"
        " AND r.failure IS NULL",
        (hour_s, hour_s + HOUR_S),
    ).fetchone()
    if summed > there:
        return hour_s + HOUR_S
    return hour_s if first_hour_s < hour_s else -math.inf


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
    where, values = _where(replace(wanted, probes=()))
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


def thin_runs(connection: sqlite3.Connection, wanted: Wanted) -> Iterator[Thin]:
    """Give the runs that brought figures, in no order."""
    where, values = _where(wanted)
    flags = "r.flags" if reader.schema(connection) > 1 else "'[]'"
    told = connection.execute(
        f"SELECT r.finished_s, r.gpu_uuid, s.mode, {VERSION}, s.unit, {DRIVER}, {flags} = '[]',"  # noqa: S608  # ours
        f" {flags} <> '[]', s.median, s.minimum, s.maximum"
        f" FROM runs r JOIN samples s ON s.run_id = r.id WHERE {where}",
        values,
    )
    return map(Thin._make, told)


def thin_hours(connection: sqlite3.Connection, wanted: Wanted, *, most_s: float) -> Iterator[Thin]:
    """Give the hours, in no order, then the runs after them, of ``most_s`` at the most."""
    last_s = -math.inf
    if reader.schema(connection) >= ROLLUPS_SINCE:
        where, values = _where_hours(wanted)
        told = connection.execute(
            "SELECT hour_s, nullif(gpu_uuid, ''), mode, version, unit, driver, n, flagged, median,"  # noqa: S608  # ours
            f" minimum, maximum FROM rollups WHERE {where}",
            values,
        )
        for hour in map(Thin._make, told):
            last_s = max(last_s, hour.at_s)
            yield hour
    since_s = max(wanted.since_s, last_s + HOUR_S, wanted.until_s - most_s)
    yield from thin_runs(connection, replace(wanted, since_s=since_s))


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
    where, values = _where(wanted)
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


def _where(wanted: Wanted) -> tuple[str, list[float | str]]:
    """Write what is wanted of runs ``r`` and samples ``s``; a run that failed has every mode."""
    where = ["typeof(r.finished_s) = 'real' AND abs(r.finished_s) < 9e15"]
    values: list[float | str] = []
    if wanted.since_s > -math.inf:
        where.append("r.finished_s >= ?")
        values.append(wanted.since_s)
    if wanted.until_s < math.inf:
        where.append("r.finished_s < ?")
        values.append(wanted.until_s)
    if wanted.probes:
        where.append(f"r.probe IN ({_marks(wanted.probes)})")
        values += wanted.probes
    if wanted.modes:
        where.append(f"(s.mode IN ({_marks(wanted.modes)}) OR s.mode IS NULL)")
        values += wanted.modes
    if wanted.gpus:
        of_cpu = "r.gpu_uuid IS NULL AND r.backend = 'cpu'" if CPU in wanted.gpus else "0"
        where.append(f"(r.gpu_uuid IN ({_marks(wanted.gpus)}) OR {of_cpu})")
        values += wanted.gpus
    return " AND ".join(where), values


def _where_hours(wanted: Wanted) -> tuple[str, list[float | str]]:
    """Write what is wanted of hours: each that has any part in the range."""
    where = ["hour_s > ? AND hour_s < ?"]
    values: list[float | str] = [
        max(wanted.since_s - HOUR_S, -9e15),
        min(wanted.until_s, 9e15),
    ]
    for column, names in (
        ("probe", wanted.probes),
        ("mode", wanted.modes),
        ("gpu_uuid", wanted.gpus),
    ):
        if names:
            where.append(f"{column} IN ({_marks(names)})")
            values += names
    return " AND ".join(where), values


def _hours(connection: sqlite3.Connection, wanted: Wanted, order: str, limit: int) -> Iterator[Row]:
    if reader.schema(connection) < ROLLUPS_SINCE or limit == 0:
        return
    where, values = _where_hours(wanted)
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


def _marks(names: tuple[str, ...]) -> str:
    return ", ".join("?" * len(names))
