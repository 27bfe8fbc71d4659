"""Telemetry over time: a row of each minute and GPU, made of its samples, and one of each hour.

An hour's row is made of the minutes that are there, in the transaction that writes one of them: no
minute is deleted before it is part of its hour, whatever the clock said. Each function takes the
open connection, skips damaged rows and passes on SQLite's errors.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from gpud.agent.history import reader
from gpud.agent.history.charts import DIGITS, PATIENCE_S, check_gpus
from gpud.agent.history.export import rfc_3339
from gpud.agent.history.records import Finite, typed
from gpud.agent.history.schema import FURTHEST_S, HOUR_S, MINUTE_S, among
from gpud.agent.telemetry.fields import THROTTLE_REASONS, UNKNOWN_REASON
from gpud.core.sample import SCHEMA_VERSION

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from gpud.agent.history.charts import Steps
    from gpud.agent.history.export import Selection
    from gpud.agent.state.snapshot import Snapshot
    from gpud.requests import Cells

GAUGES: Final = (
    "temperature_celsius",
    "power_watts",
    "clock_sm_hertz",
    "clock_memory_hertz",
    "utilization_gpu_ratio",
    "memory_used_bytes",
)
"""Fields of telemetry that are kept, each with the columns of ``PARTS``."""
PARTS: Final = ("mean", "minimum", "maximum")
REASONS: Final = (*THROTTLE_REASONS, UNKNOWN_REASON)
FIGURES: Final = (
    *(f"{gauge}_{part}" for gauge in GAUGES for part in PARTS),
    *(f"throttle_{reason}_ratio" for reason in REASONS),
)
"""Columns of figures; the share of the samples in which a reason was in force is the last kind."""
COLUMNS: Final = ("time", "unix_s", "kind", "gpu_uuid", "n", *FIGURES)
"""Columns of an export."""
KINDS: Final = {MINUTE_S: "minute", HOUR_S: "hour"}
SLICE: Final = 500
"""Rows that one piece deletes: some 5 ms."""

_MERGED: Final = ", ".join(
    f"{ {'minimum': 'min', 'maximum': 'max'}.get(name.rpartition('_')[2], 'avg') }({name})"
    for name in FIGURES
)
"""The figures of several rows: ends are the ends of all, the rest is the mean of the rows."""
_UPSERT: Final = (
    " ON CONFLICT DO UPDATE SET n = excluded.n, "
    + ", ".join(f"{name} = excluded.{name}" for name in FIGURES)
    + " WHERE excluded.n >= n"
)
"""What has more samples stays: an agent begins and ends within a minute, old minutes are gone."""
_MINUTE: Final = f"INSERT INTO telemetry VALUES (?, ?, ?, ?{', ?' * len(FIGURES)}){_UPSERT}"  # noqa: S608
_HOUR: Final = (
    f"INSERT INTO telemetry SELECT {HOUR_S}, ?, gpu_uuid, sum(n), {_MERGED} FROM telemetry"  # noqa: S608
    f" WHERE step_s = {MINUTE_S} AND at_s >= ? AND at_s < ? GROUP BY gpu_uuid{_UPSERT}"
)


class TelemetryRow(NamedTuple):
    """One GPU over a minute or an hour that begins at ``at_s`` (Unix time).

    ``n`` counts the samples; ``figures`` are by ``FIGURES``, None where no sample had one.
    """

    step_s: int
    at_s: int
    gpu_uuid: str
    n: int
    figures: tuple[Finite | None, ...]


def write_minutes(transaction: sqlite3.Connection, minutes: Sequence[TelemetryRow]) -> None:
    """Write rows of minutes, and the hours that they belong to."""
    transaction.executemany(_MINUTE, [(*row[:4], *row.figures) for row in minutes])
    for hour_s in {row.at_s // HOUR_S * HOUR_S for row in minutes}:
        transaction.execute(_HOUR, (hour_s, hour_s, hour_s + HOUR_S))


def begins_s(transaction: sqlite3.Connection, step_s: int, most: int) -> float:
    """Return when (Unix time) the last ``most`` rows of each GPU begin; minus infinity: fewer."""
    row = transaction.execute(
        "SELECT DISTINCT at_s FROM telemetry WHERE step_s = ? ORDER BY at_s DESC LIMIT 1 OFFSET ?",
        (step_s, most),
    ).fetchone()
    return -math.inf if row is None else float(row[0])


def forget(transaction: sqlite3.Connection, step_s: int, before_s: float) -> bool:
    """Delete the oldest rows of a length that begin before a moment; True if there may be more."""
    cursor = transaction.execute(
        "DELETE FROM telemetry WHERE (step_s, at_s, gpu_uuid) IN (SELECT step_s, at_s, gpu_uuid"
        " FROM telemetry WHERE step_s = ? AND at_s < ? ORDER BY at_s, gpu_uuid LIMIT ?)",
        (step_s, before_s, SLICE),
    )
    return cursor.rowcount == SLICE


# Export


def raw_from_s(connection: sqlite3.Connection) -> float:
    """Return from when on (Unix time) every minute is kept; minus infinity: none was deleted."""
    first, first_hour = (
        connection.execute("SELECT min(at_s) FROM telemetry WHERE step_s = ?", (step_s,)).fetchone()
        for step_s in (MINUTE_S, HOUR_S)
    )
    if first_hour[0] is None:
        return -math.inf
    if first[0] is None:
        return math.inf
    hour_s = first[0] // HOUR_S * HOUR_S
    return float(hour_s + HOUR_S) if first_hour[0] < hour_s else -math.inf


def newest(connection: sqlite3.Connection, selection: Selection, limit: int) -> list[TelemetryRow]:
    """Return the newest rows, the newest last; hours stand in for minutes that are deleted."""
    from_s = raw_from_s(connection)
    rows: list[TelemetryRow] = []
    for step_s, since_s, until_s in (
        (MINUTE_S, max(selection.since_s, from_s), selection.until_s),
        (HOUR_S, selection.since_s, min(selection.until_s, from_s)),
    ):
        where, values = _where(selection.gpus, step_s, since_s, until_s)
        order = "ORDER BY at_s DESC, gpu_uuid DESC LIMIT ?"
        rows += _rows(connection, f"{where} {order}", (*values, limit - len(rows)))
    return rows[::-1]


def rows_after(
    connection: sqlite3.Connection,
    selection: Selection,
    step_s: int,
    after: TelemetryRow | None,
    most: int,
) -> list[TelemetryRow]:
    """Return the rows of one length that follow ``after``, the oldest first; None: the first."""
    where, values = _where(selection.gpus, step_s, selection.since_s, selection.until_s)
    if after is not None:
        where += " AND (at_s, gpu_uuid) > (?, ?)"
        values += after.at_s, after.gpu_uuid
    return _rows(connection, f"{where} ORDER BY at_s, gpu_uuid LIMIT ?", (*values, most))


def cells(row: TelemetryRow) -> Cells:
    """Return the cells of a row, by ``COLUMNS``."""
    return (rfc_3339(row.at_s), row.at_s, KINDS[row.step_s], row.gpu_uuid, row.n, *row.figures)


def _where(
    gpus: tuple[str, ...], step_s: int, since_s: float, until_s: float
) -> tuple[str, tuple[float | str, ...]]:
    """Write the condition on rows of one length: each that has any part in the range."""
    where = f"step_s = ? AND at_s > ? AND at_s < ? AND {among('gpu_uuid', gpus)}"
    ends = max(since_s - step_s, -FURTHEST_S), min(until_s, FURTHEST_S)
    return where, (step_s, *ends, *gpus)


def _rows(
    connection: sqlite3.Connection, where: str, values: Iterable[float | str]
) -> list[TelemetryRow]:
    rows = connection.execute(
        f"SELECT step_s, at_s, gpu_uuid, n, {', '.join(FIGURES)} FROM telemetry WHERE {where}",  # noqa: S608  # ours
        tuple(values),
    )
    return list(typed(((*row[:4], row[4:]) for row in rows), TelemetryRow))


# Charts


class TelemetryQuery(msgspec.Struct, frozen=True):
    """A question for charts of telemetry. GPUs are UUIDs."""

    gpus: tuple[str, ...]
    steps: Steps
    hourly: bool  # the range is so long that hours are read


class TelemetryFigures(msgspec.Struct, frozen=True):
    """One field of telemetry, in the base unit that its name ends in."""

    mean: list[float | None]
    minimum: list[float | None]
    maximum: list[float | None]


class TelemetrySeries(msgspec.Struct, frozen=True):
    """Telemetry of one GPU in columns: one entry for each step that has samples.

    ``at_s`` is where a step begins; ``n`` counts its samples. ``figures`` are by field; a field
    that no step has is absent. ``throttle`` has the share of the time in which a reason was in
    force, by reason; one that never was is absent, and null says that no reasons were given.
    """

    gpu: str
    at_s: list[int]
    n: list[int]
    figures: dict[str, TelemetryFigures]
    throttle: dict[str, list[float | None]] | None


class TelemetryAnswer(msgspec.Struct, frozen=True):
    """Telemetry over time, thinned out; a hole wider than ``step_s`` is a gap.

    ``since_s`` and ``until_s`` are what was asked for, widened to whole steps. ``source``: up to
    two days come from the minutes, longer from the hours.
    """

    since_s: int
    until_s: int
    step_s: int
    source: Literal["minutes", "hours"]
    gpus: list[TelemetrySeries]
    schema_version: int = SCHEMA_VERSION


def read(directory: Path, query: TelemetryQuery, snapshot: Snapshot) -> TelemetryAnswer:
    """Answer a query from the history in ``directory``.

    Errors: ``StoreError``; ``UnknownName`` for a GPU that there is not.
    """
    series = reader.read(directory, _checked, query, snapshot, patience_s=PATIENCE_S)
    steps = query.steps
    source: Literal["minutes", "hours"] = "hours" if query.hourly else "minutes"
    return TelemetryAnswer(steps.since_s, steps.until_s, steps.length_s, source, series)


def _checked(
    connection: sqlite3.Connection, query: TelemetryQuery, snapshot: Snapshot
) -> list[TelemetrySeries]:
    steps, step_s = query.steps, HOUR_S if query.hourly else MINUTE_S
    where, values = _where(query.gpus, step_s, steps.since_s, steps.until_s)
    merged = connection.execute(
        f"SELECT ?, at_s / ? * ?, gpu_uuid, sum(n), {_MERGED} FROM telemetry WHERE {where}"  # noqa: S608
        " GROUP BY 3, 2 ORDER BY 3, 2",
        (*[steps.length_s] * 3, *values),
    )
    rows = ((*row[:4], row[4:]) for row in merged)
    by_gpu: dict[str, list[TelemetryRow]] = {}
    for row in typed(rows, TelemetryRow):
        by_gpu.setdefault(row.gpu_uuid, []).append(row)
    check_gpus(connection, query.gpus, set(by_gpu), snapshot)
    return [_series(gpu, own) for gpu, own in by_gpu.items()]


def _series(gpu: str, rows: Sequence[TelemetryRow]) -> TelemetrySeries:
    by_name = zip(FIGURES, zip(*(row.figures for row in rows), strict=True), strict=True)
    columns = {
        name: [None if figure is None else float(f"{figure:.{DIGITS}g}") for figure in column]
        for name, column in by_name
        if any(figure is not None for figure in column)
    }
    shares = {reason: columns.get(f"throttle_{reason}_ratio") for reason in REASONS}
    return TelemetrySeries(
        gpu,
        [row.at_s for row in rows],
        [row.n for row in rows],
        {
            gauge: TelemetryFigures(*(columns[name] for name in names))
            for gauge in GAUGES
            if columns.keys() >= set(names := [f"{gauge}_{part}" for part in PARTS])
        },
        {reason: column for reason, column in shares.items() if column and any(column)}
        if any(shares.values())
        else None,
    )
