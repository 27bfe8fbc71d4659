"""A home whose agent is a thread of the test: its socket and its published status are real."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec

from gpud.agent.history.store import History
from gpud.agent.measure.launch import Launcher
from gpud.agent.measure.served import job_of
from gpud.agent.serve.local.actions import Actions
from gpud.agent.serve.local.socket import SocketServer
from gpud.agent.state import status
from gpud.agent.state.snapshot import Snapshot
from gpud.core.clock import Instant
from gpud.core.proc import start_ticks
from gpud.core.settings import SOCKET, Settings
from gpud.core.streams import EVERYTHING, Choice
from tests.events import made
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpud.agent.serve.local.socket import Answering
    from gpud.agent.serve.local.watching import Watching
    from gpud.document.machine import Expected

NOW_S = 1_760_000_000.0


@dataclass
class Decisions:
    """What people decided: stands for the regression service and for the detection of changes."""

    made: list[tuple[str, Choice | str]] = field(default_factory=list)
    uids: list[int] = field(default_factory=list)
    answers: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.answers.set()

    async def decide(
        self, kind: str, uid: int, choice: Choice = EVERYTHING, fingerprint: str | None = None
    ) -> None:
        await asyncio.to_thread(self.answers.wait, LIMIT_S)
        self.made.append((kind, fingerprint or choice))
        self.uids.append(uid)

    async def forget(self, gpus: Mapping[str, Expected], uid: int) -> None:
        self.made += [("gpu_forgotten", uuid) for uuid in gpus]
        self.uids.append(uid)


@contextlib.contextmanager
def listening(folder: Path, actions: Answering, group: str | None = None) -> Iterator[None]:
    """A server in a thread."""
    folder.mkdir(parents=True, exist_ok=True)
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []

    async def serve() -> None:
        task = asyncio.create_task(SocketServer(folder, actions, group).run())
        begun.append((asyncio.get_running_loop(), task))
        with contextlib.suppress(asyncio.CancelledError):
            await task

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        until((folder / SOCKET[-1]).exists, "the socket")
        yield
    finally:
        loop, task = begun[0]
        loop.call_soon_threadsafe(task.cancel)
        thread.join(LIMIT_S)
        (folder / SOCKET[-1]).unlink(missing_ok=True)  # else the next one seems to be there at once


@contextlib.contextmanager
def agent(
    home: Path,
    snapshot: Snapshot | None = None,
    *,
    published: dict[str, Any] | None = None,
    watching: Watching | None = None,
) -> Iterator[Decisions]:
    """An agent of ``home`` that knows ``snapshot``; ``published`` replaces parts of its status."""
    snapshot = snapshot or made("1", 0.0)
    settings = Settings(home=str(home))
    run_dir, state_dir = Path(settings.run_dir), Path(settings.state_dir)
    for folder in (run_dir, state_dir):
        folder.mkdir(parents=True, exist_ok=True)
    document = msgspec.to_builtins(status.document(snapshot, now=Instant(NOW_S, 1.0)))
    (run_dir / "agent.json").write_text(json.dumps({**document, **(published or {})}))
    ticks = start_ticks(Path("/proc/self/stat").read_text())
    (run_dir / "root.pid").write_text(f"{os.getpid()} {ticks}")
    decisions = Decisions()
    actions = Actions(
        settings,
        read=lambda: snapshot,
        history=History(state_dir),
        regression=cast("Any", decisions),
        changes=cast("Any", decisions),
        launcher=Launcher(None),
        pipeline=cast(
            "Any",
            SimpleNamespace(
                turn=contextlib.nullcontext(),
                confirm=lambda *_: None,
                job=lambda spec, *_: job_of(settings, spec),  # of the CPU's probes
            ),
        ),
        watching=cast("Any", watching),
    )
    with listening(run_dir / SOCKET[0], actions):
        yield decisions
