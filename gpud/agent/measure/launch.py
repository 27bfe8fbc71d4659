"""Launcher of children that measure, one at a time, under a lock and a breaker.

A child answers job after job for as long as somebody holds the launcher, so that a round needs one
process and one GPU context. A GPU of its own needs a child of its own, and what failed badly is not
built upon: the next job gets a new one.

The lock on ``gpu.lock`` is inherited by the child, so it is held just as long as the child lives:
through a kill of the agent, through its restart, and for a process that will not die. A probe run
by hand waits for the same lock. A child that hangs and stays is watched, not waited for: its end is
an event, and until then no GPU work starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from gpud import processes
from gpud.agent import children
from gpud.agent.measure import outcome
from gpud.agent.measure.breaker import Breaker, State, report
from gpud.agent.measure.gpu_contexts import GpuContexts
from gpud.agent.measure.served import INVENTORY, ServedChild, Work
from gpud.core import progress, wire
from gpud.core.advice import Platform, Situation, worded, words
from gpud.core.errors import WireError
from gpud.core.progress import Note
from gpud.core.report import ProcessRef
from gpud.core.sample import Backend, Failure, Inventory, Job, ProbeSpec, Reason, RunReport, Skip
from gpud.document.machine import BreakerReport
from gpud.gpu_lock import lock_holder, note_holder, open_lock, take_lock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from gpud.agent.state.board import Board

log = structlog.get_logger()

CHILD = (sys.executable, "-I", "-m", "gpud.child")
DEADLINE_RATIO = 6.0
"""The parent's patience in budgets of the child, which should have ended itself long before."""
LEAVE_RATIO = 2.0
"""The same where a child that hangs is left alone: one that was only late has lost its answer."""
END_S = 30.0
"""How long a child may take to give the GPU back."""
NOT_GIVEN_BACK = b"not given back: "
"""Begins a line on stderr of a child that could not give the GPU back."""
INVENTORY_BUDGET_S = 10.0
LIST_DEADLINE_S = 20.0
LOCK_LOOK_S = 0.05
SHUT = {State.OPEN: Skip.BREAKER_OPEN, State.STUCK: Skip.STUCK}
WARNED = frozenset({Skip.BREAKER_OPEN, Skip.CONTEXTS_SPENT, Skip.CONTEXT_LOST})
"""Reasons that a person is told of and that do not hold them back."""

ADVICE_LOCK = (
    "nothing is measured without it: look whether the directory is there, belongs to the agent's "
    "user, has room and is on a file system of Linux; `gpud restart` makes it anew"
)


class LaunchRefused(Exception):  # noqa: N818  # it is an answer, not an error
    """The child was not started; ``skip`` says why."""

    def __init__(self, skip: Skip) -> None:
        super().__init__(skip)
        self.skip = skip


class Launcher:
    """Starts children, one at a time, and publishes each start and each change of the breaker.

    ``lock_path`` None: where no gpud runs or ran, there is no lock. No GPU work starts before
    ``gpu_from_s``, by the monotonic clock. ``leave_hung``: a child that hangs in the driver gets no
    signal, whatever happens. ``contexts`` counts those that are made.
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
        leave_hung: bool = False,
        contexts: GpuContexts | None = None,
    ) -> None:
        self.lock_path = lock_path
        self.breaker = breaker or Breaker()
        self.standing = BreakerReport(State.CLOSED)
        self._board = board
        self._command = tuple(command)
        self._patience_s = patience_s
        self._ratio = deadline_ratio
        self._grace_s = grace_s
        self._platform = platform
        self.gpu_from_s = gpu_from_s
        self._until_then = Skip.BOOT_GRACE
        self._leave_hung = leave_hung
        self.contexts = contexts or GpuContexts(Path(), "", None)
        self._turn = asyncio.Lock()
        self._holders = 0
        self._server: ServedChild | None = None
        self._left: ServedChild | None = None
        self._watch: children.Watch | None = None
        self._cpu_left: ProcessRef | None = None  # a child of the CPU's that was killed in vain
        self._rest: asyncio.TimerHandle | None = None

    @property
    def measuring(self) -> bool:
        """Whether a child is at work just now, or is being started."""
        return self._turn.locked()

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
        if self._left is not None:
            self._left.close()
            self._left = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def has_context(self, gpu: str | None) -> bool:
        """Whether the child that would do the next job has a context of this GPU."""
        return self._server is not None and self._server.gpu == gpu

    def closed_to_gpu_work(self, gpu: str | None = None) -> Skip | None:
        """Return why no GPU work may start now; None when it may.

        ``gpu``: work in a context of this GPU, which may have to be made.
        """
        now_s = time.monotonic()
        if now_s < self.gpu_from_s:
            return self._until_then
        if (state := self.breaker.state(now_s)) in SHUT:
            return SHUT[state]
        if gpu is None or self.has_context(gpu):
            return None
        if self.contexts.spent:
            return Skip.CONTEXTS_SPENT
        return Skip.CONTEXT_LOST if self.contexts.lost(gpu) else None

    def close_to_gpu_for(self, rest_s: float, skip: Skip) -> None:
        """Start no GPU work for so many seconds; ``skip`` says why."""
        until_s = time.monotonic() + rest_s
        if until_s > self.gpu_from_s:
            self.gpu_from_s, self._until_then = until_s, skip

    async def grace(self) -> None:
        """Wait until GPU work may begin, after a boot or a pause; no child waits with it."""
        rest_s = self.gpu_from_s - time.monotonic()
        if rest_s > 0:
            async with self._turn:
                await self._end()
            await asyncio.sleep(rest_s)

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keep the child, and its GPU context, from one job to the next."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                await self._end()

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
        """Ask CUDA which GPUs there are; a failure is in the inventory.

        Errors: ``LaunchRefused``.
        """
        work = Work(job, INVENTORY_BUDGET_S, gpu=True, person=person)
        result, _, _ = await self._measure(work, Inventory)
        return Inventory(failure=result) if isinstance(result, Failure) else result

    async def run(self, spec: ProbeSpec, job: Job, *, person: bool = False) -> RunReport:
        """Run one probe on one GPU; what is in ``WARNED`` does not keep a ``person`` from it.

        Errors: ``LaunchRefused``; all else is in the report.
        """
        gpu = spec.backend is Backend.CUDA
        work = Work(job, spec.budget_s, gpu=gpu, person=person)
        result, note, took_s = await self._measure(work, RunReport)
        return outcome.report(spec, job, result, note, took_s)

    async def _measure(
        self, work: Work, kind: type[wire.Document]
    ) -> tuple[wire.Document | Failure, Note, float]:
        """Have a child do a job; return its document, what it had noted, and how long it took."""
        self._refuse(work)
        async with self.held(), self._turn:
            try:
                server = await self._serving(work)
            except OSError as error:
                detail = f"cannot lock {self.lock_path}: {error.strerror}"
                return Failure(Reason.SPAWN_FAILED, detail, advice=ADVICE_LOCK), Note(), 0.0
            if isinstance(server, Failure):
                return server, Note(), 0.0
            begun_s = time.monotonic()
            result, note = await self._ask(server, work, kind)
            took_s = time.monotonic() - begun_s
            if outcome.spoils(result):
                await self._end()
            return result, note, took_s

    async def _serving(self, work: Work) -> ServedChild | Failure:
        """Return the child for a job, a new one if need be.

        Errors: ``LaunchRefused``; ``OSError`` where the lock cannot be taken.
        """
        self._refuse(work)  # that may have changed meanwhile
        if self._server is not None and not self._server.fits(work):
            await self._end()
            self._refuse(work)
        if self._server is not None:
            return self._server
        fd, locked = None, True
        if self.lock_path is not None:
            fd = open_lock(self.lock_path)
        with contextlib.ExitStack() as opened:
            if fd is not None:
                opened.callback(os.close, fd)
                locked = await self._locked(fd)
                self._refuse(work)
            self._count()
            try:
                command, lock = [*self._command, "--serve"], fd if locked else None
                self._server = ServedChild(command, lock, locked=locked)
            except OSError as error:
                detail = f"cannot start {self._command[0]}: {error.strerror}"
                return Failure(Reason.SPAWN_FAILED, detail)
        return self._server

    def _refuse(self, work: Work) -> None:
        """Refuse a job that may not start now. Errors: ``LaunchRefused``.

        While a child of the CPU's own is stuck, each further one would stay as well.
        """
        left = self._cpu_left
        if not work.gpu and left is not None and processes.ref(left.pid) == left:
            raise LaunchRefused(Skip.STUCK)
        for gpu in work.gpus if work.gpu else ():
            skip = self.closed_to_gpu_work(gpu)
            if skip is not None and not (work.person and skip in WARNED):
                raise LaunchRefused(skip)

    async def _ask(
        self, server: ServedChild, work: Work, kind: type[wire.Document]
    ) -> tuple[wire.Document | Failure, Note]:
        """Have the child do a job, and learn from how that ended."""
        leave = self._leave_hung and work.gpu
        deadline_s = max(work.budget_s * min(self._ratio, LEAVE_RATIO if leave else math.inf), 1.0)
        deadline_s += work.job.start_limit_s if work.gpu else 0
        self._begin(server, work, deadline_s)
        job = replace(work.job, progress_fd=server.memory.fileno(), alarm=not leave)
        question = json.dumps(asdict(job)).encode() + b"\n"
        try:
            answer = await server.child.ask(question, deadline_s)
            if answer is not None:
                result = outcome.document(answer, kind)
                server.numpy |= not work.gpu and outcome.used_numpy(result)
                if work.gpu:
                    self._set(self.breaker.after_end(time.monotonic(), work.what))
                return result, server.note()
            wait_s = self._grace_s if server.child.out.overflowed else 0.0
            ended = await server.child.ended(wait_s, self._grace_s, kill=not leave)
        except BaseException:
            self._server = None
            server.close()
            raise
        note = server.note()
        failure = outcome.failure(ended, deadline_s, work, note)
        failure = worded(failure, self._platform)
        self._lost(server, work, failure, ended)
        return failure, note

    def _begin(self, server: ServedChild, work: Work, deadline_s: float) -> None:
        """Note the job that a child gets next, also for an agent that is started meanwhile."""
        os.pwrite(server.memory.fileno(), bytes(progress.DRAFT), 0)
        if server.lock is not None:
            note_holder(server.lock, server.child.reference, deadline_s, work.what)
        if work.gpu:
            server.driver = True
            if work.job.probe and server.gpu is None:
                server.gpu = work.job.gpu
                self.contexts.made(work.job.gpu or "")
            if work.job.peer is not None:
                self.contexts.made()  # it is none that its GPU's own round has lost

    def _lost(
        self, server: ServedChild, work: Work, failure: Failure, ended: children.Ended
    ) -> None:
        """Give up a child that has ended or hangs, and learn from that."""
        if self._server is server:  # else another was started while this one ended
            self._server = None
        left = server.child.reference if ended.code is None else None
        self._learn(work, failure, left)
        if left is not None and not ended.killed:
            server.child.finish()
            self._left = server  # a pipe that nobody reads would be a signal as well
        else:
            server.close()

    async def _end(self) -> None:
        """End the input of the child, if there is one, and wait until it has given the GPU back."""
        server, self._server = self._server, None
        if server is None:
            return
        closing = Work(Job("closing", server.gpu), END_S, gpu=server.driver, person=False)
        leave = self._leave_hung and server.driver
        try:
            server.child.finish()
            ended = await server.child.ended(END_S, self._grace_s, kill=not leave)
        except BaseException:
            server.close()
            raise
        failure = outcome.failure(ended, END_S, closing, server.note())
        if ended.code not in {0, 1} or NOT_GIVEN_BACK in ended.stderr:
            log.warning("child_ended_badly", work=closing.what, detail=failure.detail)
        self._lost(server, closing, worded(failure, self._platform), ended)

    def _learn(self, work: Work, failure: Failure, left: ProcessRef | None) -> None:
        """Tell the breaker how a child ended; ``left`` is still there."""
        hung = failure.reason in outcome.HANGS
        detail = f"{work.what}: {failure.detail}"
        if hung and left is not None:
            if not work.gpu:
                self._cpu_left = left
            if self.breaker.left is None:  # else another has the lock, and its end is awaited
                self._stuck(left, work.what, detail, gpu=work.gpu)
        elif work.gpu and hung:
            after = self.breaker.after_hang(time.monotonic(), work.what)
            self._set(after, what=work.what, detail=detail)
        elif work.gpu:
            self._set(self.breaker.after_end(time.monotonic(), work.what))

    async def _locked(self, fd: int) -> bool:
        """Wait for the lock; False where a stuck child has it. ``Errors: LaunchRefused``."""
        until_s = time.monotonic() + self._patience_s
        while not take_lock(fd):
            if self._is_stuck(fd):
                return False
            if time.monotonic() >= until_s:
                raise LaunchRefused(Skip.CHILD_RUNNING)
            await asyncio.sleep(LOCK_LOOK_S)  # a flock held elsewhere gives no event to await
        return True

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
        gpu = holder.what == INVENTORY or " on " in holder.what
        self._stuck(holder.process, holder.what, detail, gpu=gpu)
        return True

    def _stuck(self, process: ProcessRef, what: str, detail: str, *, gpu: bool) -> None:
        after = self.breaker.after_hang(time.monotonic(), what if gpu else "", left=process)
        self._set(after, what=what, detail=detail)
        self._watch = children.Watch(process, self._gone)

    def _gone(self) -> None:
        self._watch = None
        if self._left is not None:
            self._left.close()
            self._left = None
        left = self.breaker.left
        ended = "" if left is None else f": gpud's probe (process {left.pid}) has ended"
        detail = f"the GPU is free again{ended}"
        self._set(self.breaker.after_gone(time.monotonic()), detail=detail)

    def _set(self, breaker: Breaker, *, what: str | None = None, detail: str | None = None) -> None:
        """Change the breaker and publish it; what hung stays until something else does."""
        self.breaker, before, now_s = breaker, self.standing, time.monotonic()
        after = report(breaker, before, now_s, time.time())
        if after.state is not State.CLOSED:
            what, detail = what or before.what, detail or before.detail
            fix = words(Situation.HUNG, self._platform) if after.state in SHUT else None
            after = msgspec.structs.replace(after, what=what, detail=detail, fix=fix)
        self.standing = after
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if self.standing.state == State.OPEN:
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
        if self._board is not None:
            self._board.count_process()
