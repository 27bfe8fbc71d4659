"""Container probe of the supervisor: its schedule, its process and the result; it never waits.

``Plan.due`` gives at most one task at a time and ``Plan.finish`` takes its result. A run is
announced first: other users of the GPU read the report and step aside, so none needs a lock.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from msgspec import structs

from gpud.core import wire
from gpud.core.report import (
    ContainerFailure,
    ContainerRun,
    ContainersReport,
    Owner,
    ProbeStage,
    ProcessRef,
    ToolkitReport,
    ToolkitState,
)
from gpud.core.sample import Failure, Reason, Skip
from gpud.core.text import escaped
from gpud.root.conditions import PATH
from gpud.root.dockerd_facts import Api

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.core.sections import ContainerSettings
    from gpud.core.settings import Settings
    from gpud.root.daemonconfig import DaemonConfig
    from gpud.root.dockerd_facts import DockerdObservation

COMMAND = (sys.executable, "-I", "-m", "gpud.root.container_probe")
LARGEST_RESULT = 64 * 1024
"""What a pipe holds: the result is read when its writer is gone, and never waited for."""
RUN_MARGIN_S: Final = 180.0
"""Beyond the container's own deadline, for stopping and removing it."""
LOOK_EVERY_S: Final = 600.0
"""A toolkit that was just installed, or an image just pulled, is noticed this soon."""
SETTLE_S: Final = 3.0
"""A dockerd that has just come is left to its own start, and so is the agent."""
ANNOUNCE_S: Final = 6.0
"""The agent reads the report every 2 s and its own runs take less than the rest."""
RETRY_S: Final = 900.0
"""After a failure; it doubles with each further one up to the interval."""
STOP_S: Final = 30
"""A program that uses the GPU gets this long to end by itself before Docker kills it."""
MAY_END_DOCKERD: Final = frozenset(
    {
        *(Reason.HUNG, Reason.DOCKERD_LOST, Reason.KILLED),
        *(Reason.DOCKER_ERROR, Reason.CONTAINER_FAILED, Reason.INTERNAL),
    }
)
"""Failures that may have ended dockerd, such as a machine without memory; all others are tried
again at once with the next dockerd."""

log = structlog.get_logger()


class Task(StrEnum):
    """Work of the container probe's process."""

    LOOK = "look"
    PULL = "pull"  # fetch the image, and look: for `gpud install --gpu-containers`
    RUN = "run"


LOOK_S: Final = 120.0
"""A look also removes what was left behind, which may take dockerd half a minute."""


class ContainerJob(msgspec.Struct, frozen=True):
    """Argument of the container probe's process, as JSON."""

    task: Task
    socket: str
    image: str
    deadline_s: float
    owner: str  # the value of the label on its containers
    parent: int  # the supervisor's pid
    config_file: str = "/etc/docker/daemon.json"
    path: str = PATH  # where the toolkit's programs are looked for
    desktop: bool = False  # Docker Desktop's engine
    stop_s: int = STOP_S


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Document that the container probe's process prints; what it did not do is None.

    ``failure`` is the task's; a run has either that or a figure in ``run``.
    """

    toolkit: ToolkitReport | None = None
    image_present: bool | None = None
    run: ContainerRun | None = None
    failure: Failure | None = None


class Plan:
    """Schedule of looks and runs. Units: monotonic seconds."""

    def __init__(self, settings: ContainerSettings, now_s: float) -> None:
        self.report = ContainersReport(ProbeStage.WAITING, settings.image)
        self._settings = settings
        self._next_run_s = now_s + settings.first_after_s
        self._next_look_s = now_s + SETTLE_S
        self._next_skip_s = 0.0  # a due run that cannot be is counted once an interval
        self._announced_s: float | None = None
        self._busy: Task | None = None
        self._dockerd: ProcessRef | None = None  # the one that was looked at
        self._failed = 0  # runs in a row
        self._enter(ProbeStage.WAITING)

    def due(self, dockerd: ProcessRef | None, now_s: float, *, answers: bool) -> Task | None:
        """Return what is to be started now, if anything.

        ``dockerd`` is the process behind the socket, None where it cannot be known.
        """
        if self._busy is not None:
            return None
        run_due = self._settings.probe and now_s >= self._next_run_s
        if not answers:
            self._announced_s = None
            self._enter(ProbeStage.WAITING)
            if run_due:
                self._skip(Skip.DOCKERD_DOWN, now_s)
        elif self._announced_s is None:
            if dockerd != self._dockerd:
                self._meet(dockerd, now_s)
            self._busy = self._next(now_s, run_due=run_due)
        elif now_s >= self._announced_s + ANNOUNCE_S:  # everybody has had time to read it
            self._announced_s = None
            self._enter(ProbeStage.RUNNING)
            self._busy = Task.RUN
        return self._busy

    def finish(self, result: TaskResult, *, wall_s: float, now_s: float) -> None:
        """Record how the task ended."""
        task, self._busy = self._busy, None
        before, toolkit = self.report.toolkit, result.toolkit or self.report.toolkit
        if toolkit is None and result.failure is not None:
            toolkit = ToolkitReport(ToolkitState.UNKNOWN, "look_failed", result.failure.detail)
        present = result.image_present
        if present is None:
            present = self.report.image_present
        self.report = structs.replace(self.report, toolkit=toolkit, image_present=present)
        self._enter(ProbeStage.WAITING)
        if self._failed and before and toolkit and before.state is not toolkit.state:
            self._next_run_s = min(self._next_run_s, now_s)  # the toolkit was mended
        if task is Task.RUN:
            failure = ContainerFailure.of(result.failure)
            run = result.run or ContainerRun(wall_s, now_s, 0.0, failure=failure)
            self._count(run, now_s)

    def _meet(self, dockerd: ProcessRef | None, now_s: float) -> None:
        """Forget what the former dockerd had: images, a toolkit, a failure a restart can mend."""
        run = self.report.run
        if run is not None and run.failure and run.failure.reason not in MAY_END_DOCKERD:
            self._next_run_s = min(self._next_run_s, now_s)
        self._dockerd = dockerd
        self._next_look_s = now_s + SETTLE_S
        self.report = structs.replace(self.report, image_present=None, toolkit=None)

    def _next(self, now_s: float, *, run_due: bool) -> Task | None:
        """Return a look that is due; announce a run, or count why it cannot be."""
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + LOOK_EVERY_S
            return Task.LOOK
        if not run_due or self.report.image_present is None:
            return None
        if self.report.image_present:
            self._announced_s = now_s
            self._enter(ProbeStage.ANNOUNCED)
            return None
        self._skip(Skip.IMAGE_ABSENT, now_s)
        return None

    def _count(self, run: ContainerRun, now_s: float) -> None:
        before, figure = self.report, run.figure
        after = structs.replace(before, run=run, runs=before.runs + 1)
        pause_s = self._settings.interval_s
        if figure is not None:
            self._failed = 0
            self.report = structs.replace(
                after, last_success_s=run.finished_s, gpu_index=figure.gpu_index
            )
        else:
            pause_s = min(pause_s, RETRY_S * 2.0 ** min(self._failed, 30))
            self._failed += 1
            failures = before.failures
            if run.failure:
                failures = _counted(failures, run.failure.reason)
            self.report = structs.replace(after, failures=failures)
        self._next_run_s = now_s + pause_s

    def _skip(self, reason: Skip, now_s: float) -> None:
        """Count it once an interval; the run stays due, and is made as soon as it can be."""
        if now_s >= self._next_skip_s:
            self.report = structs.replace(self.report, skips=_counted(self.report.skips, reason))
            self._next_skip_s = now_s + self._settings.interval_s

    def _enter(self, stage: ProbeStage) -> None:
        self.report = structs.replace(
            self.report, stage=stage if self._settings.probe else ProbeStage.OFF
        )


def _counted(counts: dict[str, int], key: str) -> dict[str, int]:
    return {**counts, key: counts.get(key, 0) + 1}


class Containers:
    """One process at a time. ``step`` and ``ended`` are called by the loop."""

    def __init__(self, settings: Settings, command: Sequence[str] = COMMAND) -> None:
        self._settings = settings
        self._command = tuple(command)
        self._plan = Plan(settings.containers, time.monotonic())
        self._child: subprocess.Popen[bytes] | None = None
        self._deadline_s = 0.0

    def report(self) -> ContainersReport:
        """Return the state of GPU containers."""
        return self._plan.report

    def step(self, dockerd: DockerdObservation, config: DaemonConfig, now_s: float) -> None:
        """Start what is due, and end what outlived its deadline."""
        if self._child is not None:
            if now_s >= self._deadline_s:
                # Not ``kill()``, which may reap it where the loop would never hear of it. It is a
                # client of dockerd's; its container is removed by the next one.
                os.kill(self._child.pid, signal.SIGKILL)
                self._deadline_s = float("inf")
            return
        task = self._plan.due(dockerd.process, now_s, answers=dockerd.api is Api.ANSWERS)
        if task is not None:
            run_s = self._settings.containers.deadline_s + RUN_MARGIN_S
            self._deadline_s = now_s + (LOOK_S if task is Task.LOOK else run_s)
            self._start(task, dockerd, config)

    def ended(self, pid: int, status: int) -> None:
        """Take the result of our child by its wait status; any other process is not ours."""
        child = self._child
        if child is None or child.pid != pid:
            return
        child.returncode = os.waitstatus_to_exitcode(status)
        self._child = None
        self._finish(_result(child))

    def stop(self) -> None:
        """End the child with the supervisor; a container of its is removed by the next one."""
        if self._child is not None:
            with self._child as child:
                child.send_signal(signal.SIGKILL)
            self._child = None

    def _start(self, task: Task, dockerd: DockerdObservation, config: DaemonConfig) -> None:
        job = ContainerJob(
            task,
            config.socket,
            image=self._settings.containers.image,
            deadline_s=self._settings.containers.deadline_s,
            owner=identity(self._settings),
            parent=os.getpid(),
            config_file=config.file,
            desktop=dockerd.owner == Owner.DOCKER_DESKTOP,
        )
        try:
            self._child = subprocess.Popen(
                [*self._command, msgspec.json.encode(job)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                cwd="/",
                env={"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            detail = f"cannot start {self._command[0]}: {error.strerror}"
            self._finish(TaskResult(failure=Failure(Reason.SPAWN_FAILED, detail)))

    def _finish(self, result: TaskResult) -> None:
        before = self._plan.report.run
        self._plan.finish(result, wall_s=time.time(), now_s=time.monotonic())
        run = self._plan.report.run
        if run is not None and run is not before:
            figure, failure = run.figure, run.failure
            log.info(
                "container_run",
                flops_per_second=None if figure is None else figure.flops_per_second,
                reason=None if failure is None else str(failure.reason),
                detail=None if failure is None else escaped(failure.detail),
            )
        elif result.failure is not None:
            log.warning("container_look_failed", detail=escaped(result.failure.detail))


def identity(settings: Settings) -> str:
    """Return what tells this gpud from all others that speak to the same dockerd.

    Docker Desktop's engine is that of every distribution, and each calls its directory /run/gpud;
    but each has a file system of its own, and the kernel a number for it made from its UUID.
    """
    return f"{settings.run_dir}@{os.statvfs(settings.log_dir).f_fsid:x}"


def _result(child: subprocess.Popen[bytes]) -> TaskResult:
    """Read what an ended child left in its pipe. Errors: none; no result is a failure."""
    text = b""
    if child.stdout is not None:
        with child.stdout as pipe:
            os.set_blocking(pipe.fileno(), False)
            with contextlib.suppress(BlockingIOError):
                text = os.read(pipe.fileno(), LARGEST_RESULT)
    if child.returncode == -signal.SIGKILL:
        detail = "dockerd kept it waiting beyond its deadline, or somebody killed it"
        return TaskResult(failure=Failure(Reason.KILLED, detail))
    try:
        return msgspec.json.decode(text, type=TaskResult)
    except wire.UNREADABLE as error:
        detail = f"exit code {child.returncode}: {error}"
        return TaskResult(failure=Failure(Reason.INTERNAL, detail))
