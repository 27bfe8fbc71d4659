"""Start probe children, one at a time, and turn however they end into a report.

The lock on ``gpu.lock`` is inherited by the child, so it is held just as long as the child lives:
through a kill of the agent, through its restart, and for a process that will not die. A probe run
by hand waits for the same lock.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from gpud.agent import children
from gpud.core import wire
from gpud.core.breaker import Breaker
from gpud.core.errors import WireError
from gpud.core.sample import Backend, Failure, Inventory, Job, ProbeSpec, Reason, RunReport, Skip

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

CHILD = (sys.executable, "-I", "-m", "gpud.child")
DEADLINE_RATIO = 6.0
"""The parent's patience in budgets of the child, which should have ended itself long before."""
INVENTORY_BUDGET_S = 10.0
LIST_DEADLINE_S = 20.0
LOCK_LOOK_S = 0.05

ADVICE_HUNG = (
    "close GPU programs and run `wsl --shutdown` from Windows; nothing inside Linux can free a "
    "driver call that hangs"
)
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})


class Refused(Exception):  # noqa: N818  # it is an answer, not an error
    """The child was not started; ``skip`` says why."""

    def __init__(self, skip: Skip) -> None:
        super().__init__(skip)
        self.skip = skip


class Launcher:
    """One place that starts children. ``on_spawn`` is told of each: gpud publishes its own cost."""

    def __init__(  # noqa: PLR0913  # each is one thing a test or a caller chooses
        self,
        lock_path: Path,
        *,
        command: Sequence[str] = CHILD,
        patience_s: float = 3.0,
        deadline_ratio: float = DEADLINE_RATIO,
        breaker: Breaker | None = None,
        on_spawn: Callable[[], None] = lambda: None,
    ) -> None:
        self._lock_path = lock_path
        self._command = tuple(command)
        self._patience_s = patience_s
        self._deadline_ratio = deadline_ratio
        self._on_spawn = on_spawn
        self.breaker = breaker or Breaker()

    async def specs(self) -> tuple[tuple[ProbeSpec, ...], dict[str, str]]:
        """Ask which probes there are, and which modules were refused and why.

        Errors: ``WireError`` when the child cannot say.
        """
        self._on_spawn()
        try:
            ended = await children.run([*self._command, "--list"], b"", deadline_s=LIST_DEADLINE_S)
        except OSError as error:
            raise WireError(f"cannot start {self._command[0]}: {error.strerror}") from error
        if ended.code != 0:
            raise WireError(_story(ended))
        return wire.decode_specs(ended.stdout)

    async def inventory(self, job: Job) -> Inventory:
        """Ask CUDA which GPUs there are. ``Errors: Refused``; all else is in the inventory."""
        document = await self._measure("--inventory", job, INVENTORY_BUDGET_S, Inventory)
        return Inventory(failure=document) if isinstance(document, Failure) else document

    async def run(self, spec: ProbeSpec, job: Job) -> RunReport:
        """Run one probe on one GPU. ``Errors: Refused``; all else is in the report."""
        document = await self._measure(
            "--run", job, spec.budget_s, RunReport, gpu=spec.backend is Backend.CUDA
        )
        if isinstance(document, Failure):
            return RunReport(probe=spec.name, backend=spec.backend, failure=document)
        if document.probe != spec.name:
            detail = f"asked for {spec.name}, got a report of {document.probe!r:.60}"
        elif document.device is not None and document.device.uuid != job.gpu:
            detail = f"asked for {job.gpu}, got a report of {document.device.uuid!r:.60}"
        else:
            return document
        failure = Failure(Reason.BAD_OUTPUT, detail)
        return RunReport(probe=spec.name, backend=spec.backend, failure=failure)

    async def _measure(
        self,
        verb: str,
        job: Job,
        budget_s: float,
        kind: type[wire.Document],
        *,
        gpu: bool = True,
    ) -> wire.Document | Failure:
        if gpu and not self.breaker.allows(time.monotonic()):
            raise Refused(Skip.STUCK)
        async with self._lock(gpu=gpu) as fd:
            self._on_spawn()
            deadline_s = max(budget_s * self._deadline_ratio, 1.0)
            try:
                ended = await children.run(
                    [*self._command, verb],
                    json.dumps(asdict(job)).encode(),
                    deadline_s=deadline_s,
                    pass_fds=(fd,),
                )
            except OSError as error:
                detail = f"cannot start {self._command[0]}: {error.strerror}"
                return Failure(Reason.SPAWN_FAILED, detail)
        document = _judged(ended, kind, deadline_s)
        if gpu:
            hung = isinstance(document, Failure) and document.reason is Reason.HUNG
            after = self.breaker.after_hang(time.monotonic()) if hung else self.breaker.after_end()
            self.breaker = after
        return document

    @asynccontextmanager
    async def _lock(self, *, gpu: bool) -> AsyncIterator[int]:
        """Hold the lock while the child runs; the inherited copy holds on by itself."""
        fd = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o660)
        try:
            until = time.monotonic() + self._patience_s
            while not _locked(fd):
                if time.monotonic() >= until:
                    stuck = self.breaker.streak > 0
                    if stuck and not gpu:
                        break  # a GPU that hangs is no reason not to measure the CPU
                    raise Refused(Skip.STUCK if stuck else Skip.CHILD_RUNNING)
                await asyncio.sleep(LOCK_LOOK_S)  # a flock held elsewhere gives no event to await
            yield fd
        finally:
            os.close(fd)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _judged(
    ended: children.Ended, kind: type[wire.Document], deadline_s: float
) -> wire.Document | Failure:
    if ended.killed:
        gone = "" if ended.code is not None else f"; process {ended.pid} does not go away"
        detail = f"no answer within {deadline_s:g} s, killed once{gone}"
        return Failure(Reason.HUNG, detail, advice=ADVICE_HUNG)
    if ended.code is not None and ended.code < 0:
        return _signalled(-ended.code, ended)
    if ended.overflowed:
        detail = f"more than {children.KEPT_STDOUT} bytes on stdout"
        return Failure(Reason.BAD_OUTPUT, detail)
    if not ended.stdout.strip():
        reason = Reason.CRASHED if ended.code else Reason.BAD_OUTPUT
        return Failure(reason, _story(ended))
    try:
        return wire.decode(ended.stdout, kind)
    except WireError as error:
        return Failure(Reason.BAD_OUTPUT, str(error))


def _signalled(number: int, ended: children.Ended) -> Failure:
    if number == signal.SIGALRM:
        detail = f"ended by its own alarm while a driver call hung{_last_words(ended)}"
        return Failure(Reason.HUNG, detail, advice=ADVICE_HUNG)
    reason = Reason.CRASHED if number in _CRASHES else Reason.KILLED
    return Failure(reason, f"ended by {_signal_name(number)}{_last_words(ended)}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals between the first and the last have no name
        return f"signal {number}"


def _story(ended: children.Ended) -> str:
    return f"exit code {ended.code} and no document{_last_words(ended)}"


def _last_words(ended: children.Ended) -> str:
    lines = ended.stderr.decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""
