"""Collection of telemetry: sources asked one after the other, each answer published at once.

Each public module in ``gpud.agent.telemetry.sources`` is a source: it defines ``NAME``, whose place
in ``gpud.core.telemetry.LEVELS`` is its priority, and ``create(context)``. The machine is asked
before any driver: it tells whether there is a GPU to speak of. With ``STARTS_A_PROGRAM = True`` a
source is asked last: no other one of the collection waits for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import structlog

from gpud import discovery
from gpud.agent.state.telemetry import with_start
from gpud.agent.telemetry import sources as folder
from gpud.agent.telemetry.answers import Answer
from gpud.agent.telemetry.sources import nvml
from gpud.agent.telemetry.sources.nvml import Nvml
from gpud.core.errors import TelemetryError
from gpud.core.telemetry import LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gpud.agent.state.board import Board
    from gpud.agent.state.changes import ChangeDetection
    from gpud.agent.telemetry.answers import LiveAnswer
    from gpud.core.clock import Instant
    from gpud.core.sample import Reading
    from gpud.core.settings import Settings

log = structlog.get_logger()

OFFERS = ("NAME", "create")


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What every source may use. ``own`` is the agent's own directory, gone with the boot."""

    settings: Settings
    board: Board
    now: Callable[[], Instant]
    own: Path

    def count_start(self, source: str) -> None:
        """Count a program that a source started."""
        self.board.publish(telemetry=with_start(self.board.read().telemetry, source))

    def answer(
        self,
        source: str,
        begun: Instant,
        readings: tuple[Reading, ...] | TelemetryError,
        *,
        holds_s: float,
    ) -> Answer:
        """Return the answer of a source that was asked at ``begun``: readings, or why none."""
        answer = Answer(
            source,
            LEVELS.index(source),
            begun.wall_s,
            begun.mono_s,
            holds_s=holds_s,
            duration_s=self.now().mono_s - begun.mono_s,
        )
        if isinstance(readings, tuple):
            return replace(answer, readings=readings)
        return replace(answer, reason=readings.reason, detail=str(readings), fix=readings.fix)


class TelemetrySource(Protocol):
    """One place that numbers come from."""

    async def collect(self) -> Answer | None:
        """Return the present readings, or why there are none; None when there is nothing new.

        Never raises a ``TelemetryError`` and has a deadline of its own.
        """


def create(context: SourceContext) -> dict[str, TelemetrySource]:
    """Create every source that is not switched off, by name: the best last, but for programs."""
    usable, refused = discovery.modules(folder, OFFERS)
    for name, why in refused.items():
        log.error("telemetry_source_refused", source=name, reason=why)
    in_order = sorted(usable.values(), key=lambda module: LEVELS.index(module.NAME))
    in_order.sort(key=lambda module: getattr(module, "STARTS_A_PROGRAM", False))
    disabled = context.settings.telemetry.disabled
    return {m.NAME: m.create(context) for m in in_order if m.NAME not in disabled}


class Collection:
    """All sources together. ``changes`` publishes the answer of each."""

    def __init__(self, changes: ChangeDetection, sources: Mapping[str, TelemetrySource]) -> None:
        self._changes, self._sources = changes, sources
        source = sources.get(nvml.NAME)
        self._nvml = source if isinstance(source, Nvml) else None

    async def collect(self) -> None:
        """Ask every source once, in order; one collection at a time."""
        for source in self._sources.values():
            answer = await source.collect()
            if answer is not None:
                self._changes.answered(answer)

    async def look(self, patience_s: float) -> tuple[Reading, ...]:
        """Return what conditions are made of, as ``Nvml.look`` reads it now.

        Who asks may leave meanwhile: what the source has begun, such as the end of a helper that
        hangs, is done all the same.

        Errors: ``TelemetryError``: its own, or ``no_source`` where NVML is switched off.
        """
        return await asyncio.shield(self._asked_now().look(patience_s))

    async def live(self) -> LiveAnswer:
        """Return what changes from second to second, and the processes of each GPU.

        Who asks may leave meanwhile. Errors: as ``look``.
        """
        return await asyncio.shield(self._asked_now().live())

    def _asked_now(self) -> Nvml:
        if self._nvml is None:
            raise TelemetryError("no telemetry source can be asked right now", reason="no_source")
        return self._nvml

    async def close(self) -> None:
        """End NVML's helper; a program that runs is left to its end."""
        if self._nvml is not None:
            await self._nvml.close()
