"""The supervisor's part of the container probe: start the short life, hear its word, never wait."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import structlog

from gpud.core import wire
from gpud.core.container_plan import Plan, Task, Word, begun, done, due
from gpud.core.errors import WireError
from gpud.core.report import Owner
from gpud.core.sample import Failure, Reason
from gpud.core.text import escaped
from gpud.root.conditions import PATH
from gpud.root.dockerd_facts import Api

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.core.report import ContainersReport
    from gpud.core.settings import Settings
    from gpud.root.dockerd_facts import DockerdObservation

COMMAND = (sys.executable, "-I", "-m", "gpud.root.container_probe")
LARGEST_WORD = 64 * 1024
"""What a pipe holds: the word is read when its writer is gone, and never waited for."""
LOOK_DEADLINE_S = 120.0
"""Removing what was left behind may take dockerd half a minute."""
PULL_DEADLINE_S = 3600.0
RUN_MARGIN_S = 180.0
"""Beyond the container's own deadline, for stopping and removing it."""

log = structlog.get_logger()


class Containers:
    """One short life at a time. ``step`` and ``ended`` are called by the loop."""

    def __init__(self, settings: Settings, command: Sequence[str] = COMMAND) -> None:
        self._settings = settings
        self._command = tuple(command)
        self._plan: Plan = begun(settings.containers, time.monotonic())
        self._child: subprocess.Popen[bytes] | None = None
        self._deadline_s = 0.0

    def report(self) -> ContainersReport:
        """Say how it is."""
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
        answers = dockerd.api is Api.ANSWERS
        self._plan, task = due(self._plan, dockerd.process, now_s, answers=answers)
        if task is not None:
            self._start(task, dockerd, socket, now_s)

    def ended(self, pid: int, status: int) -> bool:
        """Take the end of our child by its wait status; False when it is somebody else's."""
        child = self._child
        if child is None or child.pid != pid:
            return False
        child.returncode = os.waitstatus_to_exitcode(status)
        self._child = None
        self._heard(_word(child))
        return True

    def stop(self) -> None:
        """End the child with the supervisor; a container of its is removed by the next one."""
        if self._child is not None:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait()
            if self._child.stdout is not None:
                self._child.stdout.close()
            self._child = None

    def _heard(self, word: Word) -> None:
        before = self._plan
        self._plan = done(before, word, wall_s=time.time(), now_s=time.monotonic())
        run = self._plan.report.run
        if run is not None and run is not before.report.run:
            figure, failure = run.figure, run.failure
            log.info(
                "container_run",
                flops_per_second=None if figure is None else figure.flops_per_second,
                reason=None if failure is None else str(failure.reason),
                detail=None if failure is None else escaped(failure.detail),
            )
        elif word.failure is not None:
            log.warning("container_look_failed", detail=escaped(word.failure.detail))

    def _start(self, task: Task, dockerd: DockerdObservation, socket: str, now_s: float) -> None:
        wanted = self._settings.containers
        patience_s = {Task.LOOK: LOOK_DEADLINE_S, Task.PULL: PULL_DEADLINE_S}
        self._deadline_s = now_s + patience_s.get(task, wanted.deadline_s + RUN_MARGIN_S)
        line = [*self._command, str(task), f"--socket={socket}"]
        line += [f"--image={wanted.image}", f"--deadline={wanted.deadline_s}"]
        line += [f"--owner={identity(self._settings)}", f"--parent={os.getpid()}"]
        if dockerd.process is not None:
            line.append(f"--dockerd={dockerd.process.pid}")
        if dockerd.owner is Owner.DOCKER_DESKTOP:
            line.append("--desktop")
        try:
            self._child = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                cwd="/",
                env={"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            detail = f"cannot start {line[0]}: {error.strerror}"
            self._heard(Word(failure=Failure(Reason.SPAWN_FAILED, detail)))


def identity(settings: Settings) -> str:
    """Tell this gpud from all others that speak to the same dockerd, now and after a restart.

    Docker Desktop's engine is that of every distribution, and each calls its directory /run/gpud;
    but each has a file system of its own, and the kernel a number for it made from its UUID.
    """
    return f"{settings.run_dir}@{os.statvfs(settings.log_dir).f_fsid:x}"


def _word(child: subprocess.Popen[bytes]) -> Word:
    """Read what an ended child left in its pipe. Errors: none; no word is a failure."""
    text = b""
    if child.stdout is not None:
        with child.stdout as pipe:
            os.set_blocking(pipe.fileno(), False)
            with contextlib.suppress(BlockingIOError):
                text = os.read(pipe.fileno(), LARGEST_WORD)
    if child.returncode == -signal.SIGKILL:
        detail = "dockerd kept it waiting beyond its deadline, or somebody killed it"
        return Word(failure=Failure(Reason.KILLED, detail))
    try:
        return wire.decode(text, Word)
    except WireError as error:
        detail = f"exit code {child.returncode}: {error}"
        return Word(failure=Failure(Reason.INTERNAL, detail))
