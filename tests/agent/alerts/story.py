"""Delivery to sinks of a test's own, or to configured ones, with a real history on disk."""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpud.agent.alerts.registry import Found, found
from gpud.agent.board import Board
from gpud.agent.clocks import now
from gpud.agent.delivery import Delivery
from gpud.agent.store import History
from gpud.core import plainalerts
from gpud.core.alerts import SinkState
from gpud.core.backoff import Backoff
from gpud.core.events import AlertsChanged
from gpud.core.ledger import Ledger
from gpud.core.ledger import alerts as told
from gpud.core.snapshot import Snapshot
from tests.agent.alerts.telling import context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from gpud.agent.alerts.sink import Sink
    from gpud.core.alerts import Alert
    from gpud.core.clock import Instant
    from gpud.core.errors import DeliveryError
    from gpud.core.health import Health
    from gpud.core.message import Message

PATIENCE_S = 60.0


@dataclass
class Told:
    """A sink that keeps what it is told, and fails while ``error`` is set."""

    name: str = "told"
    place: str = "a list"
    shows: bool = False
    error: Exception | None = None
    unready: DeliveryError | None = None
    heard: list[Message] = field(default_factory=list)
    tries: int = 0

    async def ready(self) -> None:
        if self.unready is not None:
            raise self.unready

    async def send(self, message: Message) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error
        self.heard.append(message)

    @property
    def words(self) -> list[str]:
        """What was told, in order: "+name" fires, "-name" is over."""
        told = [
            (*(f"+{a.name}" for a in m.firing), *(f"-{a.name}" for a in m.resolved))
            for m in self.heard
        ]
        return [word for words in told for word in words]


@dataclass
class Story:
    """An agent's end of it."""

    folder: Path
    board: Board
    changed: asyncio.Event
    history: History
    alerts: tuple[Alert, ...] = ()
    ledger: Ledger = field(default_factory=Ledger)

    def publish(self, *alerts: Alert) -> None:
        """Say what there is to tell, the troubles of sinks beside it."""
        self.alerts = alerts
        now_s = time.time()
        self.board.post(AlertsChanged((*alerts, *told(self.ledger, now_s)), now_s))

    def raised(self, alert: Alert) -> None:
        """Keep a trouble as the ledger does."""
        self.ledger = plainalerts.raised(self.ledger, alert)
        self.publish(*self.alerts)

    def ended(self, fingerprint: str, at_s: float) -> None:
        self.ledger = plainalerts.ended(self.ledger, fingerprint, at_s)
        self.publish(*self.alerts)

    async def when(self, good: Callable[[], object], what: str) -> None:
        ends_s = time.monotonic() + PATIENCE_S
        while not good():
            assert time.monotonic() < ends_s, f"{what}; {self.board.read().sinks}"
            await asyncio.sleep(0.01)  # another process, or another task's turn

    def state(self, name: str) -> SinkState:
        return self.board.read().sinks.get(name, SinkState())

    @property
    def health(self) -> Health:
        return self.board.read().health["alerts"]


SOON = "group_wait_s = 0.0\nwarm_up_s = 0.0\n"
QUICK = Backoff(first_s=0.02, longest_s=0.1)


@asynccontextmanager
async def telling(
    folder: Path,
    *sinks: Sink,
    text: str = SOON,
    timeout_s: float = 30.0,
    clock: Callable[[], Instant] = now,
) -> AsyncIterator[Story]:
    """Run delivery to these sinks, or to those that ``text`` configures."""
    changed = asyncio.Event()
    board = Board(Snapshot("1", 0.0), changed=changed.set)
    made = context(folder, text, timeout_s=timeout_s)
    history = History(folder, now=lambda: "x")
    story = Story(folder, board, changed, history)
    telling = Delivery(
        Found(sinks, {}) if sinks else found(made),
        made.settings.alerts,
        changed=changed,
        read=board.read,
        publish=board.post,
        now=clock,
        history=history,
        raised=story.raised,
        ended=story.ended,
        retry=QUICK,
    )
    task = asyncio.create_task(telling.run())
    try:
        yield story
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await history.close()
