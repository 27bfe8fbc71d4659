"""Launcher of probe children, one at a time, under a lock and a breaker.

The lock on ``gpu.lock`` is inherited by the child, so it is held just as long as the child lives:
through a kill of the agent, through its restart, and for a process that will not die. A probe run
by hand waits for the same lock. A child that was killed and stays is watched, not waited for: its
end is an event, and until then no GPU work starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import sys
import time
from dataclasses import asdict, dataclass, replace
from io import FileIO
from typing import TYPE_CHECKING

import msgspec

from gpud.agent import children
from gpud.agent.measure import outcome
from gpud.agent.measure.breaker import Breaker, Standing, State, standing
from gpud.agent.state.runs import with_children
from gpud.core import progress, wire
from gpud.core.advice import Platform, Situation, worded, words
from gpud.core.errors import WireError
from gpud.core.progress import Note
from gpud.core.report import ProcessRef
from gpud.core.sample import Backend, Failure, Inventory, Job, ProbeSpec, Reason, RunReport, Skip

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from gpud.agent.state.board import Board
    from gpud.core.settings import Settings

CHILD = (sys.executable, "-I", "-m", "gpud.child")
DEADLINE_RATIO = 6.0
"""The parent's patience in budgets of the child, which should have ended itself long before."""
INVENTORY_BUDGET_S = 10.0
LIST_DEADLINE_S = 20.0
LOCK_LOOK_S = 0.05
LONGEST_LINE = 256

ADVICE_LOCK = (
    "nothing is measured without it: look whether the directory is there, belongs to the agent's "
    "user, has room and is on a file system of Linux; `gpud restart` makes it anew"
)


class LaunchRefused(Exception):  # noqa: N818  # it is an answer, not an error
    """The child was not started; ``skip`` says why."""

    def __init__(self, skip: Skip) -> None:
        super().__init__(skip)
        self.skip = skip


@dataclass(frozen=True, slots=True)
class Holder:
    """The child that has the lock.

    Units: ``overdue_s`` is the CLOCK_MONOTONIC moment of this boot after which neither its own
    alarm nor its parent's kill can have left it alive, unless the kernel keeps it.
    """

    process: ProcessRef
    overdue_s: float
    what: str  # "launch on GPU-..."


def job_of(settings: Settings, spec: ProbeSpec | None = None, gpu: str | None = None) -> Job:
    """Return the job of a run on a GPU or the CPU, or without a probe that of the list of GPUs."""
    library, limit_s = settings.cuda.library, settings.cuda.start_limit_s
    job = Job(cuda_library=library, sysroot=settings.sysroot, start_limit_s=limit_s)
    if spec is None:
        return job
    seed = secrets.randbelow(2**31 - 1) + 1
    return replace(job, probe=spec.name, gpu=gpu, budget_s=spec.budget_s, seed=seed)


def open_lock(path: Path) -> int:
    """Open the lock's file, making it if need be. Errors: ``OSError``."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o660)


def take_lock(fd: int) -> bool:
    """Take the lock if it is free; never waits."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def note_holder(fd: int, holder: Holder | None) -> None:
    """Write into the lock's file who has it now, for an agent that is started meanwhile.

    Errors: none; a full disk costs the line, and with it only what a later agent could tell.
    """
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        if holder is not None:
            process = holder.process
            line = f"{process.pid} {process.start_ticks} {holder.overdue_s:.3f} {holder.what}"
            os.pwrite(fd, f"{line[: LONGEST_LINE - 1]}\n".encode(), 0)


def lock_holder(fd: int) -> Holder | None:
    """Read who has the lock; None when the line names no process that lives."""
    try:
        text = os.pread(fd, LONGEST_LINE, 0).decode(errors="replace")
        pid, ticks, overdue_s, what = text.rstrip("\n").split(" ", 3)
        holder = Holder(ProcessRef(int(pid), int(ticks)), float(overdue_s), what)
    except (OSError, ValueError):
        return None
    return holder if children.ref(holder.process.pid) == holder.process else None


@dataclass(frozen=True, slots=True)
class _Work:
    """One start of a child. ``person``: it was asked for by hand."""

    verb: str
    job: Job
    budget_s: float
    gpu: bool
    person: bool

    @property
    def what(self) -> str:
        subject = self.job.probe if self.verb == "--run" else self.verb.lstrip("-")
        return f"{subject} on {self.job.gpu}" if self.job.gpu else subject


class Launcher:
    """Starts children, one at a time, and publishes each start and each change of the breaker.

    ``lock_path`` None: where no gpud runs or ran, there is no lock. No GPU work starts before
    ``gpu_from_s``, by the monotonic clock.
    """

    def __init__(  # noqa: PLR0913  # each is one thing a test or a caller chooses
        self,
        lock_path: Path | None,
        *,
        board: Board | None = None,
        command: Sequence[str] = CHILD,
        patience_s: float = 3.0,
        deadline_ratio: float = DEADLINE_RATIO,
        grace_s: float = children.GRACE_S,
        breaker: Breaker | None = None,
        platform: Platform = Platform.WSL2,
        gpu_from_s: float = 0.0,
    ) -> None:
        self.lock_path = lock_path
        self.spawned = 0
        self.breaker = breaker or Breaker()
        self.standing = Standing()
        self._board = board
        self._command = tuple(command)
        self._patience_s = patience_s
        self._deadline_ratio = deadline_ratio
        self._grace_s = grace_s
        self._platform = platform
        self._gpu_from_s = gpu_from_s
        self._watch: children.Watch | None = None
        self._cpu_watch: children.Watch | None = None
        self._rest: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Look whether a child of an earlier agent is stuck, and publish the breaker.

        Errors: ``OSError`` when the lock cannot be opened.
        """
        if self.lock_path is not None:
            fd = open_lock(self.lock_path)
            try:
                if not take_lock(fd):
                    self._is_stuck(fd)
            finally:
                os.close(fd)
        self._publish()

    def close(self) -> None:
        """Watch nothing any more; a child that is left behind is left at that."""
        for watch in (self._watch, self._cpu_watch):
            if watch is not None:
                watch.close()
        self._watch = self._cpu_watch = None
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def closed_to_gpu_work(self) -> Skip | None:
        """Return why no GPU work may start now; None when it may."""
        now_s = time.monotonic()
        if now_s < self._gpu_from_s:
            return Skip.BOOT_GRACE
        if self.breaker.allows(now_s):
            return None
        return Skip.STUCK if self.breaker.state(now_s) is State.STUCK else Skip.BREAKER_OPEN

    async def grace(self) -> None:
        """Wait until GPU work may begin after a boot."""
        await asyncio.sleep(max(0.0, self._gpu_from_s - time.monotonic()))

    async def specs(self) -> tuple[tuple[ProbeSpec, ...], dict[str, str]]:
        """Ask which probes there are, and which modules were refused and why.

        Errors: ``WireError`` when the child cannot say.
        """
        self._count()
        try:
            ended = await children.run([*self._command, "--list"], b"", deadline_s=LIST_DEADLINE_S)
        except OSError as error:
            raise WireError(f"cannot start {self._command[0]}: {error.strerror}") from error
        if ended.code != 0:
            raise WireError(outcome.silence(ended))
        return outcome.decode_specs(ended.stdout)

    async def inventory(self, job: Job, *, person: bool = False) -> Inventory:
        """Ask CUDA which GPUs there are. ``Errors: Refused``; all else is in the inventory."""
        work = _Work("--inventory", job, INVENTORY_BUDGET_S, gpu=True, person=person)
        result, _, _ = await self._measure(work, Inventory)
        return Inventory(failure=result) if isinstance(result, Failure) else result

    async def run(self, spec: ProbeSpec, job: Job, *, person: bool = False) -> RunReport:
        """Run one probe on one GPU; an open breaker does not keep a ``person`` from it.

        Errors: ``LaunchRefused``; all else is in the report.
        """
        gpu = spec.backend is Backend.CUDA
        work = _Work("--run", job, spec.budget_s, gpu=gpu, person=person)
        result, note, took_s = await self._measure(work, RunReport)
        return outcome.report(spec, job, result, note, took_s)

    async def _measure(
        self, work: _Work, kind: type[wire.Document]
    ) -> tuple[wire.Document | Failure, Note, float]:
        """Run a child; return its document, what it had noted, and how long it lived."""
        deadline_s = max(work.budget_s * self._deadline_ratio, 1.0)
        deadline_s += work.job.start_limit_s if work.gpu else 0
        try:
            async with self._turn(work) as fd:
                begun_s = time.monotonic()
                ended, note, process = await self._child(work, deadline_s, fd)
        except OSError as error:
            detail = f"cannot lock {self.lock_path}: {error.strerror}"
            return Failure(Reason.SPAWN_FAILED, detail, advice=ADVICE_LOCK), Note(), 0.0
        if isinstance(ended, Failure):
            return ended, note, 0.0
        result = outcome.document(ended, kind, deadline_s, work.job, note)
        if isinstance(result, Failure):
            result = worded(result, self._platform)
        self._learn(work, result, process if ended.code is None else None)
        return result, note, time.monotonic() - begun_s

    def _learn(self, work: _Work, result: wire.Document | Failure, left: ProcessRef | None) -> None:
        """Tell the breaker how a child ended; ``left`` was killed and is still there."""
        hung = isinstance(result, Failure) and result.reason in outcome.HANGS
        detail = f"{work.what}: {result.detail}" if isinstance(result, Failure) and hung else None
        if detail is not None and left is not None:
            if not work.gpu:
                self._cpu_watch = children.Watch(left, self._cpu_gone)
            if self.breaker.left is None:  # else another has the lock, and its end is awaited
                self._stuck(left, work.what, detail, gpu=work.gpu)
        elif work.gpu and hung:
            after = self.breaker.after_hang(time.monotonic(), work.what)
            self._set(after, what=work.what, detail=detail)
        elif work.gpu:
            self._set(self.breaker.after_end(time.monotonic(), work.what))

    @contextlib.asynccontextmanager
    async def _turn(self, work: _Work) -> AsyncIterator[int | None]:
        """Hold the lock while a child runs; its inherited copy holds on by itself.

        None instead where a stuck child has it: that is no reason not to measure the CPU. One of
        the CPU's own is: each further one would stay as well. Errors: ``LaunchRefused``.
        """
        if not work.gpu and self._cpu_watch is not None:
            raise LaunchRefused(Skip.STUCK)
        self._refuse_gpu_work(work)
        if self.lock_path is None:
            yield None
            return
        fd = open_lock(self.lock_path)
        try:
            locked = await self._locked(fd)
            self._refuse_gpu_work(work)  # that may have changed meanwhile
            yield fd if locked else None
        finally:
            os.close(fd)

    def _refuse_gpu_work(self, work: _Work) -> None:
        skip = self.closed_to_gpu_work() if work.gpu else None
        if skip is not None and not (work.person and skip is Skip.BREAKER_OPEN):
            raise LaunchRefused(skip)

    async def _locked(self, fd: int) -> bool:
        """Wait for the lock; False where a stuck child has it. ``Errors: Refused``."""
        until_s = time.monotonic() + self._patience_s
        while not take_lock(fd):
            if self._is_stuck(fd):
                return False
            if time.monotonic() >= until_s:
                raise LaunchRefused(Skip.CHILD_RUNNING)
            await asyncio.sleep(LOCK_LOOK_S)  # a flock held elsewhere gives no event to await
        note_holder(fd, None)
        return True

    async def _child(
        self, work: _Work, deadline_s: float, fd: int | None
    ) -> tuple[children.Ended | Failure, Note, ProcessRef | None]:
        """Run one child to its end; return its last note and its identity too."""
        begun: list[ProcessRef] = []

        def started(process: ProcessRef) -> None:
            begun.append(process)
            overdue_s = time.monotonic() + deadline_s + self._grace_s
            if fd is not None:
                note_holder(fd, Holder(process, overdue_s, work.what))

        self._count()
        if work.gpu:
            self._set(self.breaker.begun())
        try:
            with FileIO(os.memfd_create("progress"), "r+") as memory:
                memory.truncate(progress.SIZE)
                job = replace(work.job, progress_fd=memory.fileno())
                ended = await children.run(
                    [*self._command, work.verb],
                    json.dumps(asdict(job)).encode(),
                    deadline_s=deadline_s,
                    pass_fds=[memory.fileno()] if fd is None else [memory.fileno(), fd],
                    grace_s=self._grace_s,
                    started=started,
                )
                note = progress.read(os.pread(memory.fileno(), progress.SIZE, 0))
        except OSError as error:
            detail = f"cannot start {self._command[0]}: {error.strerror}"
            return Failure(Reason.SPAWN_FAILED, detail), Note(), None
        finally:
            if work.gpu:  # one that is cancelled here, or never began, decides nothing
                self._set(self.breaker.not_begun())
        return ended, note, begun[0] if begun else None

    def _is_stuck(self, fd: int) -> bool:
        """Return whether a child that should be gone has the lock; watch it if that is news."""
        if self.breaker.left is not None:
            return True
        holder = lock_holder(fd)
        if holder is None or time.monotonic() < holder.overdue_s:
            return False
        condition = children.condition(holder.process) or "gone just now"
        process = f"process {holder.process.pid} of an earlier run"
        detail = f"{holder.what}: {process} does not go away ({condition})"
        # One of the CPU's asked nothing of the driver, so its own end says nothing of it either.
        self._stuck(holder.process, holder.what, detail, gpu=" on " in holder.what)
        return True

    def _stuck(self, process: ProcessRef, what: str, detail: str, *, gpu: bool) -> None:
        after = self.breaker.after_hang(time.monotonic(), what if gpu else "", left=process)
        self._set(after, what=what, detail=detail)
        self._watch = children.Watch(process, self._gone)

    def _cpu_gone(self) -> None:
        self._cpu_watch = None

    def _gone(self) -> None:
        self._watch = None
        left = self.breaker.left
        detail = f"process {left.pid} has gone after all" if left is not None else None
        self._set(self.breaker.after_gone(time.monotonic()), detail=detail)

    def _set(self, breaker: Breaker, *, what: str | None = None, detail: str | None = None) -> None:
        """Change the breaker and publish it; what hung stays until something else does."""
        self.breaker, before, now_s = breaker, self.standing, time.monotonic()
        fix = words(Situation.HUNG, self._platform)
        after = standing(breaker, before, now_s, time.time())
        self.standing = after.explained(what or before.what, detail or before.detail, fix)
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if self.standing.state is State.OPEN:
            rest_s = breaker.retry_at_s - now_s
            self._rest = asyncio.get_running_loop().call_later(rest_s, self._rest_over)
        if self.standing != before:
            self._publish()

    def _rest_over(self) -> None:
        self._set(self.breaker)

    def _publish(self) -> None:
        if self._board is not None:
            before = self._board.read().measure
            measure = msgspec.structs.replace(before, breaker=self.standing)
            self._board.publish(measure=measure)

    def _count(self) -> None:
        """Count a start: gpud publishes its own cost."""
        self.spawned += 1
        if self._board is not None:
            self._board.publish(measure=with_children(self._board.read().measure))
