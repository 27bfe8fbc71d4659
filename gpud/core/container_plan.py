"""When root looks at the container toolkit and when it runs the sample, as arithmetic.

``due`` gives at most one task at a time, ``done`` takes its outcome. A run is announced first: who
else uses the GPU reads the report and steps aside, so nobody has to ask anybody for a lock.
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
from gpud.core.sample import SCHEMA_VERSION, Failure, Reason, Skip

if TYPE_CHECKING:
    from gpud.core.sections import Containers

LOOK_EVERY_S: Final = 600.0
"""A toolkit that was just installed, or an image just pulled, is noticed this soon."""
SETTLE_S: Final = 3.0
"""A dockerd that has just come is left to its own start, and so is the agent."""
ANNOUNCE_S: Final = 5.0
"""The agent reads the report every second and its own runs take less than the rest."""
RETRY_S: Final = 900.0
"""After a failure; it doubles with each further one up to the interval."""


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
    """What the short-lived process is started for."""

    LOOK = "look"
    PULL = "pull"  # fetch the image, and look
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Word:
    """The one document the short-lived process prints; what it did not do is None.

    Units: ``duration_s`` is that of the run. ``failure`` is the task's; a run has either that or
    a figure in ``run``.
    """

    toolkit: ToolkitReport | None = None
    image_present: bool | None = None
    run: ContainerRun | None = None
    failure: Failure | None = None
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Plan:
    """What is remembered between two looks. Units: monotonic seconds."""

    settings: Containers
    report: ContainersReport
    next_run_s: float
    next_look_s: float
    next_skip_s: float = 0.0  # a due run that cannot be is counted once an interval
    announced_s: float | None = None
    busy: Task | None = None
    dockerd: ProcessRef | None = None  # the one that was looked at
    failed: int = 0  # runs in a row


def begun(settings: Containers, now_s: float) -> Plan:
    """Give the plan of a supervisor that has just started."""
    stage = ProbeStage.WAITING if settings.probe else ProbeStage.OFF
    return Plan(
        settings,
        ContainersReport(stage=stage, image=settings.image),
        next_run_s=now_s + settings.first_after_s,
        next_look_s=now_s + SETTLE_S,
    )


def due(
    plan: Plan, dockerd: ProcessRef | None, now_s: float, *, answers: bool
) -> tuple[Plan, Task | None]:
    """Give what is to be started now, if anything.

    ``dockerd`` is the process behind the socket, None where it cannot be known.
    """
    if plan.busy is not None:
        return plan, None
    run_due = plan.settings.probe and now_s >= plan.next_run_s
    if not answers:
        plan = _staged(replace(plan, announced_s=None), ProbeStage.WAITING)
        return (_skipped(plan, Skip.DOCKERD_DOWN, now_s) if run_due else plan), None
    if plan.announced_s is not None:
        return _running(plan, now_s)
    if dockerd != plan.dockerd:
        plan = _another_dockerd(plan, dockerd, now_s)
    if now_s >= plan.next_look_s:
        return replace(plan, next_look_s=now_s + LOOK_EVERY_S, busy=Task.LOOK), Task.LOOK
    looked = plan.report.image_present is not None
    return _appointed(plan, now_s) if run_due and looked else (plan, None)


def _another_dockerd(plan: Plan, dockerd: ProcessRef | None, now_s: float) -> Plan:
    """Forget what the former one had: images, a toolkit, a failure that a restart can mend."""
    run = plan.report.run
    mended = run is not None and run.failure is not None and run.failure.reason in MENDED_BY_RESTART
    return replace(
        plan,
        dockerd=dockerd,
        next_look_s=now_s + SETTLE_S,
        next_run_s=min(plan.next_run_s, now_s) if mended else plan.next_run_s,
        report=replace(plan.report, image_present=None, toolkit=None),
    )


def _running(plan: Plan, now_s: float) -> tuple[Plan, Task | None]:
    """Start an announced run once everybody has had the time to hear of it."""
    if plan.announced_s is not None and now_s < plan.announced_s + ANNOUNCE_S:
        return plan, None
    started = replace(plan, announced_s=None, busy=Task.RUN)
    return _staged(started, ProbeStage.RUNNING), Task.RUN


def _appointed(plan: Plan, now_s: float) -> tuple[Plan, Task | None]:
    """Announce a run that is due, or say why it cannot be."""
    if plan.report.image_present:
        return _staged(replace(plan, announced_s=now_s), ProbeStage.ANNOUNCED), None
    if plan.settings.pull:
        return replace(plan, busy=Task.PULL), Task.PULL
    return _skipped(plan, Skip.IMAGE_ABSENT, now_s), None


def done(plan: Plan, word: Word, *, wall_s: float, now_s: float) -> Plan:
    """Take note of how the task ended; ``word`` says it, or why there is no word."""
    task = plan.busy
    toolkit = word.toolkit or plan.report.toolkit
    if toolkit is None and word.failure is not None:
        toolkit = ToolkitReport(ToolkitState.UNKNOWN, "look_failed", word.failure.detail)
    known = replace(
        plan.report,
        toolkit=toolkit,
        image_present=plan.report.image_present
        if word.image_present is None
        else word.image_present,
    )
    after = _staged(replace(plan, busy=None, report=known), ProbeStage.WAITING)
    before = plan.report.toolkit
    if plan.failed and before and toolkit and before.state is not toolkit.state:
        after = replace(after, next_run_s=min(after.next_run_s, now_s))  # somebody mended it
    if task is Task.RUN:
        run = word.run or ContainerRun(wall_s, now_s, 0.0, failure=word.failure)
        return _ran(after, run, now_s)
    if task is Task.PULL and not known.image_present:
        return _ran(after, ContainerRun(wall_s, now_s, 0.0, failure=word.failure), now_s)
    return after


def _ran(plan: Plan, run: ContainerRun, now_s: float) -> Plan:
    before, figure = plan.report, run.figure
    failures = dict(before.failures)
    if figure is None and run.failure is not None:
        failures[run.failure.reason] = failures.get(run.failure.reason, 0) + 1
    report = replace(
        before,
        run=run,
        runs=before.runs + 1,
        failures=failures,
        recent_flops_per_second=()
        if figure is None
        else (*before.recent_flops_per_second, figure.flops_per_second)[-SLOW_RUNS:],
        last_success_s=before.last_success_s if figure is None else run.finished_s,
        gpu_index=before.gpu_index if figure is None else figure.gpu_index,
    )
    failed = 0 if figure is not None else plan.failed + 1
    pause_s = plan.settings.interval_s
    if failed:
        pause_s = min(pause_s, RETRY_S * 2.0 ** min(failed - 1, 30))
    return replace(plan, report=report, failed=failed, next_run_s=now_s + pause_s)


def _skipped(plan: Plan, reason: Skip, now_s: float) -> Plan:
    """Count it once an interval; the run stays due, and is made as soon as it can be."""
    if now_s < plan.next_skip_s:
        return plan
    skips = {**plan.report.skips, reason: plan.report.skips.get(reason, 0) + 1}
    counted = replace(plan.report, skips=skips)
    return replace(plan, report=counted, next_skip_s=now_s + plan.settings.interval_s)


def _staged(plan: Plan, stage: ProbeStage) -> Plan:
    if not plan.settings.probe:
        stage = ProbeStage.OFF
    return replace(plan, report=replace(plan.report, stage=stage))
