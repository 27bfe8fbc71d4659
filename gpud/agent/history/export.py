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
from gpud.agent.history.schema import CPU, FURTHEST_S, HOUR_S, among

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from gpud.requests import Cells

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
COLUMNS: Final = (
    *("time", "unix_s", "kind", "gpu_uuid", "backend", "probe", "probe_version", "mode", "unit"),
    *("n", "median", "p10", "p90", "p99", "minimum", "maximum", "flags", "flagged_runs"),
    *("failure", "failure_detail", "duration_s", "boot_id", *CONDITIONS),
)
"""Columns of an export."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RUNS: Final = (
    "SELECT r.finished_s, 'run', r.gpu_uuid, r.backend, r.probe, s.mode, s.unit, s.n, s.median,"
    " s.p10, s.p90, s.p99, s.minimum, s.maximum, r.flags, NULL, r.failure, r.duration_s, r.boot_id,"
    " r.conditions FROM runs r LEFT JOIN samples s ON s.run_id = r.id"
)
_HOURS: Final = (
    "SELECT hour_s, 'hour', nullif(gpu_uuid, ''), NULL, probe, mode, unit, n, median,"
    " p10, p90, NULL, minimum, maximum, '[]', flagged, NULL, NULL, NULL,"
    " json_object('probe_version', version, 'driver_version', nullif(driver, '')) FROM rollups"
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
        modes = f"({among('s.mode', self.modes)} OR s.mode IS NULL)" if self.modes else "1"
        of_cpu = "r.gpu_uuid IS NULL AND r.backend = 'cpu'" if CPU in self.gpus else "0"
        where = (
            f"r.finished_s >= ? AND r.finished_s < ? AND {among('r.probe', self.probes)}"
            f" AND {modes} AND ({among('r.gpu_uuid', self.gpus)} OR {of_cpu})"
        )
        ends = max(self.since_s, -FURTHEST_S), min(self.until_s, FURTHEST_S)
        return where, [*ends, *self.probes, *self.modes, *self.gpus]

    @property
    def hours(self) -> tuple[str, list[float | str]]:
        """The condition on hours: each that has any part in the range."""
        where = (
            f"hour_s > ? AND hour_s < ? AND {among('probe', self.probes)}"
            f" AND {among('mode', self.modes)} AND {among('gpu_uuid', self.gpus)}"
        )
        ends = max(self.since_s - HOUR_S, -FURTHEST_S), min(self.until_s, FURTHEST_S)
        return where, [*ends, *self.probes, *self.modes, *self.gpus]


class Row(NamedTuple):
    """One mode of one run or of one hour, or a run without figures."""

    unix_s: Finite
    kind: str
    gpu_uuid: str | None
    backend: str | None
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
    flagged_runs: int | None
    failure: RecordBody | None
    duration_s: Finite | None
    boot_id: str | None
    conditions: RecordBody


def newest(connection: sqlite3.Connection, selection: Selection, limit: int) -> list[Row]:
    """Return the rows written last, the newest last; hours stand in for runs that are deleted."""
    from_s = raw_from_s(connection)
    where, values = replace(selection, since_s=max(selection.since_s, from_s)).runs
    rows = connection.execute(f"{_RUNS} WHERE {where} ORDER BY r.id DESC, s.mode DESC", values)
    runs = list(islice(_with_figures(rows), limit))
    until_s = min(selection.until_s, from_s)
    hours = _hours(connection, replace(selection, until_s=until_s), "DESC", limit - len(runs))
    return [*runs, *hours][::-1]


def runs_after(
    connection: sqlite3.Connection, selection: Selection, after_run: int | None, most_runs: int
) -> tuple[list[Row], int | None]:
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
    return list(_with_figures(rows)), last


def hours_after(
    connection: sqlite3.Connection, selection: Selection, after_s: float | None, most_s: float
) -> tuple[list[Row], float | None]:
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


def cells(row: Row) -> Cells:
    """Return the cells of a row, by ``COLUMNS``."""
    version, failure = row.conditions.get("probe_version"), row.failure or RecordBody()
    values = row._asdict() | {
        "time": rfc_3339(row.unix_s),
        "probe_version": version if type(version) is int else None,
        "failure": None if row.failure is None else failure.get("reason", "unknown"),
        "failure_detail": failure.get("detail"),
        **{column: row.conditions.get(name) for column, name in CONDITIONS.items()},
    }
    return tuple(values[column] for column in COLUMNS)


def rfc_3339(at_s: float) -> str | None:
    """Return a moment in UTC, to the millisecond; None for a year that has no such name."""
    try:
        moment = _EPOCH + timedelta(seconds=at_s)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _with_figures(rows: Iterable[tuple[Any, ...]]) -> Iterator[Row]:
    """Yield the rows of runs that brought figures, or a failure."""
    return (row for row in typed(rows, Row) if row.mode is not None or row.failure is not None)


def _hours(
    connection: sqlite3.Connection, selection: Selection, order: str, limit: int
) -> Iterator[Row]:
    where, values = selection.hours
    rows = connection.execute(
        f"{_HOURS} WHERE {where} ORDER BY hour_s {order}, gpu_uuid {order}, probe {order},"
        f" mode {order}, version {order}, driver {order} LIMIT ?",
        (*values, limit),
    )
    return typed(rows, Row)
