"""Asks the telemetry sources, one collection at a time, and passes on what each says at once.

The cheap ones come first and those that start a program last: what they are asked for is what
nobody else could tell. A program that takes its time delays no collection after this one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from gpud import discovery
from gpud.agent.telemetry import sources as folder
from gpud.agent.telemetry.source import OFFERS, Looking
from gpud.core import telemetry
from gpud.core.errors import TelemetryError
from gpud.core.events import SourceAnswered
from gpud.core.fields import WORTH_A_START
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpud.agent.telemetry.source import Context, Source
    from gpud.core.clock import Instant
    from gpud.core.events import Event
    from gpud.core.sample import Reading
    from gpud.core.snapshot import Snapshot

log = structlog.get_logger()

PATIENCE_S = 1.0
"""For the programs: a quick answer belongs to the collection that asked for it."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What to ask, by name: those that answer by themselves, and those that start a program."""

    quick: Mapping[str, Source]
    programs: Mapping[str, Source]


def found(context: Context) -> Sources:
    """Make every source that is there and not switched off, in the order in which to ask them."""
    usable, refused = discovery.modules(folder, OFFERS)
    for name, why in refused.items():
        log.error("telemetry_source_refused", source=name, reason=why)
    disabled = context.settings.telemetry.disabled
    chosen = [module for module in usable.values() if module.NAME not in disabled]
    chosen.sort(key=lambda module: -module.LEVEL)

    def made(*, programs: bool) -> dict[str, Source]:
        return {
            module.NAME: module.create(context)
            for module in chosen
            if getattr(module, "STARTS_A_PROGRAM", False) is programs
        }

    return Sources(quick=made(programs=False), programs=made(programs=True))


class Ladder:
    """All sources together. ``post`` takes the answer of each as an event."""

    def __init__(
        self,
        sources: Sources,
        *,
        read: Callable[[], Snapshot],
        post: Callable[[Event], None],
        now: Callable[[], Instant],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._sources = sources
        self._read = read
        self._post = post
        self._now = now
        self._patience_s = patience_s
        self._turn = asyncio.Lock()
        self._busy: asyncio.Task[None] | None = None  # with the programs

    async def collect(self) -> None:
        """Ask every source once; a second collection waits for the first to end.

        Programs that are still busy with an earlier one are not asked again.
        """
        async with self._turn:
            await self._ask(self._sources.quick)
            if self._busy is None:
                self._busy = asyncio.create_task(self._ask(self._sources.programs))
            await asyncio.wait([self._busy], timeout=self._patience_s)
            if self._busy.done():
                ended, self._busy = self._busy, None
                ended.result()  # what it raised is told like everything else

    async def _ask(self, sources: Mapping[str, Source]) -> None:
        for source in sources.values():
            answer = await source.collect(self._wanted())
            if answer is not None:
                self._post(SourceAnswered(answer, self._now().wall_s))

    async def look(self, patience_s: float) -> tuple[Reading, ...]:
        """Give what the best source that can be asked at any moment says now.

        Errors: ``TelemetryError``: its own, or ``no_source`` where there is none.
        """
        for source in self._sources.quick.values():
            if isinstance(source, Looking):
                return await source.look(patience_s)
        raise TelemetryError("no telemetry source can be asked right now", reason="no_source")

    async def close(self) -> None:
        """End what the sources started; a program that runs is left to its end."""
        if self._busy is not None:
            self._busy.cancel()
            await asyncio.wait([self._busy])
        for source in (*self._sources.quick.values(), *self._sources.programs.values()):
            await source.close()

    def _wanted(self) -> frozenset[str]:
        """Name the fields worth a program that some GPU, or the machine, lacks now.

        None where the person has switched the GPU off.
        """
        readings = telemetry.current(self._read().telemetry, self._now().mono_s)
        known: dict[int | None, set[str]] = {None: set()}
        for reading in readings:
            fields = known.setdefault(reading.gpu, set())
            if (reading.field, reading.value) == ("exposed", "disabled"):
                return frozenset()
            if not isinstance(reading.value, Absent):
                fields.add(reading.field)
        gpus = [fields for gpu, fields in known.items() if gpu is not None]
        common = set.intersection(*gpus) if gpus else set()
        return WORTH_A_START - common - known[None]
