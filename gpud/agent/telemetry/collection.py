"""Collection of telemetry: sources asked in order of priority, each answer posted at once.

Sources that start a program come last: they are asked for what no better source gives, and a slow
one does not delay the next collection.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from gpud import discovery
from gpud.agent.telemetry import sources as folder
from gpud.agent.telemetry.source import OFFERS, Looking
from gpud.core import telemetry
from gpud.core.errors import TelemetryError
from gpud.core.fields import WORTH_A_START
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpud.agent.state.snapshot import Snapshot
    from gpud.agent.telemetry.source import Context, Source
    from gpud.core.clock import Instant
    from gpud.core.sample import Reading
    from gpud.core.telemetry import Answer

log = structlog.get_logger()

PATIENCE_S = 1.0
"""For the programs: a quick answer belongs to the collection that asked for it."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources by name, the best first: those that answer by themselves, and programs."""

    quick: Mapping[str, Source]
    programs: Mapping[str, Source]


def create(context: Context) -> Sources:
    """Create every source that is not switched off."""
    usable, refused = discovery.modules(folder, OFFERS)
    for name, why in refused.items():
        log.error("telemetry_source_refused", source=name, reason=why)
    disabled = context.settings.telemetry.disabled
    modules = [module for module in usable.values() if module.NAME not in disabled]
    modules.sort(key=lambda module: -module.LEVEL)
    quick: dict[str, Source] = {}
    programs: dict[str, Source] = {}
    for module in modules:
        group = programs if getattr(module, "STARTS_A_PROGRAM", False) else quick
        group[module.NAME] = module.create(context)
    return Sources(quick, programs)


class Collection:
    """All sources together. ``post`` takes the answer of each."""

    def __init__(
        self,
        sources: Sources,
        *,
        read: Callable[[], Snapshot],
        post: Callable[[Answer], None],
        now: Callable[[], Instant],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._sources = sources
        self._read = read
        self._post = post
        self._now = now
        self._patience_s = patience_s
        self._lock = asyncio.Lock()
        self._programs: asyncio.Task[None] | None = None  # that are asked now

    async def collect(self) -> None:
        """Ask every source once; a second collection waits for the first to end.

        Programs that are still busy with an earlier one are not asked again.
        """
        async with self._lock:
            await self._ask(self._sources.quick)
            if self._programs is None:
                self._programs = asyncio.create_task(self._ask(self._sources.programs))
            await asyncio.wait([self._programs], timeout=self._patience_s)
            if self._programs.done():
                ended, self._programs = self._programs, None
                ended.result()  # a bug in it is raised here

    async def _ask(self, sources: Mapping[str, Source]) -> None:
        for name, source in sources.items():
            answer = await source.collect(self._missing(telemetry.LEVELS.index(name)))
            if answer is not None:
                self._post(answer)

    async def look(self, patience_s: float) -> tuple[Reading, ...]:
        """Return what the best source that can be asked at any moment reads now.

        Errors: ``TelemetryError``: its own, or ``no_source`` where there is none.
        """
        for source in self._sources.quick.values():
            if isinstance(source, Looking):
                return await source.look(patience_s)
        raise TelemetryError("no telemetry source can be asked right now", reason="no_source")

    async def close(self) -> None:
        """End what the sources started; a program that runs is left to its end."""
        if self._programs is not None:
            self._programs.cancel()
            await asyncio.wait([self._programs])
        for source in (*self._sources.quick.values(), *self._sources.programs.values()):
            await source.close()

    def _missing(self, level: int) -> frozenset[str]:
        """Return the fields worth a program that no source above ``level`` gives for every GPU.

        None of them where the person has switched the GPU off.
        """
        answers, now_s = self._read().telemetry, self._now().mono_s
        better = {name: a for name, a in answers.answers.items() if a.level > level}
        given: dict[int | None, set[str]] = {None: set()}
        for reading in telemetry.current(replace(answers, answers=better), now_s):
            fields = given.setdefault(reading.gpu, set())
            if not isinstance(reading.value, Absent):
                fields.add(reading.field)
        machine = given.pop(None)
        common = set.intersection(*given.values()) if given else set()
        off = telemetry.of_machine(answers, "exposed", now_s) == "disabled"
        return frozenset() if off else WORTH_A_START - common - machine
