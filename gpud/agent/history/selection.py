"""Selection of measurements by time, probe, mode and GPU, and the same in SQL."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from gpud.agent.history.schema import HOUR_S

CPU: Final = ""
"""In place of a GPU's UUID."""
FURTHEST_S: Final = 9e15
"""A Unix time beyond every clock; SQLite keeps infinities."""


PROBES: Final = (
    "(WITH RECURSIVE probes (name) AS (SELECT min(probe) FROM runs UNION ALL"
    " SELECT (SELECT min(probe) FROM runs WHERE probe > name) FROM probes WHERE name IS NOT NULL)"
    " SELECT name FROM probes WHERE name IS NOT NULL)"
)
"""Every probe that has runs: with ``probe IN`` it, an index leads to a time whatever the probe is.

A step for each probe, where DISTINCT would walk over every run.
"""
DRIVER: Final = (
    "CASE WHEN json_valid(r.conditions)"
    " AND json_type(r.conditions, '$.driver_version') = 'text'"
    " THEN json_extract(r.conditions, '$.driver_version') ELSE '' END"
)
VERSION: Final = (
    "CASE WHEN json_valid(r.conditions)"
    " AND json_type(r.conditions, '$.probe_version') = 'integer'"
    " THEN json_extract(r.conditions, '$.probe_version') ELSE 1 END"
)
"""Columns of a run ``r``; a run without a version is of the first."""


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
