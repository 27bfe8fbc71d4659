"""Rows for ``gpud history``: their selection, runs, and hours where the runs are deleted.

Each function takes the open connection, reads a bounded part, and passes on SQLite's errors. A
damaged row is skipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpud.agent.history import queries
from gpud.agent.history.records import Finite, Flags, RecordBody, typed
from gpud.agent.history.schema import CPU, FURTHEST_S, HOUR_S
from gpud.requests import RowLine

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

CONDITIONS: Final = {
    "driver_version": "driver_version",
    "cuda_version": "cuda_version",
    "nvml_version": "nvml_version",
    "kernel": "kernel",
    "wsl_version": "wsl_version",
    "windows_build": "windows_build",
    "on_ac": "before.ac",
    "utilization_gpu_ratio": "before.utilization_gpu_ratio",
    "memory_used_bytes": "before.memory_used_bytes",
    "clock_sm_hertz": "after.clock_sm_hertz",
    "clock_memory_hertz": "after.clock_memory_hertz",
    "pstate": "after.pstate",
    "temperature_celsius": "after.temperature_celsius",
    "power_watts": "after.power_watts",
    "power_limit_watts": "after.power_limit_watts",
    "throttle_reasons": "after.throttle_reasons",
}
"""The column of each condition of a run, and its name there."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RUNS: Final = (
    "SELECT r.id, r.finished_s, r.gpu_uuid, r.backend, r.probe, s.mode, s.unit, s.n, s.median,"
    " s.p10, s.p90, s.p99, s.minimum, s.maximum, r.flags, r.duration_s, r.boot_id, r.failure,"
    " r.conditions FROM runs r LEFT JOIN samples s ON s.run_id = r.id"
)
_HOURS: Final = (
    "SELECT hour_s, nullif(gpu_uuid, ''), probe, version, mode, unit, n, median, p10, p90, minimum,"
    " maximum, flagged, nullif(driver, '') FROM rollups"
)


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows to read: since inclusive, until exclusive; an empty tuple selects all."""

    since_s: float = -math.inf
    until_s: float = math.inf
    probes: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()  # UUIDs, and ``CPU``

    @property
    def runs(self) -> tuple[str, list[float | str]]:
        """The condition on runs ``r`` and samples ``s``; a failed run has every mode."""
        where = ["r.finished_s >= ? AND r.finished_s < ?"]
        values: list[float | str] = [
            max(self.since_s, -FURTHEST_S),
            min(self.until_s, FURTHEST_S),
        ]
        if self.probes:
            where.append(f"r.probe IN ({_marks(self.probes)})")
            values += self.probes
        if self.modes:
            where.append(f"(s.mode IN ({_marks(self.modes)}) OR s.mode IS NULL)")
            values += self.modes
        if self.gpus:
            of_cpu = "r.gpu_uuid IS NULL AND r.backend = 'cpu'" if CPU in self.gpus else "0"
            where.append(f"(r.gpu_uuid IN ({_marks(self.gpus)}) OR {of_cpu})")
            values += self.gpus
        return " AND ".join(where), values

    @property
    def hours(self) -> tuple[str, list[float | str]]:
        """The condition on hours: each that has any part in the range."""
        where = ["hour_s > ? AND hour_s < ?"]
        values: list[float | str] = [
            max(self.since_s - HOUR_S, -FURTHEST_S),
            min(self.until_s, FURTHEST_S),
        ]
        columns = {"probe": self.probes, "mode": self.modes, "gpu_uuid": self.gpus}
        for column, names in columns.items():
            if names:
                where.append(f"{column} IN ({_marks(names)})")
                values += names
        return " AND ".join(where), values


def _marks(names: tuple[str, ...]) -> str:
    return ", ".join("?" * len(names))


class _Run(NamedTuple):
    """One mode of one run, or a run without figures; but for the ends the fields of ``RowLine``."""

    number: int
    unix_s: Finite
    gpu_uuid: str | None
    backend: str
    probe: str
    mode: str | None
    unit: str | None
    n: int | None
    median: Finite | None
    p10: Finite | None
    p90: Finite | None
    p99: Finite | None
    minimum: Finite | None
    maximum: Finite | None
    flags: Flags
    duration_s: Finite
    boot_id: str
    failure: RecordBody | None
    conditions: RecordBody


class _Hour(NamedTuple):
    """One mode of an hour, with the fields of ``RowLine``."""

    unix_s: Finite
    gpu_uuid: str | None
    probe: str
    probe_version: int
    mode: str
    unit: str
    n: int
    median: Finite | None
    p10: Finite | None
    p90: Finite | None
    minimum: Finite | None
    maximum: Finite | None
    flagged_runs: int
    driver_version: str | None


def newest(connection: sqlite3.Connection, selection: Selection, limit: int) -> list[RowLine]:
    """Return the rows written last, the newest last; hours stand in for runs that are deleted."""
    from_s = raw_from_s(connection)
    where, values = replace(selection, since_s=max(selection.since_s, from_s)).runs
    rows = connection.execute(f"{_RUNS} WHERE {where} ORDER BY r.id DESC, s.mode DESC", values)
    lines = list(islice(_run_lines(rows), limit))
    until_s = min(selection.until_s, from_s)
    hours = _hours(connection, replace(selection, until_s=until_s), "DESC", limit - len(lines))
    return [*lines, *hours][::-1]


def runs_after(
    connection: sqlite3.Connection, selection: Selection, after_run: int | None, most_runs: int
) -> tuple[list[RowLine], int | None]:
    """Return the rows of the next runs in the order of writing, and the number of the last.

    ``after_run`` is such a number, None at first; None is returned where there are no more. Runs
    that are not selected count as well, so an answer may be empty and not the last.
    """
    if after_run is None:
        open_ended = selection.since_s == -math.inf
        after_run = 0 if open_ended else queries.first_run(connection, selection.since_s)
    (last,) = connection.execute(
        "SELECT max(id) FROM (SELECT id FROM runs WHERE id > ? ORDER BY id LIMIT ?)",
        (after_run, most_runs),
    ).fetchone()
    if last is None:
        return [], None
    where, values = selection.runs
    rows = connection.execute(
        f"{_RUNS} WHERE r.id > ? AND r.id <= ? AND {where} ORDER BY r.id, s.mode",
        (after_run, last, *values),
    )
    return list(_run_lines(rows)), last


def hours_after(
    connection: sqlite3.Connection, selection: Selection, after_s: float | None, most_s: float
) -> tuple[list[RowLine], float | None]:
    """Return the next hours, ``most_s`` of time from the first one, and where to go on; None: end.

    ``after_s`` is where to go on, None at first.
    """
    if after_s is None:
        after_s = max(selection.since_s - HOUR_S, -FURTHEST_S)
    (first,) = connection.execute(
        "SELECT min(hour_s) FROM rollups WHERE hour_s > ?", (after_s,)
    ).fetchone()
    if first is None or first >= selection.until_s:
        return [], None
    until_s = min(first + most_s, selection.until_s)
    part = replace(selection, since_s=max(selection.since_s, first), until_s=until_s)
    return list(_hours(connection, part, "ASC", -1)), until_s - 1


def raw_from_s(connection: sqlite3.Connection) -> float:
    """Return from when on (Unix time) the runs themselves are kept; before, only hours are.

    Minus infinity where none was deleted yet. The hour of the oldest run that is left may have lost
    some of its runs: its summary knows better.
    """
    (first_hour_s,) = connection.execute("SELECT min(hour_s) FROM rollups").fetchone()
    if first_hour_s is None:
        return -math.inf
    row = connection.execute("SELECT finished_s FROM runs ORDER BY id LIMIT 1").fetchone()
    if row is None:
        return math.inf
    for (first_s,) in typed([row], tuple[Finite]):
        hour_s = float(first_s // HOUR_S * HOUR_S)
        return hour_s + HOUR_S if first_hour_s < hour_s else -math.inf
    return -math.inf


def rfc_3339(at_s: float) -> str | None:
    """Return a moment in UTC, to the millisecond; None for a year that has no such name."""
    try:
        moment = _EPOCH + timedelta(seconds=at_s)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _run_lines(rows: Iterable[tuple[Any, ...]]) -> Iterator[RowLine]:
    for run in typed(rows, _Run):
        if run.mode is None and run.failure is None:
            continue
        fields = run._asdict()
        conditions, failure = fields.pop("conditions"), fields.pop("failure") or {}
        version = conditions.get("probe_version")
        del fields["number"]
        yield RowLine(
            time=rfc_3339(run.unix_s),
            kind="run",
            probe_version=version if type(version) is int else None,
            failure=None if run.failure is None else failure.get("reason", "unknown"),
            failure_detail=failure.get("detail"),
            **{column: conditions.get(name) for column, name in CONDITIONS.items()},
            **fields,
        )


def _hours(
    connection: sqlite3.Connection, selection: Selection, order: str, limit: int
) -> Iterator[RowLine]:
    where, values = selection.hours
    rows = connection.execute(
        f"{_HOURS} WHERE {where} ORDER BY hour_s {order}, gpu_uuid {order}, probe {order},"
        f" mode {order}, version {order}, driver {order} LIMIT ?",
        (*values, limit),
    )
    for hour in typed(rows, _Hour):
        yield RowLine(time=rfc_3339(hour.unix_s), kind="hour", **hour._asdict())
