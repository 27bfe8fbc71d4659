"""Collection of telemetry: sources asked in order of priority, each answer published at once.

Each public module in ``gpud.agent.telemetry.sources`` is a source: it defines ``NAME``, whose place
in ``gpud.core.telemetry.LEVELS`` is its priority, and ``create(context)``. With ``STARTS_A_PROGRAM
= True`` it is asked last, and a slow one does not delay the next collection.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import structlog

from gpud import discovery
from gpud.agent.state.telemetry import with_start
from gpud.agent.telemetry import sources as folder
from gpud.agent.telemetry.answers import Answer
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
PATIENCE_S = 1.0
"""For the programs: a quick answer belongs to the collection that asked for it."""


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

    async def close(self) -> None:
        """End what was started."""


class Looking(Protocol):
    """What can be asked at any moment, not only when a collection is due."""

    async def look(self, patience_s: float) -> tuple[Reading, ...]:
        """Return readings from now on, not older ones. ``Errors: TelemetryError``, ``slow`` too."""


@runtime_checkable
class Live(Looking, Protocol):
    """A source that may be asked at any moment and every second; it knows the GPUs' processes."""

    async def live(self) -> LiveAnswer:
        """Return what changes from second to second. ``Errors: TelemetryError``."""


def create(context: SourceContext) -> tuple[dict[str, TelemetrySource], dict[str, TelemetrySource]]:
    """Create every source that is not switched off, by name and the best first.

    Returns those that answer by themselves, and those that start a program.
    """
    usable, refused = discovery.modules(folder, OFFERS)
    for name, module in tuple(usable.items()):
        if module.NAME not in LEVELS:
            del usable[name]
            refused[name] = "its NAME has no place in gpud.core.telemetry.LEVELS"
    for name, why in refused.items():
        log.error("telemetry_source_refused", source=name, reason=why)
    quick: dict[str, TelemetrySource] = {}
    programs: dict[str, TelemetrySource] = {}
    for module in sorted(usable.values(), key=lambda module: -LEVELS.index(module.NAME)):
        if module.NAME not in context.settings.telemetry.disabled:
            group = programs if getattr(module, "STARTS_A_PROGRAM", False) else quick
            group[module.NAME] = module.create(context)
    return quick, programs


class Collection:
    """All sources together. ``changes`` publishes the answer of each."""

    def __init__(
        self,
        context: SourceContext,
        changes: ChangeDetection,
        sources: tuple[Mapping[str, TelemetrySource], Mapping[str, TelemetrySource]],
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._context = context
        self._changes = changes
        self._quick, self._programs = sources
        self._patience_s = patience_s
        self._lock = asyncio.Lock()
        self._asking: asyncio.Task[None] | None = None  # the programs

    async def collect(self) -> None:
        """Ask every source once; a second collection waits for the first to end.

        Programs that are still busy with an earlier one are not asked again.
        """
        async with self._lock:
            await self._ask(self._quick)
            if self._asking is None:
                self._asking = asyncio.create_task(self._ask(self._programs))
            await asyncio.wait([self._asking], timeout=self._patience_s)
            if self._asking.done():
                ended, self._asking = self._asking, None
                ended.result()  # a bug in it is raised here

    async def _ask(self, sources: Mapping[str, TelemetrySource]) -> None:
        for source in sources.values():
            answer = await source.collect()
            if answer is not None:
                self._changes.answered(answer)

    async def look(self, patience_s: float) -> tuple[Reading, ...]:
        """Return what the best source that can be asked at any moment reads now.

        Who asks may leave meanwhile: what the source has begun, such as the end of a helper that
        hangs, is done all the same.

        Errors: ``TelemetryError``: its own, or ``no_source`` where there is none.
        """
        return await asyncio.shield(self._live().look(patience_s))

    async def live(self) -> LiveAnswer:
        """Return what the source that may be asked every second answers now, as ``look`` does.

        Errors: ``TelemetryError``: its own, or ``no_source`` where there is none.
        """
        return await asyncio.shield(self._live().live())

    def _live(self) -> Live:
        for source in self._quick.values():
            if isinstance(source, Live):
                return source
        raise TelemetryError("no telemetry source can be asked right now", reason="no_source")

    async def close(self) -> None:
        """End what the sources started; a program that runs is left to its end."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        for source in (*self._quick.values(), *self._programs.values()):
            await source.close()
