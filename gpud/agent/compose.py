"""The wiring of the running agent: every part is made here, with the parts that it calls."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import math
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog
from msgspec.structs import replace

import gpud
from gpud import logs
from gpud.agent import platform
from gpud.agent.alerts import sink
from gpud.agent.alerts.delivery import Delivery
from gpud.agent.alerts.state import AlertState
from gpud.agent.history import retention
from gpud.agent.history.store import History
from gpud.agent.measure import grace, pace
from gpud.agent.measure.clocks import ClockWatch, now
from gpud.agent.measure.conditions import Observer
from gpud.agent.measure.gate import Gate
from gpud.agent.measure.gpu_contexts import GpuContexts
from gpud.agent.measure.launch import Launcher
from gpud.agent.measure.pace import Rounds
from gpud.agent.measure.pipeline import Pipeline
from gpud.agent.measure.schedule import Schedule
from gpud.agent.regression.detector import Spans
from gpud.agent.regression.service import Regression
from gpud.agent.serve.http.app import app
from gpud.agent.serve.http.service import HttpService
from gpud.agent.serve.local.actions import Actions
from gpud.agent.serve.local.socket import SocketServer
from gpud.agent.serve.local.watching import Watching
from gpud.agent.serve.metrics import machineid
from gpud.agent.serve.metrics.collector import SnapshotCollector
from gpud.agent.state import files
from gpud.agent.state.board import Board
from gpud.agent.state.changes import ChangeDetection
from gpud.agent.state.known_faults import KnownFaultWatch
from gpud.agent.state.minutes import TelemetryMinutes
from gpud.agent.state.snapshot import MachineState, PaceState, Snapshot
from gpud.agent.telemetry import collection, windows
from gpud.agent.telemetry.collection import Collection, SourceContext
from gpud.agent.ticks import to_tick_s
from gpud.core import advice
from gpud.core.settings import GROUP, LOCK, SOCKET
from gpud.core.wsl import is_wsl2

if TYPE_CHECKING:
    from gpud.agent.measure.schedule import Work
    from gpud.core.settings import Settings

CONTAINERS_S: Final = 30.0
"""A container measures every six hours; its run is shown at once and stored after so long."""
HTTP_CLOSE_S: Final = 2.0
FREEZE_S: Final = 1.0
"""After the start: whoever asked meanwhile has an answer."""
SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
SHORTAGE_EVERY_S: Final = 60.0

log = structlog.get_logger()


def prepare(settings: Settings) -> Path:
    """Make the agent's directories where root has not; return the one for its own files.

    Errors: none; a directory that cannot be made is reported where it is used.
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
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.set_exception_handler(LoopErrors())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    agent = Agent(settings, config, own, stop)
    await agent.run()
    log.info("agent_stopped")
    return 0


class LoopErrors:
    """Logs errors of the event loop that nobody awaits.

    asyncio reports a connection that it cannot take for want of a descriptor 128 times a second,
    each with a traceback; here that is one line a minute.
    """

    def __init__(self) -> None:
        self._reported_s = -math.inf

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log one error."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in SHORTAGES:
            loop.default_exception_handler(context)
        elif loop.time() - self._reported_s >= SHORTAGE_EVERY_S:
            self._reported_s = loop.time()
            log.warning("connection_not_taken", why=error.strerror)


class Agent:
    """All parts of the agent. A run goes through ``pipeline`` to ``regression`` to ``alerts``."""

    def __init__(self, settings: Settings, config: Path, own: Path, stop: asyncio.Event) -> None:
        self.settings, self.config, self.own, self.stop = settings, config, own, stop
        facts, boot_id = platform.facts(settings.sysroot), platform.boot_id()
        gpu_from = grace.gpu_from(settings, facts, now())
        self.plan = pace.plan(
            settings.schedule,
            wsl2=is_wsl2(facts.get("kernel", "")),
            on_battery=settings.gate.on_battery,
        )
        self.contexts = GpuContexts(Path(settings.state_dir), boot_id, self.plan.budget)
        self.rounds = Rounds(self.plan, self.contexts)
        self.board = board = Board(
            Snapshot(
                MachineState(
                    version=gpud.__version__,
                    started_s=time.time(),
                    url=settings.http.url,
                    gpu_from_s=None if gpu_from is None else gpu_from.wall_s,
                    platform=facts,
                    identity=machineid.facts(settings.state_dir, os.uname().nodename),
                    library_configured=bool(settings.cuda.library or settings.nvml.library),
                ),
                pace=self._pace(),
            )
        )
        self.launcher = Launcher(
            Path(settings.run_dir, LOCK),
            board=board,
            platform=advice.of(facts),
            gpu_from_s=0.0 if gpu_from is None else gpu_from.mono_s,
            contexts=self.contexts,
            leave_hung=settings.cuda.leaves_hung(facts.get("kernel", "")),
        )
        self.history = history = History(Path(settings.state_dir))
        self.changes = ChangeDetection(history, board, now, boot_id)
        self.telemetry = self._telemetry()
        interval_s = settings.schedule.telemetry_interval_s
        self.minutes = TelemetryMinutes(history, board, now, interval_s)
        self.alerts = AlertState(history, board=board, now=now)
        spans = Spans(settings.detector.update_span_s, settings.detector.window_span_s)
        self.regression = Regression(history, self.alerts, spans, board=board, now=now)
        observer = Observer(self.telemetry, settings.sysroot)
        self.schedule = Schedule(board)
        self.clock_watch = ClockWatch(board, self.schedule, self.launcher, now())
        self.pipeline = Pipeline(
            settings,
            launcher=self.launcher,
            gate=Gate(settings.gate, observer, history, board, now),
            clock_watch=self.clock_watch,
            history=history,
            regression=self.regression,
            changes=self.changes,
            board=board,
            now=now,
            boot_id=boot_id,
        )
        self.known_faults = KnownFaultWatch(board)

    async def run(self) -> None:
        """Run all jobs and tasks until ``stop``, then close every part in order."""
        with contextlib.suppress(OSError):  # the first run says why its lock cannot be opened
            self.launcher.look()
        tasks = [
            asyncio.create_task(self.schedule.task(name, work), name=name)
            for name, work in self._tasks().items()
        ]
        self._plan()
        self.schedule.start()
        asyncio.get_running_loop().call_later(FREEZE_S, _freeze)
        log.info("agent_started", version=gpud.__version__, pid=os.getpid())
        await self.stop.wait()
        self.schedule.stop()
        await _end(tasks)
        self.launcher.close()
        await self.telemetry.close()
        await self.minutes.close()
        await self.regression.close()
        await self.alerts.close()
        await self.history.close()

    def _plan(self) -> None:
        """Plan what happens at intervals."""
        every, plan, pipeline = self.schedule.every, self.settings.schedule, self.pipeline
        jitter = plan.jitter_ratio
        every(plan.telemetry_interval_s, "telemetry", self._collect)
        every(self.rounds.interval_s, "round", pipeline.round, self.rounds, jitter_ratio=jitter)
        every(
            retention.EVERY_S,
            "retention",
            retention.keep,
            self.history,
            self.settings.store,
            first_after_s=retention.FIRST_AFTER_S,
        )
        every(
            retention.MEASURED_EVERY_S,
            "store",
            retention.measure,
            self.history,
            self.board,
            first_after_s=retention.MEASURED_FIRST_S,
        )
        every(CONTAINERS_S, "containers", pipeline.store_container_run)
        every(files.EVERY_S, "settings", self._look_at_settings)

    def _tasks(self) -> dict[str, Work]:
        """Name the tasks: the listener, consumers of queues, and the socket."""
        return {
            "http": self._http().run,
            "tick": self._ticks,
            "changes": self.changes.run,
            "minutes": self.minutes.run,
            "regression": self.regression.run,
            "alert state": self.alerts.run,
            "windows": self._ask_windows,
            "alerts": self._delivery().run,
            "report": lambda: files.write_status(self.own, self.board, now),
            "socket": self._socket().run,
        }

    def _telemetry(self) -> Collection:
        context = SourceContext(self.settings, self.board, now, self.own)
        return Collection(self.changes, collection.create(context))

    def _delivery(self) -> Delivery:
        context = sink.Context(self.settings, os.uname().nodename, self.board.count_process)
        return Delivery(
            sink.configured(context),
            self.settings.alerts,
            board=self.board,
            alerts=self.alerts,
            history=self.history,
            now=now,
        )

    def _socket(self) -> SocketServer:
        """Serve people of the group; in a development run our own user alone."""
        watching = Watching(
            self.settings,
            read=self.board.read,
            telemetry=self.telemetry,
            launcher=self.launcher,
            now=now,
        )
        actions = Actions(
            self.settings,
            read=self.board.read,
            history=self.history,
            regression=self.regression,
            changes=self.changes,
            launcher=self.launcher,
            pipeline=self.pipeline,
            watching=watching,
        )
        group = GROUP if self.settings.home == "/" else None
        return SocketServer(Path(self.settings.run_dir, SOCKET[0]), actions, group)

    def _http(self) -> HttpService:
        read, settings = self.board.read, self.settings
        collector = SnapshotCollector(read, settings, now, os.uname().nodename)
        application = app(read, self.history, settings, collector, now)
        return HttpService(application, settings.http, self.board, self.stop)

    def _pace(self) -> PaceState:
        container_s = self.settings.containers.interval_s
        return PaceState(self.rounds.beat(), self.contexts.used, self.contexts.budget, container_s)

    async def _ticks(self) -> None:
        """Tick again and again; as a job of the schedule that would be six turns of the loop."""
        while True:
            self._tick()
            await asyncio.sleep(to_tick_s())

    def _tick(self) -> None:
        """Compare the clocks, publish pace and root's status, then look for known faults."""
        at = now()
        self.clock_watch.look(at)
        if (current := self._pace()) != self.board.read().pace:
            self.board.publish(pace=current)
        files.publish_root_status(Path(self.settings.run_dir, "root.json"), self.board, at)
        self.known_faults.look()

    async def _collect(self) -> None:
        await self.telemetry.collect()
        self.minutes.sample()

    async def _look_at_settings(self) -> None:
        await files.check_settings(self.config, self.settings.home, self.board)

    async def _ask_windows(self) -> None:
        """Ask once what only Windows knows; a change of it needs a new start of the machine."""
        if self.board.read().machine.platform.get("wsl"):
            versions = await windows.versions(self.settings.sysroot, self.board.count_process)
            if versions:
                before = self.board.read().machine
                machine = replace(before, platform={**before.platform, **versions})
                self.board.publish(machine=machine)
                self.changes.compare()


def _freeze() -> None:
    """Keep what is here by now: to search all of it for cycles takes 30 ms of everybody."""
    gc.collect()
    gc.freeze()
    gc.enable()


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Give the listener, the first one, time to close; then cancel what still runs."""
    listener = tasks.pop(0)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(listener, HTTP_CLOSE_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
