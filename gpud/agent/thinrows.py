"""Runs and hours as a chart needs them: by the ten thousand, and no more of each than is drawn.

Every function takes a connection and only reads.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from gpud.agent import reader
from gpud.agent.historyscope import ROLLUPS_SINCE
from gpud.agent.rolluprows import DRIVER, HOUR_S, VERSION
from gpud.agent.wanted import hours_sql, runs_sql

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from gpud.agent.wanted import Wanted


class Thin(NamedTuple):
    """One mode of a run, or of an hour.

    Units: as in ``historyrows.Row``. ``n`` counts the unmarked runs, of a run itself 1 or 0. A
    figure may be anything that a disk makes of one.
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


def runs(connection: sqlite3.Connection, wanted: Wanted) -> Iterator[Thin]:
    """Give the runs that brought figures, in no order."""
    where, values = runs_sql(wanted)
    flags = "r.flags" if reader.schema(connection) > 1 else "'[]'"
    told = connection.execute(
        f"SELECT r.finished_s, r.gpu_uuid, s.mode, {VERSION}, s.unit, {DRIVER}, {flags} = '[]',"  # noqa: S608  # ours
        f" {flags} <> '[]', s.median, s.minimum, s.maximum"
        f" FROM runs r JOIN samples s ON s.run_id = r.id WHERE {where}",
        values,
    )
    return map(Thin._make, told)


def hours(connection: sqlite3.Connection, wanted: Wanted, *, most_s: float) -> Iterator[Thin]:
    """Give the hours, in no order, then the runs after them, of ``most_s`` at the most."""
    last_s = -math.inf
    if reader.schema(connection) >= ROLLUPS_SINCE:
        where, values = hours_sql(wanted)
        told = connection.execute(
            "SELECT hour_s, nullif(gpu_uuid, ''), mode, version, unit, driver, n, flagged, median,"  # noqa: S608  # ours
            f" minimum, maximum FROM rollups WHERE {where}",
            values,
        )
        for hour in map(Thin._make, told):
            last_s = max(last_s, hour.at_s)
            yield hour
    since_s = max(wanted.since_s, last_s + HOUR_S, wanted.until_s - most_s)
    yield from runs(connection, replace(wanted, since_s=since_s))


def finite(figure: object) -> TypeGuard[float]:
    """Say whether a figure is one: a disk makes of it what it likes."""
    return isinstance(figure, float) and math.isfinite(figure)
