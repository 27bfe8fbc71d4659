"""Chart data: the figures of one probe over time, reduced to a few hundred steps by SQLite.

SQLite computes without Python's interpreter lock, so that 20,000 rows delay no scrape. Steps have
round lengths and begin at round moments: asked again a moment later, a run is in the same step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from gpud.agent.history import queries, reader
from gpud.agent.history.export import Selection
from gpud.agent.history.schema import CPU, DAY_S, DRIVER, HOUR_S, MINUTE_S, VERSION, among
from gpud.core.sample import SCHEMA_VERSION

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from gpud.agent.state.snapshot import Snapshot

RAW_RANGE_S: Final = 2 * 86400.0
PATIENCE_S: Final = 3.0
LENGTHS_S: Final = (
    *(1, 2, 3, 5, 10, 15, 20, 30),
    *(minutes * MINUTE_S for minutes in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30)),
    *(hours * HOUR_S for hours in (1, 2, 3, 4, 6, 8, 12)),
    *(2**power * DAY_S for power in range(12)),
)
"""Seconds, ascending: each divides a day, or is a number of days; the last exceeds any range."""
DIGITS: Final = 6
"""Significant digits of a figure: more than any run repeats."""

RUNS: Final = f"""
run AS MATERIALIZED (
    SELECT r.id, r.finished_s AS at_s, r.gpu_uuid AS gpu, {VERSION} AS version,
           {DRIVER} AS driver, r.flags = '[]' AS unmarked
    FROM runs r WHERE {{where}}
),
figure AS (
    SELECT at_s, gpu, mode, version, unit, driver, unmarked AS n, NOT unmarked AS marked,
           median, minimum, maximum
    FROM run JOIN samples s ON s.run_id = run.id WHERE {{modes}}
)"""  # noqa: S608  # only our own text
HOURS: Final = """,
hour AS (
    SELECT hour_s AS at_s, nullif(gpu_uuid, '') AS gpu, mode, version, unit, driver, n,
           flagged AS marked, median, minimum, maximum
    FROM rollups WHERE {where}
)"""
CLEAN: Final = ",\n".join(
    f"CASE WHEN n AND typeof({name}) = 'real' AND abs({name}) < 1e300 THEN {name} END AS {name}"
    for name in ("median", "minimum", "maximum")
)
QUANTILES: Final = ",\n".join(
    f"sum(median * max(0.0, 1.0 - abs(rank - last * {share})))" for share in (0.5, 0.1, 0.9)
)
"""Linear between the two nearest ranks, as ``core.stats.quantile``."""
STEPS: Final = f""",
step AS (
    SELECT gpu, mode, version, unit, driver, n, marked,
           CAST((at_s - ?) / ? AS INTEGER) AS step, {CLEAN}
    FROM {{source}}
),
ranked AS (
    SELECT *, row_number() OVER medians - 1 AS rank, count(median) OVER medians - 1 AS last
    FROM step
    WINDOW medians AS (
        PARTITION BY gpu, mode, version, unit, step ORDER BY median NULLS LAST
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
)
SELECT gpu, mode, version, unit, step, sum(n), sum(marked), {QUANTILES}, min(minimum), max(maximum),
       json_group_array(DISTINCT driver) FILTER (WHERE driver <> '')
FROM ranked GROUP BY gpu, mode, version, unit, step
ORDER BY gpu IS NULL, gpu, mode, version, unit, step"""  # noqa: S608  # only our own text


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of ``length_s``, numbered from 1970: the first and the last of a range."""

    length_s: int
    first: int
    last: int

    @classmethod
    def over(cls, since_s: float, until_s: float, *, most: int, least_s: int) -> Steps:
        """Choose the shortest round length of which ``most`` steps are as long as the range.

        One more is needed where the range does not begin with a step.
        """
        exact_s = (until_s - since_s) / most
        length_s = next(length for length in LENGTHS_S if length >= max(exact_s, least_s))
        first = math.floor(since_s / length_s)
        return cls(length_s, first, max(math.ceil(until_s / length_s) - 1, first))

    def of_hours(self) -> Steps:
        """Give the hours that hold them."""
        first, end = self.since_s // HOUR_S, -(-self.until_s // HOUR_S)
        return Steps(HOUR_S, first, end - 1)

    @property
    def since_s(self) -> int:
        """When the first begins."""
        return self.first * self.length_s

    @property
    def until_s(self) -> int:
        """When the last ends."""
        return (self.last + 1) * self.length_s


class ChartQuery(msgspec.Struct, frozen=True):
    """A question for a chart. GPUs are UUIDs, and ``selection.CPU``."""

    probe: str
    modes: tuple[str, ...]
    gpus: tuple[str, ...]
    steps: Steps
    hourly: bool  # the range is so long that hours are read


class ChartSeries(msgspec.Struct, frozen=True):
    """Figures that compare with each other, in columns: one entry for each step that has runs.

    Units: figures are in ``unit``, to six digits; they are null where every run was marked.
    ``gpu`` is a UUID, null for the CPU. ``at_s`` is where a step begins; ``n`` counts the unmarked
    runs in it and ``marked`` the others. ``median``, ``p10`` and ``p90`` are those of the runs'
    medians, ``minimum`` and ``maximum`` the ends of all that was measured.
    """

    gpu: str | None
    mode: str
    version: int
    unit: str
    at_s: list[int]
    n: list[int]
    marked: list[int]
    median: list[float | None]
    p10: list[float | None]
    p90: list[float | None]
    minimum: list[float | None]
    maximum: list[float | None]
    drivers: list[list[str]]


class HistoryAnswer(msgspec.Struct, frozen=True):
    """Figures of one probe over time, thinned out; a hole wider than ``step_s`` is a gap.

    ``since_s`` and ``until_s`` are what was asked for, widened to whole steps. ``source``: up to
    two days come from the runs themselves, longer from the hours and the runs after them.
    """

    probe: str
    since_s: int
    until_s: int
    step_s: int
    source: Literal["runs", "hours"]
    series: list[ChartSeries]
    schema_version: int = SCHEMA_VERSION


class UnknownName(LookupError):  # noqa: N818  # reads as the fact it states
    """A parameter names what neither the program nor the history has."""

    def __init__(self, parameter: str, name: str, choices: tuple[str, ...]) -> None:
        super().__init__(name)
        self.parameter = parameter
        self.name = name
        self.choices = choices


def gpu_names(snapshot: Snapshot) -> tuple[str, ...]:
    """List what a GPU can be called in a question; ``cpu`` is one of them."""
    return ("cpu", *(f"{gpu.number} ({uuid})" for uuid, gpu in snapshot.gpus.items()))


def read(directory: Path, query: ChartQuery, snapshot: Snapshot) -> HistoryAnswer:
    """Answer a query from the history in ``directory``; ``snapshot`` has names without runs.

    Errors: ``StoreError``; ``UnknownName``.
    """
    series = reader.read(directory, _checked, query, snapshot, patience_s=PATIENCE_S)
    steps = query.steps
    source: Literal["runs", "hours"] = "hours" if query.hourly else "runs"
    return HistoryAnswer(query.probe, steps.since_s, steps.until_s, steps.length_s, source, series)


def _checked(
    connection: sqlite3.Connection, query: ChartQuery, snapshot: Snapshot
) -> list[ChartSeries]:
    """Read the series, and look for names that nothing bears. Errors: ``UnknownName``."""
    series = _series(connection, query)
    current = {spec.name: spec.modes for spec in snapshot.measure.specs}
    if not series and query.probe not in current:
        names = queries.probes(connection)
        if query.probe not in names:
            raise UnknownName("probe", query.probe, tuple(sorted({*current, *names})))
    modes = {*current.get(query.probe, ()), *(line.mode for line in series)}
    for mode in query.modes:
        if mode not in modes and mode not in queries.modes(connection, [query.probe]):
            raise UnknownName("mode", mode, tuple(sorted(modes)))
    check_gpus(connection, query.gpus, {line.gpu for line in series}, snapshot)
    return series


def check_gpus(
    connection: sqlite3.Connection,
    gpus: tuple[str, ...],
    shown: set[str | None],
    snapshot: Snapshot,
) -> None:
    """Look for GPUs that are not ``shown``, not here and were not. Errors: ``UnknownName``."""
    here = {CPU, *snapshot.gpus, *shown}
    if missing := [gpu for gpu in gpus if gpu not in here]:
        past = queries.gpus(connection)
        for gpu in missing:
            if gpu not in past:
                raise UnknownName("gpu", gpu, (*gpu_names(snapshot), *past))


def _series(connection: sqlite3.Connection, query: ChartQuery) -> list[ChartSeries]:
    series: dict[tuple[str | None, str, int, str], ChartSeries] = {}
    for row in connection.execute(*_sql(connection, query)):
        key, step, counts, figures, drivers = row[:4], row[4], row[5:7], row[7:12], row[12]
        if key not in series:
            series[key] = ChartSeries(*key, *([] for _ in range(9)))
        line = series[key]
        line.at_s.append((query.steps.first + step) * query.steps.length_s)
        line.n.append(counts[0])
        line.marked.append(counts[1])
        columns = (line.median, line.p10, line.p90, line.minimum, line.maximum)
        for column, figure in zip(columns, figures, strict=True):
            column.append(None if figure is None else float(f"{figure:.{DIGITS}g}"))
        line.drivers.append(sorted(msgspec.json.decode(drivers)))
    return list(series.values())


def _sql(connection: sqlite3.Connection, query: ChartQuery) -> tuple[str, list[float | str]]:
    """Write the query in SQL: hours first, then the runs after the last hour."""
    steps = query.steps
    rows = Selection(steps.since_s, steps.until_s, (query.probe,), query.modes, query.gpus)
    since_s, hours = rows.since_s, ""
    hour_values: list[float | str] = []
    if query.hourly:
        where, hour_values = rows.hours
        last = connection.execute(f"SELECT max(hour_s) FROM rollups WHERE {where}", hour_values)  # noqa: S608  # ours
        after_s = (last.fetchone()[0] or -math.inf) + HOUR_S
        since_s = max(rows.since_s, after_s, rows.until_s - RAW_RANGE_S)
        hours = HOURS.format(where=where)
    where, values = replace(rows, since_s=since_s, modes=()).runs
    source = "(SELECT * FROM figure UNION ALL SELECT * FROM hour)" if query.hourly else "figure"
    runs = RUNS.format(where=where, modes=among("mode", query.modes))
    sql = f"WITH {runs}{hours}{STEPS.format(source=source)}"
    return sql, [*values, *query.modes, *hour_values, steps.since_s, steps.length_s]
