"""Delivery to sinks of a test's own, or to configured ones, with a real history on disk."""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpud.agent.alerts.delivery import Delivery
from gpud.agent.alerts.sink import Sinks, configured
from gpud.agent.alerts.state import AlertState
from gpud.agent.history.store import History
from gpud.agent.measure.clocks import now
from gpud.agent.state.board import Board
from gpud.core.alerts import SinkState
from gpud.core.clock import Backoff
from gpud.core.errors import StoreError
from gpud.core.health import Health, Level
from tests.agent.alerts.telling import LOST, SLOW, context
from tests.events import made
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from gpud.agent.alerts.message import Message
    from gpud.agent.alerts.sink import Sink
    from gpud.core.alerts import Alert
    from gpud.core.clock import Instant

SOON = "group_wait_s = 0.0\nwarm_up_s = 0.0\n"
QUICK = Backoff(first_s=0.02, longest_s=0.1)


@dataclass
class RecordingSink:
    """A sink that keeps its messages, and fails while ``error`` is set."""

    name: str = "recording"
    place: str = "a list"
    shows: bool = False
    error: Exception | None = None
    messages: list[Message] = field(default_factory=list)
    tries: int = 0

    async def send(self, message: Message) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error
        self.messages.append(message)

    @property
    def sent(self) -> list[str]:
        """The alerts in order: "+name" fires, "-name" is resolved."""
        return [
            word
            for message in self.messages
            for word in (
                *(f"+{alert.name}" for alert in message.firing),
                *(f"-{alert.name}" for alert in message.resolved),
            )
        ]


@dataclass
class Story:
    """An agent with nothing but alerts and their delivery."""

    board: Board
    history: History
    state: AlertState

    def fire(self, *alerts: Alert) -> None:
        """Make these the alerts that fire; others end."""
        self.state.sync({SLOW.name, LOST.name}, alerts, time.time())

    async def run(self) -> None:
        """Publish and write what changes, as the agent does every second."""
        while True:
            with contextlib.suppress(StoreError):
                await self.state.publish_and_write()
            await asyncio.sleep(0.01)

    async def when(self, good: Callable[[], object], what: str) -> None:
        ends_s = time.monotonic() + LIMIT_S
        while not good():
            assert time.monotonic() < ends_s, f"{what}; {self.board.read().alerts.sinks}"
            await asyncio.sleep(0.01)  # another process, or another task's turn

    def state_of(self, name: str) -> SinkState:
        return self.board.read().alerts.sinks.get(name, SinkState())

    @property
    def health(self) -> Health:
        return self.board.read().health.get("alerts", Health(Level.OK))


@asynccontextmanager
async def delivering(
    folder: Path,
    *sinks: Sink,
    text: str = SOON,
    timeout_s: float = 30.0,
    clock: Callable[[], Instant] = now,
) -> AsyncIterator[Story]:
    """Run delivery to these sinks, or to those that ``text`` configures."""
    made_for = context(folder, text, timeout_s=timeout_s)
    board, history = Board(made("1", 0.0)), History(folder)
    story = Story(board, history, AlertState(history, board=board, now=clock))
    delivery = Delivery(
        Sinks(sinks, {}) if sinks else configured(made_for),
        made_for.settings.alerts,
        board=board,
        alerts=story.state,
        history=history,
        now=clock,
        retry=QUICK,
        tick_s=0.02,
    )
    with contextlib.suppress(StoreError):
        await story.state.load()
    tasks = [asyncio.create_task(work) for work in (story.run(), delivery.run())]
    try:
        yield story
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await history.close()
