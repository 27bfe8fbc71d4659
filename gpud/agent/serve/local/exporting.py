"""Rows of the history for ``gpud history``, read in slices so that nothing else waits for long."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from gpud.agent.history import export, queries, reader, telemetry
from gpud.agent.history.export import Selection
from gpud.agent.history.schema import CPU, HOUR_S, MINUTE_S
from gpud.core.errors import ConfigError
from gpud.core.gpu_names import Label, uuid_of
from gpud.core.text import escaped
from gpud.requests import RowsLine, TelemetryLine, encoded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from gpud.agent.history.telemetry import TelemetryRow
    from gpud.core.sample import ProbeSpec
    from gpud.requests import AnswerLine, HistoryRequest, RowLine, TelemetryRequest

T = TypeVar("T")

PATIENCE_S: Final = 30.0
RUNS_AT_ONCE: Final = 200
HOURS_AT_ONCE_S: Final = 2 * 86400.0
TELEMETRY_AT_ONCE: Final = 500
KINDS: Final = {MINUTE_S: "minute", HOUR_S: "hour"}


async def lines(
    state_dir: str,
    request: HistoryRequest,
    labels: Mapping[str, Label],
    specs: Sequence[ProbeSpec] = (),
) -> AsyncGenerator[AnswerLine | bytes, None]:
    """Yield the requested rows as encoded lines; ``labels`` are those of the GPUs by UUID.

    ``specs`` are probes that run on schedule: they may be asked for before their first run.

    Errors: ``ConfigError`` for a probe, mode or GPU that there is not, ``StoreError``.
    """
    directory = Path(state_dir)
    selection = await asyncio.to_thread(_selection, directory, request, labels, specs)
    head = _head(await _read(directory, export.raw_from_s))
    if (limit := request.limit) is not None:
        rows = await _read(directory, export.newest, selection, limit + 1)
        yield replace(head, more=len(rows) > limit)
        yield await asyncio.to_thread(_encoded, rows[-limit:])
        return
    yield head
    after: Any = None
    query: Any = export.hours_after if request.hourly else export.runs_after
    most = HOURS_AT_ONCE_S if request.hourly else RUNS_AT_ONCE
    while True:
        rows, after = await _read(directory, query, selection, after, most)
        yield await asyncio.to_thread(_encoded, rows)
        if after is None:
            return


async def telemetry_lines(
    state_dir: str, request: TelemetryRequest, labels: Mapping[str, Label]
) -> AsyncGenerator[AnswerLine | bytes, None]:
    """Yield the requested telemetry as ``lines`` yields runs. Errors: as those."""
    directory = Path(state_dir)
    uuids = await asyncio.to_thread(_gpus, directory, request.gpus, labels)
    selection = Selection(*_range(request), gpus=uuids)
    head = _head(await _read(directory, telemetry.minutes_from_s), telemetry.COLUMNS)
    if (limit := request.limit) is not None:
        rows = await _read(directory, telemetry.newest, selection, limit + 1)
        yield replace(head, more=len(rows) > limit)
        for first in range(max(len(rows) - limit, 0), len(rows), TELEMETRY_AT_ONCE):
            yield await asyncio.to_thread(_telemetry, rows[first : first + TELEMETRY_AT_ONCE])
        return
    yield head
    step_s, last = HOUR_S if request.hourly else MINUTE_S, None
    while rows := await _read(
        directory, telemetry.rows_after, selection, step_s, last, TELEMETRY_AT_ONCE
    ):
        yield await asyncio.to_thread(_telemetry, rows)
        last = rows[-1]


def _read(directory: Path, query: Callable[..., T], *args: object) -> Awaitable[T]:
    return asyncio.to_thread(reader.read, directory, query, *args, patience_s=PATIENCE_S)


def _head(from_s: float, columns: tuple[str, ...] = ()) -> RowsLine:
    raw_from_s = from_s if math.isfinite(from_s) else None
    raw_from = None if raw_from_s is None else export.rfc_3339(raw_from_s)
    return RowsLine(raw_from=raw_from, raw_from_s=raw_from_s, columns=columns)


def _telemetry(rows: Sequence[TelemetryRow]) -> bytes:
    return b"".join(
        encoded(
            TelemetryLine(
                cells=(
                    export.rfc_3339(row.at_s),
                    row.at_s,
                    KINDS[row.step_s],
                    *row[2:4],
                    *row.figures,
                )
            )
        )
        for row in rows
    )


def _range(request: HistoryRequest | TelemetryRequest) -> tuple[float, float]:
    since_s, until_s = request.since_s, request.until_s
    return -math.inf if since_s is None else since_s, math.inf if until_s is None else until_s


def _encoded(rows: Sequence[RowLine]) -> bytes:
    return b"".join(map(encoded, rows))


def _selection(
    directory: Path,
    request: HistoryRequest,
    labels: Mapping[str, Label],
    specs: Sequence[ProbeSpec],
) -> Selection:
    if request.probes:
        stored = reader.read(directory, queries.probes)
        _refuse_unknown("probe", request.probes, {*stored, *(spec.name for spec in specs)})
    if request.modes:
        modes = set(reader.read(directory, queries.modes, request.probes))
        for spec in specs:
            if not request.probes or spec.name in request.probes:
                modes.update(spec.modes)
        _refuse_unknown("mode", request.modes, modes)
    return Selection(
        *_range(request),
        request.probes,
        request.modes,
        _gpus(directory, request.gpus, labels),
    )


def _refuse_unknown(what: str, names: Sequence[str], there: set[str]) -> None:
    for name in names:
        if name not in there:
            fix = f"one of {', '.join(map(escaped, sorted(there)))}" if there else None
            raise ConfigError(f"the history has no {what} {name!a:.60}", fix=fix)


def _gpus(directory: Path, names: Sequence[str], labels: Mapping[str, Label]) -> tuple[str, ...]:
    """Return the UUIDs of GPUs given by number, by UUID or the beginning of one, or by ``cpu``."""
    if not names:
        return ()
    past = dict.fromkeys(reader.read(directory, queries.gpus), Label())
    uuids = (uuid_of(name, {**past, **labels, "cpu": Label()}) for name in names)
    return tuple(CPU if uuid == "cpu" else uuid for uuid in uuids)
