"""What somebody asks the history for, and the same in SQL."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from gpud.agent.history.rolluprows import HOUR_S

CPU: Final = ""
"""In place of a GPU's UUID."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows are asked for: since inclusive, until exclusive; none named means all."""

    since_s: float = -math.inf
    until_s: float = math.inf
    probes: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()  # UUIDs, and ``CPU``


def runs_sql(wanted: Wanted) -> tuple[str, list[float | str]]:
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


def hours_sql(wanted: Wanted) -> tuple[str, list[float | str]]:
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


def _marks(names: tuple[str, ...]) -> str:
    return ", ".join("?" * len(names))
