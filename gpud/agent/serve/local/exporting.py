"""Rows of the history for ``gpud history``, read in slices so that nothing else waits for long."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from gpud.agent.history import export, queries, reader, telemetry
from gpud.agent.history.export import Selection
from gpud.agent.history.schema import CPU, HOUR_S, MINUTE_S
from gpud.core.errors import ConfigError
from gpud.core.gpu_names import Label, uuid_of
from gpud.core.text import escaped
from gpud.requests import RowLine, RowsLine, encoded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence

    from gpud.core.sample import ProbeSpec
    from gpud.requests import AnswerLine, Cells, HistoryRequest

PATIENCE_S: Final = 30.0
RUNS_AT_ONCE: Final = 200
HOURS_AT_ONCE_S: Final = 2 * 86400.0
ROWS_AT_ONCE: Final = 500


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

    def read(query: Callable[..., Any], *args: object) -> Awaitable[Any]:
        return asyncio.to_thread(reader.read, directory, query, *args, patience_s=PATIENCE_S)

    def encode(rows: Sequence[Any]) -> Awaitable[bytes]:
        return asyncio.to_thread(_encoded, map(kept.cells, rows))

    directory = Path(state_dir)
    kept = telemetry if request.telemetry else export
    selection = await asyncio.to_thread(_selection, directory, request, labels, specs)
    from_s = await read(kept.raw_from_s)
    head = RowsLine(columns=kept.COLUMNS)
    if math.isfinite(from_s):
        head = replace(head, raw_from=export.rfc_3339(from_s), raw_from_s=from_s)
    if (limit := request.limit) is not None:
        rows = await read(kept.newest, selection, limit + 1)
        yield replace(head, more=len(rows) > limit)
        for first in range(max(len(rows) - limit, 0), len(rows), ROWS_AT_ONCE):
            yield await encode(rows[first : first + ROWS_AT_ONCE])
        return
    yield head
    async for rows in _pages(read, selection, request):
        yield await encode(rows)


async def _pages(
    read: Callable[..., Awaitable[Any]], selection: Selection, request: HistoryRequest
) -> AsyncGenerator[Sequence[Any], None]:
    """Yield all rows of a selection, the oldest first, as many as are read at once."""
    after: Any = None
    if request.telemetry:
        step_s = HOUR_S if request.hourly else MINUTE_S
        while rows := await read(telemetry.rows_after, selection, step_s, after, ROWS_AT_ONCE):
            yield rows
            after = rows[-1]
        return
    query: Any = export.hours_after if request.hourly else export.runs_after
    most = HOURS_AT_ONCE_S if request.hourly else RUNS_AT_ONCE
    while True:
        rows, after = await read(query, selection, after, most)
        yield rows
        if after is None:
            return


def _encoded(rows: Iterable[Cells]) -> bytes:
    return b"".join(encoded(RowLine(cells=cells)) for cells in rows)


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
    since_s = -math.inf if request.since_s is None else request.since_s
    until_s = math.inf if request.until_s is None else request.until_s
    gpus = _gpus(directory, request.gpus, labels)
    return Selection(since_s, until_s, request.probes, request.modes, gpus)


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
