"""Health of GPU containers, by the last run in one and gpud's own n-body beside it."""

from __future__ import annotations

import pytest
from msgspec import structs

from gpud.agent.state import containers
from gpud.agent.state.containers import (
    ContainerVerdict,
    InProcess,
    compared,
    health,
)
from gpud.core.health import Level
from gpud.core.report import (
    ContainerFailure,
    ContainerFigure,
    ContainerRun,
    ContainersReport,
    ProbeStage,
    ToolkitReport,
    ToolkitState,
)
from gpud.core.sample import Backend, Device, Failure, Reason, Unit
from gpud.document.machine import ComparisonReport

FIGURE = ContainerFigure(
    flops_per_second=4e12,
    interactions_per_second=2e11,
    bodies=20480,
    iterations=50,
    gpu_index=0,
    gpu_name="n",
    compute_capability="8.6",
)
RUN = ContainerRun(1e9, 100.0, 2.0, figure=FIGURE)
BROKEN = Failure(Reason.TOOLKIT_FAILED, "the toolkit's words", advice="do this")
FAILED = ContainerRun(1e9, 100.0, 2.0, failure=ContainerFailure.of(BROKEN))
DRIVER = Failure(Reason.INIT_FAILED, "cuInit: 999")
DEVICE = Device(0, "GPU-0", "n", "0000:01:00.0", "8.6", 20, 1, 1)


def test_a_run_is_kept_in_the_shape_of_every_other() -> None:
    report = containers.run_report(RUN, DEVICE)
    assert (report.probe, report.backend, report.device) == (
        "container_nbody",
        Backend.CUDA,
        DEVICE,
    )
    assert report.samples[0].median == FIGURE.flops_per_second
    assert report.samples[0].unit is Unit.FLOPS_PER_SECOND
    assert containers.run_report(FAILED, None).failure == BROKEN
    assert containers.run_report(FAILED, None).samples == ()


@pytest.mark.parametrize(
    ("run", "inside", "verdict"),
    [
        (RUN, InProcess(200.0, 5e12), ContainerVerdict.AGREES),
        (RUN, InProcess(200.0, 1e12), ContainerVerdict.AGREES),
        (FAILED, InProcess(200.0, 5e12), ContainerVerdict.ONLY_CONTAINER_FAILS),
        (FAILED, InProcess(200.0, failure=DRIVER), ContainerVerdict.BOTH_FAIL),
        (RUN, InProcess(200.0, failure=DRIVER), ContainerVerdict.ONLY_IN_PROCESS_FAILS),
        (RUN, None, ContainerVerdict.NOT_COMPARABLE),
        (FAILED, None, ContainerVerdict.NOT_COMPARABLE),
        (RUN, InProcess(3701.0, 5e12), ContainerVerdict.NOT_COMPARABLE),
        (RUN, InProcess(-3501.0, 5e12), ContainerVerdict.NOT_COMPARABLE),
        (FAILED, InProcess(3701.0, failure=DRIVER), ContainerVerdict.NOT_COMPARABLE),
    ],
)
def test_a_toolkits_fault_is_told_from_a_drivers(
    run: ContainerRun,
    inside: InProcess | None,
    verdict: ContainerVerdict,
) -> None:
    assert compared(run, inside).verdict is verdict


def test_the_ratio_is_the_containers_rate_over_gpuds_own_on_the_same_gpu() -> None:
    comparison = compared(RUN, InProcess(100.0, 5e12))
    assert comparison.ratio == pytest.approx(0.8)
    assert comparison.gpu == 0
    assert "80%" in comparison.detail
    other = compared(RUN, InProcess(100.0, 5e12), same_gpu=False)
    assert (other.verdict, other.ratio) == (ContainerVerdict.NOT_COMPARABLE, None)


def report_of(
    run: ContainerRun | None = None, state: ToolkitState = ToolkitState.RUNTIME
) -> ContainersReport:
    broken = state is ToolkitState.BROKEN
    toolkit = ToolkitReport(state, "cdi_off" if broken else None, "words", "fix")
    return ContainersReport(ProbeStage.WAITING, "i", image_present=True, toolkit=toolkit, run=run)


def verdict(of: ContainerVerdict) -> ComparisonReport:
    return ComparisonReport(of, "the words of the verdict")


@pytest.mark.parametrize(
    ("report", "comparison", "level", "reason"),
    [
        (report_of(RUN), verdict(ContainerVerdict.AGREES), Level.OK, None),
        (report_of(RUN), verdict(ContainerVerdict.NOT_COMPARABLE), Level.OK, None),
        (
            report_of(RUN),
            verdict(ContainerVerdict.ONLY_IN_PROCESS_FAILS),
            Level.DEGRADED,
            "only_in_process_fails",
        ),
        (
            report_of(FAILED),
            verdict(ContainerVerdict.ONLY_CONTAINER_FAILS),
            Level.FAILED,
            "toolkit_failed",
        ),
        (
            report_of(FAILED),
            verdict(ContainerVerdict.NOT_COMPARABLE),
            Level.FAILED,
            "toolkit_failed",
        ),
        (report_of(FAILED), verdict(ContainerVerdict.BOTH_FAIL), Level.DEGRADED, "toolkit_failed"),
        (report_of(), None, Level.OK, None),
        (report_of(state=ToolkitState.NONE), None, Level.OK, "not_set_up"),
        (report_of(state=ToolkitState.BROKEN), None, Level.DEGRADED, "toolkit_cdi_off"),
    ],
)
def test_the_health_of_gpu_containers(
    report: ContainersReport, comparison: ComparisonReport | None, level: Level, reason: str | None
) -> None:
    result = health(report, comparison, has_gpu=True)
    assert result is not None
    assert (result.level, result.reason) == (level, reason)


def test_a_fault_holds_while_a_new_dockerd_was_not_asked_yet_and_ends_with_the_image() -> None:
    unknown, gone = (
        structs.replace(report_of(FAILED), image_present=present) for present in (None, False)
    )
    comparison = verdict(ContainerVerdict.ONLY_CONTAINER_FAILS)
    result = health(unknown, comparison, has_gpu=True)
    assert result == health(report_of(FAILED), comparison, has_gpu=True)
    later = health(gone, comparison, has_gpu=True)
    assert later is not None
    assert later.level is Level.OK
