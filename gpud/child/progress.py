"""Progress notes of a job in shared memory, its time limits, and the budget of a run.

Start-up is whatever the driver does once for a process: loading it, cuInit, the context, compiling
kernels. After a boot or a driver update that may take a minute, and says nothing of how fast the
GPU is, so it has a limit of its own and none of it counts against the budget of a run. Nothing is
noted inside a timed region.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import time
from contextlib import contextmanager

from gpud.core import progress
from gpud.core.errors import GpudError, ProbeError
from gpud.core.record import values
from gpud.core.sample import Failure, Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.core.sample import Condition, Job

TOO_SLOW = "wait for the next run: what was measured is busy, or much slower than usual"
ALARM_RATIO, SHORTEST_ALARM_S = 1.5, 1.0


class Progress:
    """Notes of one job. Without a ``job`` nobody reads them and no alarm is set.

    ``facts`` are the conditions of the run that are known so far. Units: ``start_s`` in seconds,
    all start-up so far.
    """

    def __init__(self, job: Job | None = None) -> None:
        """Set the alarm, by which the kernel ends a process whose driver call never returns.

        A job without ``alarm`` is left where it hangs.
        """
        fd = None if job is None else job.progress_fd
        self._memory = bytearray(progress.SIZE) if fd is None else mmap.mmap(fd, progress.SIZE)
        self._job = job
        self._alarm = job is not None and job.alarm
        self._begun_s = time.monotonic()
        self.start_s = 0.0
        self.facts: dict[str, Condition] = {}
        if self._alarm:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # no Python handler would run then
        self._allow(self._run_s())

    def about(self, name: str) -> None:
        """Note which function is called next; several of a loop as ``progress.names`` says it."""
        self._memory[progress.CALL] = progress.padded(name)

    def draft(self, document: object) -> None:
        """Note the document as far as it is known, for an end that leaves no other."""
        content = json.dumps(document, allow_nan=False, default=values).encode()
        self._memory[progress.LENGTH] = bytes(4)  # half a document has no length
        if len(content) <= progress.SIZE - progress.DRAFT:
            self._memory[progress.DRAFT : progress.DRAFT + len(content)] = content
            self._memory[progress.LENGTH] = len(content).to_bytes(4, "little")

    @contextmanager
    def start_up(self) -> Iterator[None]:
        """Do a part of start-up: under its own alarm, and outside the budget."""
        begun = time.monotonic()
        self._memory[progress.START_UP] = 1
        if self._job is not None:
            self._allow(self._job.start_limit_s - self.start_s)
        try:
            yield
        finally:
            self.start_s += time.monotonic() - begun
            self.facts["start_s"] = self.start_s
            self._memory[progress.START_UP] = 0
            self._allow(self._run_s())

    def over(self) -> None:
        """Take the alarm back: nothing of this job runs any more."""
        if self._alarm:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _run_s(self) -> float:
        """Give what is left until a run that has not ended by itself must hang."""
        if self._job is None:
            return 0.0
        # An interpreter on a busy machine takes its time to the first check; the budget shall win.
        allowed_s = max(self._job.budget_s * ALARM_RATIO, SHORTEST_ALARM_S)
        return allowed_s - (time.monotonic() - self._begun_s - self.start_s)

    def _allow(self, seconds: float) -> None:
        if self._alarm:
            signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))


class Orphaned(GpudError):  # noqa: N818  # reads as the fact it states
    """The process that asked for this run is gone: end quietly, after synchronising."""


class Budget:
    """The wall time of one run without its start-up, and the GPU time it may use.

    Units: seconds, on the monotonic clock and as the GPU counts them.
    """

    def __init__(
        self, seconds: float, gpu_s: float = 1.0, progress: Progress | None = None
    ) -> None:
        self.seconds = seconds
        self.gpu_s = gpu_s
        self._progress = progress
        self._started = time.monotonic()
        self._parent = os.getppid()

    def spent(self) -> float:
        """Give the seconds since the start, less those of start-up."""
        start_s = 0.0 if self._progress is None else self._progress.start_s
        return time.monotonic() - self._started - start_s

    def check(self) -> None:
        """Say whether to go on; called between batches, never inside a timed region.

        Errors: ``ProbeError`` (budget_exceeded); ``Orphaned`` where the parent has changed.
        """
        if os.getppid() != self._parent:
            raise Orphaned("the process that asked for this run is gone")
        if self.spent() > self.seconds:
            raise ProbeError(
                Failure(
                    Reason.BUDGET_EXCEEDED,
                    f"not finished within {self.seconds:g} s",
                    advice=TOO_SLOW,
                )
            )
