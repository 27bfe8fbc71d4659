"""Figures of one probe over time, out of the rows of the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from gpud.agent import historyscope, reader, thinrows
from gpud.agent.charting.question import Nameless
from gpud.agent.charting.thinning import Series, thinned
from gpud.agent.wanted import CPU
from gpud.core.sample import SCHEMA_VERSION

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from gpud.agent.charting.question import Asked, Known
    from gpud.agent.thinrows import Thin

RAW_RANGE_S: Final = 2 * 86400.0
PATIENCE_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class HistoryAnswer:
    """Figures of one probe over time, thinned out; a hole wider than ``step_s`` is a gap.

    ``since_s`` and ``until_s`` are what was asked for, widened to whole steps. ``source``: up to
    two days come from the runs themselves, longer from the hours and the runs after them.
    """

    probe: str
    since_s: int
    until_s: int
    step_s: int
    source: Literal["runs", "hours"]
    series: list[Series]
    schema_version: int = SCHEMA_VERSION


def found(directory: Path, asked: Asked, known: Known) -> HistoryAnswer | Nameless:
    """Read and thin out, or say which name nobody knows. Errors: ``StoreError``."""
    series = reader.ask(directory, lambda c: _found(c, asked, known), patience_s=PATIENCE_S)
    if isinstance(series, Nameless):
        return series
    return HistoryAnswer(
        asked.probe,
        asked.steps.since_s,
        asked.steps.until_s,
        asked.steps.length_s,
        "hours" if asked.hourly else "runs",
        series,
    )


def _found(connection: sqlite3.Connection, asked: Asked, known: Known) -> list[Series] | Nameless:
    series = thinned(_rows(connection, asked), asked.steps)
    if not series and asked.probe not in known.modes:
        names = historyscope.probes(connection)
        if asked.probe not in names:
            return Nameless("probe", asked.probe, tuple(sorted({*known.modes, *names})))
    modes = {*known.modes.get(asked.probe, ()), *(one.mode for one in series)}
    for mode in asked.modes:
        if mode not in modes and not historyscope.has_mode(connection, asked.probe, mode):
            return Nameless("mode", mode, tuple(sorted(modes)))
    gpus = {CPU, *known.gpus, *(one.gpu for one in series)}
    if unseen := [gpu for gpu in asked.gpus if gpu not in gpus]:
        past = historyscope.gpus(connection)
        for gpu in unseen:
            if gpu not in past:
                return Nameless("gpu", gpu, (*known.gpu_names, *past))
    return series


def _rows(connection: sqlite3.Connection, asked: Asked) -> Iterator[Thin]:
    if asked.hourly:
        return thinrows.hours(connection, asked.wanted, most_s=RAW_RANGE_S)
    return thinrows.runs(connection, asked.wanted)
