"""The real web application on a real port, over a snapshot and a history that a test chooses."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpud.agent.history.store import History
from gpud.agent.serve.http.access import AccessControl, RefusalCounter
from gpud.agent.serve.http.app import app
from gpud.agent.serve.http.service import bind, serve
from gpud.agent.serve.metrics.collector import SnapshotCollector
from gpud.core.clock import Instant
from gpud.core.sections import PathSettings
from gpud.core.settings import parse
from tests import snapshots
from tests.e2e.program import free_port

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from gpud.agent.state.snapshot import Snapshot


@dataclass
class Site:
    """What is served: exchange ``snapshot`` and the next answer tells of the new one."""

    snapshot: Snapshot
    folder: Path
    now: Instant = snapshots.NOW
    port: int = field(default_factory=free_port)
    _stop: list[contextlib.ExitStack] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def change(self, snapshot: Snapshot) -> None:
        """Serve another snapshot, five seconds later: a rendering serves everybody for one."""
        self.snapshot = snapshot
        self.now = Instant(self.now.wall_s + 5, self.now.mono_s + 5)

    def start(self) -> None:
        """Listen, each time on the same port."""
        running = contextlib.ExitStack()
        running.enter_context(_listening(self))
        self._stop.append(running)

    def stop(self) -> None:
        """Answer nobody any more."""
        while self._stop:
            self._stop.pop().close()


@contextlib.contextmanager
def site(snapshot: Snapshot, folder: Path) -> Iterator[Site]:
    """Serve, and stop at the end."""
    made = Site(snapshot, folder)
    made.start()
    try:
        yield made
    finally:
        made.stop()


@contextlib.contextmanager
def _listening(made: Site) -> Iterator[None]:
    loop = asyncio.new_event_loop()
    listener = bind("127.0.0.1", made.port)
    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(_serve(made, listener, stop)))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=20)
        listener.close()
        loop.close()


async def _serve(made: Site, listener: socket.socket, stop: asyncio.Event) -> None:
    settings = replace(parse(None, {}), paths=PathSettings(state=str(made.folder)))
    collector = SnapshotCollector(lambda: made.snapshot, settings, lambda: made.now)
    kept = History(made.folder)
    inner = app(lambda: made.snapshot, kept, settings, collector, lambda: made.now)
    application = AccessControl(inner, settings.http, RefusalCounter())
    try:
        await serve(application, listener, stop)
    finally:
        await kept.close()
