"""The composition root: the only file that names the adapters, and the wiring diagram as code."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

import gpud
from gpud.agent import logs, platform
from gpud.agent.alerts.delivery import Delivery
from gpud.agent.alerts.sink import Context as SinkContext
from gpud.agent.alerts.sink import configured
from gpud.agent.alerts.state import AlertState
from gpud.agent.history import retention
from gpud.agent.history.store import History
from gpud.agent.measure.boundary import Boundary
from gpud.agent.measure.clocks import local_min, now
from gpud.agent.measure.conditions import Observer, on_battery
from gpud.agent.measure.gatekeeper import Gatekeeper
from gpud.agent.measure.launch import Launcher
from gpud.agent.measure.pipeline import Pipeline
from gpud.agent.measure.schedule import Schedule
from gpud.agent.regression.detector import Parameters
from gpud.agent.regression.service import Regression
from gpud.agent.serve.api.routes import routes as api_routes
from gpud.agent.serve.http.app import app
from gpud.agent.serve.http.serving import HttpService
from gpud.agent.serve.local.actions import Actions
from gpud.agent.serve.local.socket import SocketServer
from gpud.agent.serve.metrics import machineid
from gpud.agent.serve.metrics.collector import SnapshotCollector
from gpud.agent.state import presence, recentruns, rootstatus, settingswatch, status
from gpud.agent.state.board import Board
from gpud.agent.state.changes import Watcher
from gpud.agent.state.events import (
    BreakerChanged,
    ChildSpawned,
    ClockJumped,
    PlatformRead,
    ProgramStarted,
)
from gpud.agent.state.facts import beside_a_run
from gpud.agent.state.snapshot import Snapshot
from gpud.agent.telemetry import collection, windows
from gpud.agent.telemetry.collection import Collection
from gpud.agent.telemetry.source import Context
from gpud.core import advice, clock, containers
from gpud.core.sample import Pace
from gpud.core.settings import GROUP, LOCK, SOCKET

if TYPE_CHECKING:
    from gpud.agent.measure.boundary import Work
    from gpud.core.settings import Settings

TICK_S = 1.0
LARGE_AFTER_S = 1.0
"""The first large round follows the first small one at once: a newcomer wants to see numbers."""

log = structlog.get_logger()


def prepare(settings: Settings) -> Path:
    """Make the agent's directories where root has not, and give the one for its own files.

    Errors: none that matter here; what cannot be made is reported by whoever needs it.
    """
    own = Path(settings.run_dir, "agent")
    api = Path(settings.run_dir, SOCKET[0])
    for directory in (own, api, Path(settings.state_dir), Path(settings.log_dir, "agent")):
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
    return own


async def run(settings: Settings, config: Path) -> int:
    """Run the agent until SIGTERM or SIGINT; ``config`` is gpud.toml. Gives the exit code."""
    own = prepare(settings)
    logs.configure(Path(settings.log_dir, "agent/agent.log"), level=settings.log.level)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    dirty = asyncio.Event()
    known, boot_id = platform.facts(settings.sysroot), platform.boot_id()
    gpu_from = platform.gpu_from(settings, known, now())
    board = Board(
        Snapshot(
            version=gpud.__version__,
            started_s=time.time(),
            url=settings.http.url,
            gpu_from_s=None if gpu_from is None else gpu_from.wall_s,
            platform=known,
            machine=machineid.facts(settings.state_dir, os.uname().nodename),
            library_configured=bool(settings.cuda.library or settings.nvml.library),
        ),
        changed=dirty.set,
    )

    def spawned() -> None:
        board.post(ChildSpawned())

    launcher = Launcher(
        Path(settings.run_dir, LOCK),
        platform=advice.of(known),
        gpu_from_s=0.0 if gpu_from is None else gpu_from.mono_s,
        on_spawn=spawned,
        on_breaker=lambda standing: board.post(BreakerChanged(standing, time.time())),
    )
    history = History(
        Path(settings.state_dir), now=lambda: datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    )
    context = Context(
        settings,
        now=now,
        read=board.read,
        spawned=spawned,
        started=lambda source: board.post(ProgramStarted(source)),
        own=own,
        on_battery=lambda: on_battery(settings.sysroot),
    )
    watcher = Watcher(history, read=board.read, publish=board.post, now=now, boot_id=boot_id)
    telemetry = Collection(collection.create(context), read=board.read, post=watcher.post, now=now)
    alerts = AlertState(history, board=board, now=now)
    regression = Regression(
        history,
        alerts,
        Parameters(
            look_span_s=settings.detector.update_span_s,
            window_span_s=settings.detector.window_span_s,
        ),
        board=board,
        now=now,
    )
    pipeline = Pipeline(
        settings=settings,
        launcher=launcher,
        history=history,
        gate=Gatekeeper(
            settings.gate,
            look=Observer(telemetry, settings.sysroot).look,
            remembered=history.undisturbed,
            now=now,
            local_min=local_min,
            resumed_s=lambda: board.read().resumed_mono_s,
        ),
        publish=watcher.post,
        now=now,
        boot_id=boot_id,
        cache_dir=str(Path(settings.state_dir, "cuda-cache")),
        gpu_taken=lambda: containers.taken(board.read().root),
        beside=lambda: beside_a_run(board.read(), now().mono_s),
        missed=lambda: presence.misses_a_gpu(board.read()),
        regression=regression,
    )
    application = app(
        board.read,
        settings,
        SnapshotCollector(board.read, settings, now, os.uname().nodename),
        now,
        api_routes(board.read, history, settings, time.time),
    )
    http = HttpService(application, settings.http, board, stop)
    delivery = Delivery(
        configured(SinkContext(settings, os.uname().nodename, spawned)),
        settings.alerts,
        board=board,
        alerts=alerts,
        history=history,
        now=now,
    )
    schedule, plan = Schedule(), settings.schedule
    boundary = Boundary(board.post)
    jobs: tuple[tuple[str, float, Work, float, float], ...] = (
        ("telemetry", plan.telemetry_interval_s, telemetry.collect, 0.0, 0.0),
        ("small", plan.small_interval_s, lambda: pipeline.round(Pace.SMALL), plan.jitter_ratio, 0),
        (
            "large",
            plan.large_interval_s,
            lambda: pipeline.round(Pace.LARGE),
            plan.jitter_ratio,
            LARGE_AFTER_S,
        ),
        (
            "retention",
            retention.EVERY_S,
            lambda: retention.keep(history, settings.store),
            0.0,
            retention.FIRST_AFTER_S,
        ),
        (
            "store",
            retention.MEASURED_EVERY_S,
            lambda: retention.measure(history, board.post),
            0.0,
            retention.MEASURED_FIRST_S,
        ),
    )
    for name, interval_s, job, jitter_ratio, first_after_s in jobs:
        schedule.every(
            interval_s,
            name,
            boundary.job(name, job),
            jitter_ratio=jitter_ratio,
            first_after_s=first_after_s,
        )
    with contextlib.suppress(OSError):  # the first run says why its lock cannot be opened
        launcher.look()
    schedule.start()
    actions = Actions(
        settings,
        read=board.read,
        history=history,
        regression=regression,
        watcher=watcher,
        launcher=launcher,
        pipeline=pipeline,
    )
    works: tuple[tuple[str, Work], ...] = (
        ("tick", lambda: _ticking(settings, board, schedule)),
        ("containers", lambda: _hearing(board, pipeline)),
        ("changes", watcher.run),
        ("regression", regression.run),
        ("recent", lambda: recentruns.recalled(history, board.read, watcher.post)),
        ("alert state", alerts.run),
        ("windows", lambda: _asking_windows(context, watcher)),
        ("alerts", delivery.run),
        ("report", lambda: _reporting(own / "agent.json", board, dirty)),
        ("socket", _local_socket(settings, actions).run),
        ("settings", lambda: settingswatch.watch(config, settings.home, board.post)),
        ("http", http.run),
    )
    tasks = [asyncio.create_task(boundary.task(name, work), name=name) for name, work in works]
    # What is here by now stays, and to search all of it for cycles takes 30 ms of everybody.
    gc.collect()
    gc.freeze()
    log.info("agent_started", version=gpud.__version__, pid=os.getpid(), http=settings.http.listen)
    await stop.wait()
    schedule.stop()
    await _ended(tasks)
    launcher.close()
    await telemetry.close()
    await watcher.settle()
    await regression.close()
    await alerts.close()
    await history.close()
    log.info("agent_stopped")
    return 0


def _local_socket(settings: Settings, actions: Actions) -> SocketServer:
    """Serve people of the group; in a development run our own user alone."""
    group = GROUP if settings.home == "/" else None
    return SocketServer(Path(settings.run_dir, SOCKET[0]), actions, group)


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    """Give the listener its second to close, then cancel what still runs."""
    serving = tasks.pop()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(serving, 2.0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _ticking(settings: Settings, board: Board, schedule: Schedule) -> None:
    """Once a second: compare the clocks, and hear what root says."""
    path = Path(settings.run_dir, "root.json")
    before = now()
    while True:
        after = now()
        offset_s = clock.jumped(before, after, threshold_s=clock.BETWEEN_TICKS_S)
        if offset_s is not None:
            log.warning("clock_jumped", offset_s=round(offset_s, 3))
            board.post(ClockJumped(offset_s, after.wall_s, after.mono_s))
            if offset_s > 0:
                rest_s = min(clock.rest_s(offset_s), settings.gate.resume_rest_s)
                schedule.after_pause(offset_s, rest_s=rest_s)
        before = after
        board.post(rootstatus.read(path, after))
        await asyncio.sleep(TICK_S)


async def _asking_windows(context: Context, watcher: Watcher) -> None:
    """Learn once what only Windows knows; a change of it needs a new start of the machine."""
    if not context.read().platform.get("wsl"):
        return
    if versions := await windows.versions(context.settings.sysroot, context.spawned):
        watcher.post(PlatformRead(versions, time.time()))


async def _hearing(board: Board, pipeline: Pipeline) -> None:
    """Keep root's container runs; a slow disk delays nothing else."""
    while True:
        await pipeline.heard(board.read())
        await asyncio.sleep(TICK_S)


async def _reporting(path: Path, board: Board, dirty: asyncio.Event) -> None:
    """Write agent.json after a change, at most once a second, whole and renamed into place."""
    while True:
        await dirty.wait()
        dirty.clear()
        document = status.typed(board.read(), now=now())
        temporary = path.with_suffix(".tmp")
        try:
            temporary.write_bytes(msgspec.json.encode(document) + b"\n")
            temporary.chmod(0o644)  # for everybody, as root.json is
            temporary.rename(path)
        except OSError as error:
            log.warning("no_status_file", path=str(path), error=error.strerror)
        await asyncio.sleep(TICK_S)
