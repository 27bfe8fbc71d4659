"""Schedule of the container probe: when root looks at the toolkit and when it runs the sample.

``due`` gives at most one task at a time, ``finish`` takes its result; the clock is the caller's. A
run is announced first: other users of the GPU read the report and step aside, so none needs a lock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gpud.core.containers import SLOW_RUNS
from gpud.core.report import (
    ContainerRun,
    ContainersReport,
    ProbeStage,
    ProcessRef,
    ToolkitReport,
    ToolkitState,
)
from gpud.core.sample import Failure, Reason, Skip

if TYPE_CHECKING:
    from gpud.core.sections import ContainerSettings

LOOK_EVERY_S: Final = 600.0
"""A toolkit that was just installed, or an image just pulled, is noticed this soon."""
SETTLE_S: Final = 3.0
"""A dockerd that has just come is left to its own start, and so is the agent."""
ANNOUNCE_S: Final = 5.0
"""The agent reads the report every second and its own runs take less than the rest."""
RETRY_S: Final = 900.0
"""After a failure; it doubles with each further one up to the interval."""
STOP_S: Final = 30
"""A program that uses the GPU gets this long to end by itself before Docker kills it."""
MENDED_BY_RESTART: Final = frozenset(
    {
        Reason.TOOLKIT_MISSING,
        Reason.TOOLKIT_FAILED,
        Reason.RUNTIME_UNKNOWN,
        Reason.MOUNT_FAILED,
        Reason.CDI_UNRESOLVED,
        Reason.CDI_FAILED,
    }
)
"""Refused before any work reached the GPU: tried again at once with the next dockerd. Never those
that may have taken dockerd down with them."""


class Task(StrEnum):
    """Work of the container probe's process."""

    LOOK = "look"
    PULL = "pull"  # fetch the image, and look
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Job:
    """Argument of the container probe's process, as JSON."""

    task: Task
    socket: str
    image: str
    deadline_s: float
    owner: str  # the value of the label on its containers
    parent: int  # the supervisor's pid
    dockerd: int | None = None  # pid
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
    """What is remembered between two looks. Units: monotonic seconds."""

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
        elif self._announced_s is not None:
            self._busy = self._announced(self._announced_s, now_s)
        else:
            if dockerd != self._dockerd:
                self._meet(dockerd, now_s)
            self._busy = self._next(now_s, run_due=run_due)
        return self._busy

    def finish(self, result: TaskResult, *, wall_s: float, now_s: float) -> None:
        """Take note of how the task ended."""
        task, self._busy = self._busy, None
        before, toolkit = self.report.toolkit, result.toolkit or self.report.toolkit
        if toolkit is None and result.failure is not None:
            toolkit = ToolkitReport(ToolkitState.UNKNOWN, "look_failed", result.failure.detail)
        present = result.image_present
        if present is None:
            present = self.report.image_present
        self.report = replace(self.report, toolkit=toolkit, image_present=present)
        self._enter(ProbeStage.WAITING)
        if self._failed and before and toolkit and before.state is not toolkit.state:
            self._next_run_s = min(self._next_run_s, now_s)  # the toolkit was mended
        if task is Task.RUN or (task is Task.PULL and not present):
            run = result.run or ContainerRun(wall_s, now_s, 0.0, failure=result.failure)
            self._count(run, now_s)

    def _meet(self, dockerd: ProcessRef | None, now_s: float) -> None:
        """Forget what the former dockerd had: images, a toolkit, a failure a restart can mend."""
        run = self.report.run
        if run is not None and run.failure and run.failure.reason in MENDED_BY_RESTART:
            self._next_run_s = min(self._next_run_s, now_s)
        self._dockerd = dockerd
        self._next_look_s = now_s + SETTLE_S
        self.report = replace(self.report, image_present=None, toolkit=None)

    def _announced(self, since_s: float, now_s: float) -> Task | None:
        """Start an announced run once everybody has had the time to hear of it."""
        if now_s < since_s + ANNOUNCE_S:
            return None
        self._announced_s = None
        self._enter(ProbeStage.RUNNING)
        return Task.RUN

    def _next(self, now_s: float, *, run_due: bool) -> Task | None:
        """Return a look or a fetch that is due; announce a run, or count why it cannot be."""
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + LOOK_EVERY_S
            return Task.LOOK
        if not run_due or self.report.image_present is None:
            return None
        if self.report.image_present:
            self._announced_s = now_s
            self._enter(ProbeStage.ANNOUNCED)
            return None
        if self._settings.pull:
            return Task.PULL
        self._skip(Skip.IMAGE_ABSENT, now_s)
        return None

    def _count(self, run: ContainerRun, now_s: float) -> None:
        before, figure = self.report, run.figure
        after = replace(before, run=run, runs=before.runs + 1)
        pause_s = self._settings.interval_s
        if figure is not None:
            self._failed = 0
            figures = (*before.recent_flops_per_second, figure.flops_per_second)
            after = replace(
                after,
                recent_flops_per_second=figures[-SLOW_RUNS:],
                last_success_s=run.finished_s,
                gpu_index=figure.gpu_index,
            )
        else:
            pause_s = min(pause_s, RETRY_S * 2.0 ** min(self._failed, 30))
            self._failed += 1
            failures = (
                _counted(before.failures, run.failure.reason) if run.failure else before.failures
            )
            after = replace(after, recent_flops_per_second=(), failures=failures)
        self.report = after
        self._next_run_s = now_s + pause_s

    def _skip(self, reason: Skip, now_s: float) -> None:
        """Count it once an interval; the run stays due, and is made as soon as it can be."""
        if now_s >= self._next_skip_s:
            self.report = replace(self.report, skips=_counted(self.report.skips, reason))
            self._next_skip_s = now_s + self._settings.interval_s

    def _enter(self, stage: ProbeStage) -> None:
        self.report = replace(self.report, stage=stage if self._settings.probe else ProbeStage.OFF)


def _counted(counts: dict[str, int], key: str) -> dict[str, int]:
    return {**counts, key: counts.get(key, 0) + 1}
