"""Start probe children, one at a time, and turn however they end into a report.

The lock on ``gpu.lock`` is inherited by the child, so it is held just as long as the child lives:
through a kill of the agent, through its restart, and for a process that will not die. A probe run
by hand waits for the same lock. A child that was killed and stays is watched, not waited for: its
end is an event, and until then no GPU work starts.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from gpud.agent import children
from gpud.agent.measure import childend, gpulock
from gpud.agent.measure.breaker import Breaker, Standing, State
from gpud.core import progress, wire
from gpud.core.advice import Platform, Situation, worded, words
from gpud.core.errors import WireError
from gpud.core.sample import Backend, Failure, Inventory, Job, ProbeSpec, Reason, RunReport, Skip

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from gpud.core.report import ProcessRef

CHILD = (sys.executable, "-I", "-m", "gpud.child")
DEADLINE_RATIO = 6.0
"""The parent's patience in budgets of the child, which should have ended itself long before."""
INVENTORY_BUDGET_S = 10.0
LIST_DEADLINE_S = 20.0
LOCK_LOOK_S = 0.05

ADVICE_LOCK = (
    "nothing is measured without it: look whether the directory is there, belongs to the agent's "
    "user, has room and is on a file system of Linux; `gpud restart` makes it anew"
)
ADVICE_MEMORY = "`sudo gpud restart` closes what the agent has open; free memory if it has none"


class Refused(Exception):  # noqa: N818  # it is an answer, not an error
    """The child was not started; ``skip`` says why."""

    def __init__(self, skip: Skip) -> None:
        super().__init__(skip)
        self.skip = skip


class Launcher:
    """One place that starts children. ``on_spawn`` is told of each: gpud publishes its own cost.

    ``lock_path`` None: where no gpud runs or ran, there is no lock.

    ``on_breaker`` is told how the breaker is, each time that changes. No GPU work starts before
    ``gpu_from_s``, by the monotonic clock.
    """

    def __init__(  # noqa: PLR0913  # each is one thing a test or a caller chooses
        self,
        lock_path: Path | None,
        *,
        command: Sequence[str] = CHILD,
        patience_s: float = 3.0,
        deadline_ratio: float = DEADLINE_RATIO,
        grace_s: float = children.GRACE_S,
        breaker: Breaker | None = None,
        platform: Platform = Platform.WSL2,
        gpu_from_s: float = 0.0,
        on_spawn: Callable[[], None] = lambda: None,
        on_breaker: Callable[[Standing], None] = lambda _: None,
    ) -> None:
        self.lock_path = lock_path
        self._command = tuple(command)
        self._patience_s = patience_s
        self._deadline_ratio = deadline_ratio
        self._grace_s = grace_s
        self._platform = platform
        self._gpu_from_s = gpu_from_s
        self._on_spawn = on_spawn
        self._on_breaker = on_breaker
        self._watch: children.Watch | None = None
        self._cpu_watch: children.Watch | None = None
        self._rest: asyncio.TimerHandle | None = None
        self.breaker = breaker or Breaker()
        self.standing = Standing()

    def look(self) -> None:
        """See whether a child of an earlier agent is stuck, and tell how the breaker is.

        Errors: ``OSError`` when the lock cannot be opened.
        """
        if self.lock_path is not None:
            fd = gpulock.opened(self.lock_path)
            try:
                if not gpulock.taken(fd):
                    self._found(fd)
            finally:
                os.close(fd)
        self._on_breaker(self.standing)

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
        """Say why no GPU work may start now; None when it may."""
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
        self._on_spawn()
        try:
            ended = await children.run([*self._command, "--list"], b"", deadline_s=LIST_DEADLINE_S)
        except OSError as error:
            raise WireError(f"cannot start {self._command[0]}: {error.strerror}") from error
        if ended.code != 0:
            raise WireError(childend.story(ended))
        return wire.decode_specs(ended.stdout)

    async def inventory(self, job: Job, *, person: bool = False) -> Inventory:
        """Ask CUDA which GPUs there are. ``Errors: Refused``; all else is in the inventory."""
        ended = await self._measure(
            "--inventory", job, INVENTORY_BUDGET_S, Inventory, person=person
        )
        document = ended.document
        return Inventory(failure=document) if isinstance(document, Failure) else document

    async def run(self, spec: ProbeSpec, job: Job, *, person: bool = False) -> RunReport:
        """Run one probe on one GPU; an open breaker does not keep a ``person`` from it.

        Errors: ``Refused``; all else is in the report.
        """
        gpu = spec.backend is Backend.CUDA
        ended = await self._measure("--run", job, spec.budget_s, RunReport, gpu=gpu, person=person)
        return childend.report(spec, job, ended)

    async def _measure(  # noqa: PLR0913  # one run, and all there is to say of it
        self,
        verb: str,
        job: Job,
        budget_s: float,
        kind: type[wire.Document],
        *,
        gpu: bool = True,
        person: bool = False,
    ) -> childend.Measured[wire.Document]:
        deadline_s = max(budget_s * self._deadline_ratio, 1.0) + (job.start_limit_s if gpu else 0)
        what = _what(verb, job)
        begun_s = time.monotonic()
        try:
            memory = _progress_memory()
        except OSError as error:
            detail = f"cannot make the progress memory: {error.strerror}"
            return childend.Measured(Failure(Reason.SPAWN_FAILED, detail, advice=ADVICE_MEMORY))
        try:
            job = replace(job, progress_fd=memory)
            async with self._turn(gpu=gpu, person=person) as fd:
                begun_s = time.monotonic()
                ended, process = await self._child(verb, job, deadline_s, fd, what, gpu=gpu)
            note = progress.read(os.pread(memory, progress.SIZE, 0))
        except OSError as error:
            detail = f"cannot lock {self.lock_path}: {error.strerror}"
            return childend.Measured(Failure(Reason.SPAWN_FAILED, detail, advice=ADVICE_LOCK))
        finally:
            os.close(memory)
        if isinstance(ended, Failure):
            return childend.Measured(ended)
        document = childend.judged(ended, kind, deadline_s, job, note)
        if isinstance(document, Failure):
            document = worded(document, self._platform)
        result = childend.Measured(document, note, time.monotonic() - begun_s)
        hung = isinstance(document, Failure) and document.reason in childend.HANGS
        story = document.detail if isinstance(document, Failure) else None
        if hung and ended.code is None and process is not None:
            if not gpu:
                self._cpu_watch = children.Watch(process, self._cpu_gone)
            if self.breaker.left is None:  # else another has the lock, and its end is awaited
                self._left(process, what, f"{what}: {story}", gpu=gpu)
        elif gpu and hung:
            told = f"{what}: {story}"
            self._set(self.breaker.after_hang(time.monotonic(), what), what=what, detail=told)
        elif gpu:
            self._set(self.breaker.after_end(time.monotonic(), what))
        return result

    @asynccontextmanager
    async def _turn(self, *, gpu: bool, person: bool) -> AsyncIterator[int | None]:
        """Give the lock while a child runs; its inherited copy holds on by itself.

        None instead where a stuck child has it: that is no reason not to measure the CPU. One of
        the CPU's own is: each further one would stay as well. Errors: ``Refused``.
        """
        if not gpu and self._cpu_watch is not None:
            raise Refused(Skip.STUCK)
        self._refuse_gpu_work(gpu=gpu, person=person)
        if self.lock_path is None:
            yield None
            return
        fd = gpulock.opened(self.lock_path)
        try:
            mine = await self._locked(fd)
            self._refuse_gpu_work(gpu=gpu, person=person)  # that may have changed meanwhile
            yield fd if mine else None
        finally:
            os.close(fd)

    def _refuse_gpu_work(self, *, gpu: bool, person: bool) -> None:
        skip = self.closed_to_gpu_work() if gpu else None
        if skip is not None and not (person and skip is Skip.BREAKER_OPEN):
            raise Refused(skip)

    async def _locked(self, fd: int) -> bool:
        """Wait for the lock; False where a stuck child has it. ``Errors: Refused``."""
        until = time.monotonic() + self._patience_s
        while not gpulock.taken(fd):
            if self._found(fd):
                return False
            if time.monotonic() >= until:
                raise Refused(Skip.CHILD_RUNNING)
            await asyncio.sleep(LOCK_LOOK_S)  # a flock held elsewhere gives no event to await
        gpulock.note(fd, None)
        return True

    async def _child(  # noqa: PLR0913  # one child, told all there is to tell
        self, verb: str, job: Job, deadline_s: float, fd: int | None, what: str, *, gpu: bool
    ) -> tuple[children.Ended | Failure, ProcessRef | None]:
        """Run one child to its end, and give who it was."""
        begun: list[ProcessRef] = []

        def started(process: ProcessRef) -> None:
            begun.append(process)
            overdue_s = time.monotonic() + deadline_s + self._grace_s
            if fd is not None:
                gpulock.note(fd, gpulock.Holder(process, overdue_s, what))

        self._on_spawn()
        if gpu:
            self._set(self.breaker.begun())
        try:
            ended = await children.run(
                [*self._command, verb],
                json.dumps(asdict(job)).encode(),
                deadline_s=deadline_s,
                pass_fds=[each for each in (fd, job.progress_fd) if each is not None],
                grace_s=self._grace_s,
                started=started,
            )
        except OSError as error:
            detail = f"cannot start {self._command[0]}: {error.strerror}"
            return Failure(Reason.SPAWN_FAILED, detail), None
        finally:
            if gpu:  # whoever is cancelled here, or never began, has learned nothing
                self._set(self.breaker.not_begun())
        return ended, begun[0] if begun else None

    def _found(self, fd: int) -> bool:
        """Say whether a child that should be gone has the lock, and watch it if that is news."""
        if self.breaker.left is not None:
            return True
        held = gpulock.holder(fd)
        if held is None or time.monotonic() < held.overdue_s:
            return False
        condition = children.condition(held.process) or "gone just now"
        pid = held.process.pid
        detail = f"{held.what}: process {pid} of an earlier run does not go away ({condition})"
        # One of the CPU's asked nothing of the driver, so its own end says nothing of it either.
        self._left(held.process, held.what, detail, gpu=" on " in held.what)
        return True

    def _left(self, process: ProcessRef, what: str, detail: str, *, gpu: bool = True) -> None:
        after = self.breaker.after_left(process, time.monotonic(), what if gpu else "")
        self._set(after, what=what, detail=detail)
        self._watch = children.Watch(process, self._gone)

    def _cpu_gone(self) -> None:
        self._cpu_watch = None

    def _gone(self) -> None:
        self._watch = None
        left = self.breaker.left
        detail = f"process {left.pid} has gone after all" if left is not None else None
        self._set(self.breaker.after_gone(time.monotonic()), what=self.standing.what, detail=detail)

    def _set(self, breaker: Breaker, *, what: str | None = None, detail: str | None = None) -> None:
        """Change the breaker and tell of it; what hung is told until something else does."""
        self.breaker = breaker
        self._tell(what=what or self.standing.what, detail=detail or self.standing.detail)

    def _tell(self, *, what: str | None, detail: str | None) -> None:
        now_s, wall_s = time.monotonic(), time.time()
        before, state = self.standing, self.breaker.state(now_s)
        rest_s = self.breaker.retry_at_s - now_s
        closed = state is State.CLOSED
        self.standing = Standing(
            state=state,
            since_s=before.since_s if state is before.state else wall_s,
            hangs=self.breaker.streak,
            retry_s=wall_s + rest_s if state is State.OPEN else None,
            process=self.breaker.left,
            what=None if closed else what,
            detail=None if closed else detail,
            fix=words(Situation.HUNG, self._platform)
            if state in {State.OPEN, State.STUCK}
            else None,
        )
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if state is State.OPEN:
            again = asyncio.get_running_loop().call_later
            self._rest = again(rest_s, lambda: self._tell(what=what, detail=detail))
        if self.standing != before:
            self._on_breaker(self.standing)


def _progress_memory() -> int:
    """Make the memory in which a child notes its progress. Errors: ``OSError``."""
    memory = os.memfd_create("progress")
    try:
        os.ftruncate(memory, progress.SIZE)
    except OSError:
        os.close(memory)
        raise
    return memory


def _what(verb: str, job: Job) -> str:
    subject = job.probe if verb == "--run" else verb.lstrip("-")
    return f"{subject} on {job.gpu}" if job.gpu else subject
