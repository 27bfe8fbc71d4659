"""A regression service with a real history, in as many lives as a story takes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpud.agent.alerts.state import AlertState
from gpud.agent.history.records import Run
from gpud.agent.history.store import History
from gpud.agent.regression.detector import Spans
from gpud.agent.regression.service import Regression
from gpud.agent.state.board import Board
from gpud.core.clock import Instant
from gpud.core.errors import StoreError
from gpud.core.sample import Backend, Device, RunReport, Sample, Unit
from tests.events import made

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from gpud.agent.regression.detector import StreamStanding
    from gpud.core.sample import Condition, Flag
    from gpud.core.streams import StreamKey

FIRST_S = 1_760_000_000.0
MINUTE_S = 60.0
SPANS = Spans()


def gpu(number: int = 0) -> Device:
    return Device(
        number, f"GPU-{number}", "RTX", f"0000:0{number}:00.0", "8.9", 46, 1 << 25, 1 << 33
    )


def sample(mode: str, median: float, unit: Unit = Unit.SECONDS) -> Sample:
    return Sample(mode, unit, 100, median, median, median, median, median, median)


@dataclass
class World:
    """What would be measured, minute by minute: the machine, and the time that passes."""

    driver: str | None = "572.16"
    level: float = 12e-6
    noise: float = 0.02
    at_s: float = FIRST_S
    probe: str = "launch"
    modes: tuple[str, ...] = ("submit",)
    unit: Unit = Unit.SECONDS
    device: Device | None = field(default_factory=gpu)
    conditions: dict[str, Condition] = field(default_factory=dict)
    rng: random.Random = field(default_factory=lambda: random.Random(7))

    def run(self, *flags: Flag, **changes: Any) -> Run:
        """Let a minute pass and give its run; ``changes`` hold for it and all that follow."""
        for name, value in changes.items():
            setattr(self, name, value)
        self.at_s += MINUTE_S
        known = {} if self.driver is None else {"driver_version": self.driver}
        samples = tuple(
            sample(mode, self.level * math.exp(self.rng.gauss(0, self.noise)), self.unit)
            for mode in self.modes
        )
        report = RunReport(
            self.probe,
            Backend.CPU if self.device is None else Backend.CUDA,
            self.device,
            samples,
            conditions={"kernel": "6.6.87.2-microsoft-standard-WSL2", **known, **self.conditions},
        )
        return Run(report, self.at_s, "boot", flags)

    def runs(self, count: int, **changes: Any) -> list[Run]:
        return [self.run(**changes) for _ in range(count)]


def regression(
    history: History,
    board: Board | None = None,
    alerts: AlertState | None = None,
    spans: Spans = SPANS,
    now: Callable[[], Instant] = lambda: Instant(FIRST_S, 0.0),
) -> Regression:
    """Wire a regression service; what is left out is of its own."""
    board = board or Board(made("1", 0.0))
    alerts = alerts or AlertState(history, board=board, now=now)
    return Regression(history, alerts, spans, board=board, now=now)


@dataclass
class Life:
    """One agent's life."""

    history: History
    spans: Spans = SPANS
    mono_s: float = 0.0

    def __post_init__(self) -> None:
        self.board = Board(made("1", 0.0))
        self.alerts = AlertState(self.history, board=self.board, now=self.now)
        self.regression = regression(self.history, self.board, self.alerts, self.spans, self.now)
        self.task: asyncio.Task[None] | None = None

    def now(self) -> Instant:
        return Instant(FIRST_S + self.mono_s, self.mono_s)

    async def begin(self) -> None:
        self.task = asyncio.create_task(self.regression.run())
        await self.regression.ready()

    async def keep(self, runs: Sequence[Run]) -> None:
        for run in runs:
            async with self.regression.turn:
                try:
                    await self.history.append(run)
                finally:
                    self.regression.evaluate(run)

    async def refused(self, runs: Sequence[Run]) -> None:
        """Hand in runs that cannot be written now."""
        for run in runs:
            with contextlib.suppress(StoreError):
                await self.keep([run])

    async def settled(self, *, refused: bool = False) -> None:
        """Let the task look after things, and the alerts be published."""
        with contextlib.suppress(*([StoreError] if refused else [])):
            await self.regression.step()
        self.alerts.step()

    async def end(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task

    def states(self) -> dict[StreamKey, str]:
        evaluator = self.regression._evaluator
        return {key: evaluator.encoded(key) for key in evaluator.streams}

    def standing(self, mode: str = "submit") -> StreamStanding:
        streams = self.board.read().streams
        (standing,) = [standing for key, standing in streams.items() if key.mode == mode]
        return standing


@contextlib.asynccontextmanager
async def life(
    folder: Path, *, killed: bool = False, begun: bool = True, spans: Spans = SPANS
) -> AsyncIterator[Life]:
    """``killed``: what is known at the end is not written, as after SIGKILL."""
    agent = Life(History(folder), spans)
    if begun:
        await agent.begin()
    try:
        yield agent
    finally:
        await agent.end()
        if not killed:
            await agent.regression.close()
        await agent.history.close()
