"""Container probe as the supervisor drives it: start its process, read its result, never wait."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import msgspec
import structlog

from gpud.core import wire
from gpud.core.report import Owner
from gpud.core.sample import Failure, Reason
from gpud.core.text import escaped
from gpud.root.conditions import PATH
from gpud.root.container_plan import Job, Plan, Task, TaskResult
from gpud.root.dockerd_facts import Api

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.core.report import ContainersReport
    from gpud.core.settings import Settings
    from gpud.root.dockerd_facts import DockerdObservation

COMMAND = (sys.executable, "-I", "-m", "gpud.root.container_probe")
LARGEST_RESULT = 64 * 1024
"""What a pipe holds: the result is read when its writer is gone, and never waited for."""
LOOK_DEADLINE_S = 120.0
"""Removing what was left behind may take dockerd half a minute."""
PULL_DEADLINE_S = 3600.0
RUN_MARGIN_S = 180.0
"""Beyond the container's own deadline, for stopping and removing it."""

log = structlog.get_logger()


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

    def step(self, dockerd: DockerdObservation, socket: str, now_s: float) -> None:
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
            limits_s = {Task.LOOK: LOOK_DEADLINE_S, Task.PULL: PULL_DEADLINE_S}
            run_s = self._settings.containers.deadline_s + RUN_MARGIN_S
            self._deadline_s = now_s + limits_s.get(task, run_s)
            self._start(self._job(task, dockerd, socket))

    def ended(self, pid: int, status: int) -> bool:
        """Take the end of our child by its wait status; False for any other process."""
        child = self._child
        if child is None or child.pid != pid:
            return False
        child.returncode = os.waitstatus_to_exitcode(status)
        self._child = None
        self._finish(_result(child))
        return True

    def stop(self) -> None:
        """End the child with the supervisor; a container of its is removed by the next one."""
        if self._child is not None:
            with self._child as child:
                child.send_signal(signal.SIGKILL)
            self._child = None

    def _job(self, task: Task, dockerd: DockerdObservation, socket: str) -> Job:
        return Job(
            task,
            socket,
            image=self._settings.containers.image,
            deadline_s=self._settings.containers.deadline_s,
            owner=identity(self._settings),
            parent=os.getpid(),
            dockerd=None if dockerd.process is None else dockerd.process.pid,
            desktop=dockerd.owner is Owner.DOCKER_DESKTOP,
        )

    def _start(self, job: Job) -> None:
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
    """Tell this gpud from all others that speak to the same dockerd, now and after a restart.

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
