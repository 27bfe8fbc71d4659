"""What the history says of probes run before, for ``gpud probe``: usual figures and durations."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpud.agent.history import reader
from gpud.core.stats import median

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

FLAGS_SINCE = 2
"""The schema that has ``runs.flags`` and ``samples.peaks``."""
LAST_RUNS = 5
"""So many of the newest runs say how long the next will take."""


@dataclass(frozen=True, slots=True)
class Series:
    """Figures that compare with each other; ``gpu`` is a UUID, None for the CPU."""

    gpu: str | None
    probe: str
    mode: str
    version: int


@dataclass(frozen=True, slots=True)
class Past:
    """What the history holds. Units: ``medians`` in the probe's own, ``durations`` in seconds."""

    medians: Mapping[Series, tuple[float, ...]] = field(default_factory=dict)
    durations: Mapping[tuple[str | None, str], float] = field(default_factory=dict)


def past(directory: Path, probes: Sequence[str], *, since_s: float) -> Past:
    """Read the good runs of ``probes`` that finished after ``since_s`` (Unix time).

    Runs that the agent flagged (the GPU was busy, its clocks low ...) are no part of what is
    normal. Errors: those of ``reader.ask``.
    """
    return reader.ask(directory, lambda connection: _read(connection, probes, since_s))


def _read(connection: sqlite3.Connection, probes: Sequence[str], since_s: float) -> Past:
    flagged = reader.schema(connection) >= FLAGS_SINCE
    good = "r.probe = ? AND r.finished_s >= ? AND r.failure IS NULL"
    if flagged:
        good += " AND r.flags = '[]'"
    medians: defaultdict[Series, list[float]] = defaultdict(list)
    durations: dict[tuple[str | None, str], float] = {}
    for probe in probes:
        # Between the modes of a distribution that has two lies no median to compare with.
        one = f"{good} AND s.peaks IS NULL" if flagged else good
        for series, figure in _figures(connection, one, probe, since_s):
            medians[series].append(figure)
        durations |= _durations(connection, good, probe, since_s)
    return Past({series: tuple(figures) for series, figures in medians.items()}, durations)


def _figures(
    connection: sqlite3.Connection, good: str, probe: str, since_s: float
) -> Iterator[tuple[Series, float]]:
    rows = connection.execute(
        "SELECT r.gpu_uuid, s.mode, CASE WHEN json_valid(r.conditions) THEN"  # noqa: S608  # ours
        " json_extract(r.conditions, '$.probe_version') END, s.median"
        f" FROM runs r JOIN samples s ON s.run_id = r.id WHERE {good}",
        (probe, since_s),
    )
    for gpu, mode, version, figure in rows:
        if isinstance(version, int) and _plain(figure):
            yield Series(gpu, probe, mode, version), figure


def _durations(
    connection: sqlite3.Connection, good: str, probe: str, since_s: float
) -> dict[tuple[str | None, str], float]:
    rows = connection.execute(
        f"SELECT r.gpu_uuid, r.duration_s FROM runs r WHERE {good}"  # noqa: S608  # ours
        " ORDER BY r.finished_s DESC LIMIT 200",
        (probe, since_s),
    )
    newest: defaultdict[str | None, list[float]] = defaultdict(list)
    for gpu, duration_s in rows:
        if _plain(duration_s) and len(newest[gpu]) < LAST_RUNS:
            newest[gpu].append(duration_s)
    return {(gpu, probe): median(values) for gpu, values in newest.items() if values}


def _plain(value: Any) -> bool:  # noqa: ANN401  # a column may hold anything
    return isinstance(value, float) and math.isfinite(value)
