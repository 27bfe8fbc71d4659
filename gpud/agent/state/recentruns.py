"""The recent past of every series, read from the history once at a start."""

from __future__ import annotations

import asyncio
import json
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gpud.agent.regression.evaluation import JUDGED
from gpud.agent.state.recent import MOST, Point, Series, with_past
from gpud.core.errors import StoreError
from gpud.core.sample import Pace, Unit

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from gpud.agent.history.store import History
    from gpud.agent.state.board import Board

AGAIN_S: Final = 1.0
"""How soon it is asked again which probes there are, or for a history that could not be read."""
RUNS: Final = {Pace.SMALL: MOST, Pace.LARGE: 4 * MOST}
"""Clean runs of one probe on one GPU that are read: four of the large pace are an hour."""
LOOKED_THROUGH: Final = 4000
"""Newest runs of a probe among which they are looked for: on a busy GPU few are clean."""
_UNITS: Final = {unit.value: unit for unit in JUDGED}


async def restore(history: History, board: Board) -> None:
    """Read the past of the probes, once both are available, and publish it."""
    while True:
        specs = board.read().measure.specs
        if specs:
            paces = {spec.name: spec.pace for spec in specs}
            with suppress(StoreError):  # told by the runs that cannot be kept either
                found: list[Point] = []
                for probe, pace in paces.items():  # one at a time: a run that ends waits for less
                    found += await _asked(history, probe, RUNS[pace])
                measure = board.read().measure
                past = with_past(measure.recent, specs, found)
                board.publish(measure=replace(measure, recent=past))
                return
        await asyncio.sleep(AGAIN_S)


async def _asked(history: History, probe: str, most: int) -> list[Point]:
    return await history.read(lambda connection: list(last(connection, probe, most)))


def last(connection: sqlite3.Connection, probe: str, most: int) -> Iterator[Point]:
    """Give the clean medians of a probe's ``most`` newest clean runs on each GPU, newest first.

    SQLite's errors pass; what a damaged disk has made of a row is passed over.
    """
    rows = connection.execute(
        "WITH newest AS (SELECT id, finished_s, gpu_uuid, backend, conditions, flags, failure"
        " FROM runs WHERE probe = ? ORDER BY finished_s DESC LIMIT ?), clean AS (SELECT *,"
        " row_number() OVER (PARTITION BY gpu_uuid ORDER BY finished_s DESC) AS place FROM newest"
        " WHERE failure IS NULL AND flags = '[]' AND (gpu_uuid IS NOT NULL OR backend = 'cpu'))"
        " SELECT c.finished_s, CAST(c.gpu_uuid AS BLOB), CAST(c.conditions AS BLOB),"
        " CAST(s.mode AS BLOB), s.unit, s.median FROM clean c JOIN samples s ON s.run_id = c.id"
        " WHERE c.place <= ? AND s.peaks IS NULL ORDER BY c.finished_s DESC",
        (probe, LOOKED_THROUGH, most),
    )
    for at_s, gpu, conditions, mode, unit, median in rows:
        if unit in _UNITS and _finite(at_s) and _finite(median):
            series = Series(None if gpu is None else _text(gpu), probe, _text(mode))
            yield Point(series, Unit(unit), _version(conditions), at_s, median)


def _version(body: bytes | None) -> int:
    try:
        told = json.loads(body or b"{}").get("probe_version")
    except (ValueError, AttributeError, RecursionError):
        return 1
    return told if type(told) is int else 1


def _finite(value: object) -> bool:
    return type(value) is float and math.isfinite(value)


def _text(said: bytes) -> str:
    return said.decode(errors="replace")
