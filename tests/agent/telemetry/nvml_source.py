"""The source NVML with a clock that a test may put forward, and what it started."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from gpud.agent.measure import clocks
from gpud.agent.state.board import Board
from gpud.agent.telemetry.collection import SourceContext
from gpud.agent.telemetry.sources.nvml import Nvml
from gpud.core.clock import Instant
from gpud.core.settings import Settings, parse
from tests.events import made

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gpud.agent.telemetry.answers import Answer
    from gpud.core.sample import Absent, Reading

PATIENCE_S = 60.0


def settings_for(library: Path | str) -> Settings:
    return parse(f'[nvml]\nlibrary = "{library}"\n'.encode(), {})


@dataclass
class Clock:
    """The machine's clock, which a test may put forward."""

    ahead_s: float = 0.0

    def now(self) -> Instant:
        real = clocks.now()
        return Instant(real.wall_s + self.ahead_s, real.mono_s + self.ahead_s)


@dataclass
class Story:
    """A source, its clock and the board that counts the helpers it has started."""

    source: Nvml
    clock: Clock
    board: Board

    @property
    def spawned(self) -> int:
        """How many helpers were started."""
        return self.board.read().measure.children

    @property
    def pid(self) -> int | None:
        """The helper's, while there is one."""
        helper = self.source._helper
        return None if helper is None or helper.reference is None else helper.reference.pid

    async def late_answer(self) -> None:
        """Wait until the helper has given the answer that it owes."""
        assert self.source._helper is not None
        await asyncio.wait_for(self.source._helper.out.line.wait(), PATIENCE_S)

    async def collect(self) -> Answer:
        answer = await self.source.collect()
        assert answer is not None
        return answer

    def patient(self) -> None:
        """From now on a driver that is well has time enough, on a busy machine too."""
        self.source._deadline_s = PATIENCE_S

    async def fields(self, gpu: int | None = 0) -> dict[str, float | str | Absent]:
        answer = await self.collect()
        assert answer.reason is None, answer.detail
        return by_field(answer.readings, gpu)


@asynccontextmanager
async def telling(  # each is one thing a test chooses
    library: Path | str,
    *,
    settings: Settings | None = None,
    wsl: bool = False,
    own: Path | None = None,
    **options: Any,
) -> AsyncIterator[Story]:
    clock = Clock()
    kernel = {"kernel": "6.6.87.2-microsoft-standard-WSL2"} if wsl else {}
    board = Board(made("1", 0.0, platform=kernel))
    settings = settings_for(library) if settings is None else settings
    with TemporaryDirectory() as folder:
        own = own or Path(folder)
        source = Nvml(SourceContext(settings, board, clock.now, own), **options)
        try:
            yield Story(source, clock, board)
        finally:
            await source.close()


async def collected(library: Path | str, **options: Any) -> Answer:
    async with telling(library, **options) as story:
        return await story.collect()


def by_field(readings: tuple[Reading, ...], gpu: int | None = 0) -> dict[str, float | str | Absent]:
    return {reading.field: reading.value for reading in readings if reading.gpu == gpu}
