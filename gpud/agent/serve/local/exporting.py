"""Rows of the history for ``gpud history``, read in slices so that nothing else waits for long."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpud.agent.history import historyrows, historyscope, reader
from gpud.agent.history.historyrows import FIGURES
from gpud.agent.history.rolluprows import HOUR_S
from gpud.agent.history.wanted import CPU, Wanted
from gpud.core.errors import ConfigError
from gpud.core.requests import RowLine, RowsLine, encoded
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from gpud.agent.history.historyrows import Row
    from gpud.core.requests import AnswerLine, HistoryRequest

PATIENCE_S: Final = 30.0
RUNS_AT_ONCE: Final = 200
HOURS_AT_ONCE_S: Final = 2 * 86400.0
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


async def lines(
    state_dir: str, request: HistoryRequest, numbers: Mapping[str, int]
) -> AsyncGenerator[AnswerLine | bytes, None]:
    """Give the rows asked for as encoded lines; ``numbers`` are those of the GPUs by UUID.

    Errors: ``ConfigError`` for a probe or GPU that there is not, ``StoreError``.
    """
    directory = Path(state_dir)
    chosen = await asyncio.to_thread(_chosen, directory, request, numbers)
    from_s = await asyncio.to_thread(reader.ask, directory, historyscope.raw_from_s)
    raw_from_s = from_s if math.isfinite(from_s) else None
    raw_from = None if raw_from_s is None else rfc_3339(raw_from_s)
    if request.limit is not None:
        rows, more = await asyncio.to_thread(_newest, directory, chosen, request.limit)
        yield RowsLine(raw_from=raw_from, raw_from_s=raw_from_s, more=more)
        yield rows
        return
    yield RowsLine(raw_from=raw_from, raw_from_s=raw_from_s)
    after: float | None = None
    read = _hours if request.hourly else _runs
    while True:
        rows, after = await asyncio.to_thread(read, directory, chosen, after)
        yield rows
        if after is None:
            return
        await asyncio.sleep(0)


def _chosen(directory: Path, request: HistoryRequest, numbers: Mapping[str, int]) -> Wanted:
    known = reader.ask(directory, historyscope.probes) if request.probes else ()
    for name in request.probes:
        if name not in known:
            near = get_close_matches(name, known, n=3) or known
            fix = f"one of {', '.join(map(escaped, near))}" if known else None
            raise ConfigError(f"the history has no probe {name!a:.60}", fix=fix)
    return Wanted(
        -math.inf if request.since_s is None else request.since_s,
        math.inf if request.until_s is None else request.until_s,
        request.probes,
        request.modes,
        _gpus(directory, request.gpus, numbers) if request.gpus else (),
    )


def _gpus(directory: Path, names: Sequence[str], numbers: Mapping[str, int]) -> tuple[str, ...]:
    """Give the GPUs that are meant by number, by UUID or the beginning of one, or by ``cpu``."""
    known = dict.fromkeys((*numbers, *reader.ask(directory, historyscope.gpus)))
    chosen = []
    for name in names:
        if name.lower() == "cpu":
            chosen.append(CPU)
            continue
        if name.isascii() and name.isdigit():
            fitting = [uuid for uuid, number in numbers.items() if number == int(name)]
        else:
            fitting = [uuid for uuid in known if uuid.lower().startswith(name.lower())]
        if len(fitting) != 1:
            fault = "more than one GPU is" if fitting else "the history has no GPU"
            there = ", ".join(map(escaped, known)) or "there is none yet"
            raise ConfigError(f"{fault} {name!a:.60}", fix=f"one of {there}")
        chosen += fitting
    return tuple(chosen)


def _newest(directory: Path, chosen: Wanted, limit: int) -> tuple[bytes, bool]:
    rows = reader.ask(
        directory, lambda c: historyrows.newest(c, chosen, limit + 1), patience_s=PATIENCE_S
    )
    return _encoded(rows[-limit:]), len(rows) > limit


def _runs(directory: Path, chosen: Wanted, after: float | None) -> tuple[bytes, float | None]:
    """Give the next runs, and the number of the last of them."""

    def following(connection: Any) -> tuple[list[Row], int | None]:  # noqa: ANN401  # sqlite3's
        begin = 0 if after is None else int(after)
        if after is None and chosen.since_s > -math.inf:
            begin = historyrows.first_run(connection, chosen.since_s)
        return historyrows.runs_after(connection, chosen, after_run=begin, most_runs=RUNS_AT_ONCE)

    rows, last = reader.ask(directory, following)
    return _encoded(rows), last


def _hours(directory: Path, chosen: Wanted, after: float | None) -> tuple[bytes, float | None]:
    """Give the next hours, and where to go on."""
    after_s = max(chosen.since_s - HOUR_S, -9e15) if after is None else after
    rows, last = reader.ask(
        directory,
        lambda c: historyrows.hours_after(c, chosen, after_s=after_s, most_s=HOURS_AT_ONCE_S),
    )
    return _encoded(rows), last


def _encoded(rows: Sequence[Row]) -> bytes:
    return b"".join(encoded(line) for row in rows if (line := _line(row)) is not None)


def _line(row: Row) -> RowLine | None:
    """Give a row as it is sent; None where the disk has turned it into something else."""
    failure = row.failure or {}
    try:
        return msgspec.convert(
            {
                "line": "row",
                "time": rfc_3339(row.at_s),
                "unix_s": row.at_s,
                "kind": "hour" if row.hourly else "run",
                "gpu_uuid": row.gpu,
                "backend": row.backend,
                "probe": row.probe,
                "probe_version": row.version,
                "mode": row.mode,
                "unit": row.unit,
                "n": row.n,
                **{name: row.figures.get(name) for name in FIGURES},
                "flags": row.flags,
                "flagged_runs": row.flagged if row.hourly else None,
                "failure": failure.get("reason", "unknown") if row.failure is not None else None,
                "failure_detail": failure.get("detail"),
                "duration_s": row.duration_s,
                "boot_id": row.boot_id,
                **{name: row.conditions.get(key) for name, key in CONDITIONS.items()},
            },
            RowLine,
        )
    except msgspec.ValidationError:
        return None


def rfc_3339(at_s: float) -> str | None:
    """Write a moment in UTC, to the millisecond; None for a year that has no such name."""
    try:
        moment = _EPOCH + timedelta(seconds=at_s)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
