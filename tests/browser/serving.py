"""The real web application on a real port, over a snapshot and a history that a test chooses."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import structs

from gpud.core.clock import Instant
from gpud.core.sections import PathSettings
from gpud.core.settings import parse
from tests import snapshots
from tests.agent.serve.http.armed import web
from tests.e2e.program import free_port

if TYPE_CHECKING:
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
    _running: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def change(self, snapshot: Snapshot) -> None:
        """Serve another snapshot, five seconds later: a rendering serves everybody for one."""
        self.snapshot = snapshot
        self.now = Instant(self.now.wall_s + 5, self.now.mono_s + 5)

    def start(self) -> None:
        """Listen, each time on the same port."""
        settings = structs.replace(parse(None, {}), paths=PathSettings(state=str(self.folder)))
        serving = web(settings, lambda: self.snapshot, lambda: self.now, port=self.port)
        self._running.enter_context(serving)

    def stop(self) -> None:
        """Answer nobody any more."""
        self._running.close()


@contextlib.contextmanager
def site(snapshot: Snapshot, folder: Path) -> Iterator[Site]:
    """Serve, and stop at the end."""
    made = Site(snapshot, folder)
    made.start()
    try:
        yield made
    finally:
        made.stop()
