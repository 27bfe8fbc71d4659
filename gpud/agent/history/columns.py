"""Rows as CSV and as JSON: the same columns, in base units; docs/history.md says what they mean."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from gpud.agent.historyrows import FIGURES
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from gpud.agent.historyrows import Row

CONDITIONS: Final[Mapping[str, str]] = {
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
"""The conditions of a run that are told, by the name of their column."""

COLUMNS: Final = (
    "time",
    "unix_s",
    "kind",
    "gpu_uuid",
    "backend",
    "probe",
    "probe_version",
    "mode",
    "unit",
    "n",
    *FIGURES,
    "flags",
    "flagged_runs",
    "failure",
    "failure_detail",
    "duration_s",
    "boot_id",
    *CONDITIONS,
)
LEADS_A_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
RUN, HOUR = "run", "hour"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def record(row: Row) -> dict[str, Any]:
    """Give a row by column; None is what is not known of it."""
    known = {name: row.conditions.get(key) for name, key in CONDITIONS.items()}
    failure = row.failure or {}
    return {
        "time": rfc_3339(row.at_s),
        "unix_s": row.at_s,
        "kind": HOUR if row.hourly else RUN,
        "gpu_uuid": row.gpu,
        "backend": row.backend,
        "probe": row.probe,
        "probe_version": row.version,
        "mode": row.mode,
        "unit": row.unit,
        "n": row.n,
        **{name: row.figures.get(name) for name in FIGURES},
        "flags": list(row.flags),
        "flagged_runs": row.flagged if row.hourly else None,
        "failure": failure.get("reason", "unknown") if row.failure is not None else None,
        "failure_detail": failure.get("detail"),
        "duration_s": row.duration_s,
        "boot_id": row.boot_id,
        **known,
    }


class Csv:
    """Writes rows below their heading, as RFC 4180 has it but for line feeds."""

    def __init__(self, stream: TextIO) -> None:
        self._writer = csv.writer(stream, lineterminator="\n")
        self._writer.writerow(COLUMNS)

    def write(self, row: Row) -> None:
        """Write one row."""
        self._writer.writerow([_cell(value) for value in record(row).values()])


def _cell(value: object) -> str:
    """Write a number as Python reads it back, and a foreign text so that no program obeys it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = escaped(" ".join(map(str, value)) if isinstance(value, list) else str(value))
    # A spreadsheet takes such a cell for a formula; the apostrophe makes it text again.
    return f"'{text}" if text.startswith(LEADS_A_FORMULA) else text


def rfc_3339(at_s: float) -> str | None:
    """Write a moment in UTC, to the millisecond; None for a year that has no such name."""
    try:
        moment = _EPOCH + timedelta(seconds=at_s)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
