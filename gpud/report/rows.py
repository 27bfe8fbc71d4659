"""The history of some weeks, read once: runs, their figures, what happened, what was found.

Where single runs are gone already, the hourly roll-ups stand in for them. A row that no gpud wrote
(a disk may give back others) is passed over and counted.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from gpud.agent import commands, eventrows, reader
from gpud.agent.eventrows import Window
from gpud.core.changes import (
    CUDA_VERSION,
    DRIVER_VERSION,
    GPUS,
    KERNEL,
    WINDOWS_BUILD,
    WSL_VERSION,
)
from gpud.core.detector.model import UNJUDGED
from gpud.core.presence import GPU_SEEN
from gpud.core.sample import Unit
from gpud.core.streams import StreamKey

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from gpud.agent.eventrows import Entry
    from gpud.core.commands import Command

PATIENCE_S: Final = 60.0
"""Two years of roll-ups beside a month of runs, on a slow disk."""
FACTS: Final = (DRIVER_VERSION, KERNEL, WSL_VERSION, WINDOWS_BUILD)
"""What is read of a run's conditions for the timeline, in this order."""
CHANGES: Final = (*FACTS, CUDA_VERSION, GPUS)
"""What became another, for the list of changes."""
FLAGS_SINCE: Final = 2
FINDINGS_SINCE: Final = 4
"""The schemas that have ``runs.flags``, and the tables of what was found out."""
_PATHS: Final = ", ".join(f"'$.\"{name}\"'" for name in (*FACTS, "probe_version", "after.ac"))
BEYOND: Final = 1e30
"""No figure in any unit is as large; what a disk made of one may be."""
HOUR_S: Final = 3600.0
SHARES: Final = (0.6, 0.2, 0.2)
"""For how many of its runs an hour's median, p10 and p90 stand."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run. ``failure`` is its reason and detail; ``driver`` "" where nobody knew it."""

    at_s: float
    boot_id: str
    probe: str
    gpu: str | None
    duration_s: float
    failure: tuple[str, str] | None
    driver: str
    flags: frozenset[str]


@dataclass(slots=True)
class Column:
    """The figures of one stream, in the order of writing; each list has one entry per figure.

    ``weights`` counts the runs behind a figure: one, or what an hour's roll-up stands for.
    ``places`` says where it is from: an index into ``Rows.past``.
    """

    unit: Unit
    places: array[int] = field(default_factory=lambda: array("l"))
    values: array[float] = field(default_factory=lambda: array("d"))
    weights: array[float] = field(default_factory=lambda: array("d"))
    apart: bytearray = field(default_factory=bytearray)  # 1: of a marked run

    def add(self, place: int, value: float, weight: float = 1.0, *, apart: bool = False) -> None:
        """Append one figure."""
        self.places.append(place)
        self.values.append(value)
        self.weights.append(weight)
        self.apart.append(apart)


@dataclass(frozen=True, slots=True)
class Moment:
    """When something was measured under which driver: a run, or an hour of which runs are gone."""

    at_s: float
    driver: str  # "": nobody knew it
    runs: int = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """A row of what the detectors found: a verdict, or an alarm. ``body`` is as they wrote it."""

    key: StreamKey
    at_s: float
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """All that a report is made of. ``past`` are rolled-up hours and then the runs, in order."""

    runs: tuple[Run, ...] = ()
    past: tuple[Moment, ...] = ()
    columns: dict[StreamKey, Column] = field(default_factory=dict)
    events: tuple[Entry, ...] = ()
    said: tuple[Command, ...] = ()  # by a person, about baselines and alerts
    names: dict[str, str] = field(default_factory=dict)  # of GPUs, by UUID
    alerts: tuple[dict[str, Any], ...] = ()
    verdicts: tuple[Finding, ...] = ()
    alarms: tuple[Finding, ...] = ()
    damaged: Counter[str] = field(default_factory=Counter)  # rows passed over, by table


def read(connection: sqlite3.Connection, since_s: float, until_s: float) -> Rows:
    """Read what belongs to a time. Errors: SQLite's, which the reader translates."""
    schema = reader.schema(connection)
    damaged: Counter[str] = Counter()
    found = list(_runs(connection, schema, since_s, until_s, damaged))
    runs = tuple(one.run for one in found)
    columns: dict[StreamKey, Column] = {}
    hours: tuple[Moment, ...] = ()
    if schema >= FINDINGS_SINCE:
        first_s = min((run.at_s for run in runs), default=until_s)
        hours = _rollups(connection, columns, since_s, first_s, damaged)
    _samples(connection, columns, found, len(hours), damaged)
    rows = Rows(
        runs,
        (*hours, *(Moment(run.at_s, run.driver) for run in runs)),
        columns,
        tuple(reversed(eventrows.within(connection, Window(since_s, until_s, CHANGES)))),
        tuple(one for one in commands.read(connection, 0) if since_s <= one.at_s < until_s),
        _names(connection),
        damaged=damaged,
    )
    if schema < FINDINGS_SINCE:
        return rows
    return replace(
        rows,
        alerts=_alerts(connection, since_s, until_s, damaged),
        verdicts=_findings(connection, "verdicts", since_s, until_s, damaged),
        alarms=_findings(connection, "alarms", since_s, until_s, damaged),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    number: int  # of the row
    run: Run
    version: int  # of the probe
    on_battery: bool


def _runs(
    connection: sqlite3.Connection,
    schema: int,
    since_s: float,
    until_s: float,
    damaged: Counter[str],
) -> Iterator[_Found]:
    flags = "r.flags" if schema >= FLAGS_SINCE else "'[]'"
    rows = connection.execute(
        "SELECT r.id, r.finished_s, r.boot_id, r.probe, r.gpu_uuid, r.duration_s, r.failure,"  # noqa: S608  # ours
        f" CASE WHEN json_valid(r.conditions) THEN json_extract(r.conditions, {_PATHS}) END,"
        f" {flags} FROM runs r WHERE r.finished_s >= ? AND r.finished_s < ? ORDER BY r.id",
        (since_s, until_s),
    )
    for number, at_s, boot, probe, gpu, duration_s, failure, told, marks in rows:
        try:
            driver, version, on_battery = _circumstances(told)
            run = Run(
                float(at_s),
                str(boot),
                str(probe),
                None if gpu is None else str(gpu),
                float(duration_s),
                _failure(failure),
                driver,
                _marks(marks),
            )
        except (TypeError, ValueError, AttributeError, RecursionError):
            damaged["runs"] += 1
            continue
        yield _Found(number, run, version, on_battery)


@lru_cache(maxsize=4096)
def _circumstances(told: str | None) -> tuple[str, int, bool]:
    """Read driver, probe version, and whether the machine was on battery."""
    driver, *_, version, mains = json.loads(told) if told is not None else [None] * 6
    return (
        driver if isinstance(driver, str) else "",
        version if type(version) is int else 1,
        mains is False,
    )


@lru_cache(maxsize=1024)
def _marks(text: str) -> frozenset[str]:
    return frozenset(str(flag) for flag in json.loads(text))


def _failure(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    said = json.loads(text)
    return str(said["reason"]), str(said["detail"])


def _samples(
    connection: sqlite3.Connection,
    columns: dict[StreamKey, Column],
    found: list[_Found],
    before: int,
    damaged: Counter[str],
) -> None:
    """Add the figures of runs, whose places begin with ``before``."""
    if not found:
        return
    places = {one.number: place for place, one in enumerate(found)}
    keys: dict[tuple[str | None, str, str, int, bool], StreamKey] = {}
    units = {unit.value: unit for unit in Unit}
    rows = connection.execute(
        "SELECT run_id, mode, unit, median FROM samples WHERE run_id BETWEEN ? AND ?"
        " ORDER BY run_id",
        (found[0].number, found[-1].number),
    )
    for number, mode, unit, value in rows:
        place = places.get(number)
        if place is None:
            continue  # of a run outside the time, or one that was passed over
        if not _plain(value) or unit not in units:
            damaged["samples"] += 1
            continue
        one = found[place]
        parts = (one.run.gpu, one.run.probe, str(mode), one.version, one.on_battery)
        key = keys.get(parts) or keys.setdefault(parts, StreamKey(*parts))
        column = columns.get(key) or columns.setdefault(key, Column(units[unit]))
        column.add(before + place, value, apart=not UNJUDGED.isdisjoint(one.run.flags))


def _rollups(
    connection: sqlite3.Connection,
    columns: dict[StreamKey, Column],
    since_s: float,
    first_s: float,
    damaged: Counter[str],
) -> tuple[Moment, ...]:
    """Add hours of which no single runs are left, three figures each, for the spread."""
    units = {unit.value: unit for unit in Unit}
    hours: dict[tuple[float, str], int] = {}
    places: dict[tuple[float, str], int] = {}
    rows = connection.execute(
        "SELECT hour_s, gpu_uuid, probe, mode, version, driver, unit, n, flagged, median, p10, p90"
        " FROM rollups WHERE hour_s >= ? AND hour_s + 3600 <= ? ORDER BY hour_s",
        (since_s, first_s),
    )
    for hour_s, gpu, probe, mode, version, driver, unit, n, flagged, *figures in rows:
        if unit not in units or type(n) is not int or type(flagged) is not int:
            damaged["rollups"] += 1
            continue
        hour = (hour_s + HOUR_S / 2, str(driver))
        place = places.setdefault(hour, len(places))
        hours[hour] = max(hours.get(hour, 0), n + flagged)
        if n <= 0:
            continue  # marked runs only: there are no clean figures
        if not all(map(_plain, figures)):
            damaged["rollups"] += 1
            continue
        key = StreamKey(gpu or None, str(probe), str(mode), version)
        column = columns.setdefault(key, Column(units[unit]))
        for figure, share in zip(figures, SHARES, strict=True):
            column.add(place, figure, share * n)
    return tuple(Moment(at_s, driver, runs) for (at_s, driver), runs in hours.items())


def _plain(figure: object) -> bool:
    return isinstance(figure, float) and 0 <= figure < BEYOND


def _findings(
    connection: sqlite3.Connection,
    table: str,
    since_s: float,
    until_s: float,
    damaged: Counter[str],
) -> tuple[Finding, ...]:
    rows = connection.execute(
        f"SELECT stream, at_s, body FROM {table} WHERE at_s >= ? AND at_s < ? ORDER BY id",  # noqa: S608  # ours
        (since_s, until_s),
    )
    found = []
    for stream, at_s, body in rows:
        try:
            parts, said = json.loads(stream), json.loads(body)
            found.append(Finding(_key(parts), float(at_s), dict(said)))
        except (TypeError, ValueError, RecursionError):
            damaged[table] += 1
    return tuple(found)


def _key(parts: list[Any]) -> StreamKey:
    gpu, probe, mode, version, on_battery = parts
    if not (isinstance(probe, str) and isinstance(mode, str) and isinstance(gpu, str | None)):
        raise TypeError("no stream")
    return StreamKey(gpu, probe, mode, int(version), bool(on_battery))


def _alerts(
    connection: sqlite3.Connection, since_s: float, until_s: float, damaged: Counter[str]
) -> tuple[dict[str, Any], ...]:
    """Give what was told: what fired at any moment of the time, oldest first."""
    rows = connection.execute(
        "SELECT starts_s, ends_s, body FROM alerts WHERE starts_s < ?"
        " AND (ends_s IS NULL OR ends_s >= ?) ORDER BY starts_s",
        (until_s, since_s),
    )
    found = []
    for starts_s, ends_s, body in rows:
        try:
            times = {"starts_s": float(starts_s), "ends_s": None}
            if ends_s is not None:
                times["ends_s"] = float(ends_s)
            found.append({**json.loads(body), **times})
        except (TypeError, ValueError, RecursionError):
            damaged["alerts"] += 1
    return tuple(found)


def _names(connection: sqlite3.Connection) -> dict[str, str]:
    """Give the names under which GPUs were seen, the latest of each."""
    return {
        str(entry.body["uuid"]): str(entry.body.get("name") or "")
        for entry in eventrows.all_of(connection, (GPU_SEEN,))
        if "uuid" in entry.body
    }
