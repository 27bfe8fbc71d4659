"""What root says of the container probe, as everybody sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from gpud.agent.state.containers import (
    ContainerVerdict,
    InProcess,
    compared,
    health,
)
from gpud.agent.state.snapshot import ProbeKey, Snapshot
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
from gpud.core.sample import Backend, Device, Failure, Reason, RunReport, Unit
from gpud.document.machine import ComparisonReport
from tests import snapshots
from tests.events import Event, root_read, run_finished

if TYPE_CHECKING:
    from gpud.core.report import RootReport


KEY = ProbeKey("container_nbody", 0)
BROKEN = ContainerFailure(
    Reason.TOOLKIT_MISSING, "could not select device driver", advice="install it"
)
assert snapshots.ROOT.containers is not None
REPORT: ContainersReport = snapshots.ROOT.containers
assert REPORT.run is not None
RUN: ContainerRun = REPORT.run


def after_report(snapshot: Snapshot, beat_s: float = 99.0, **changes: Any) -> Snapshot:
    root = structs.replace(
        snapshots.ROOT, beat_s=beat_s, containers=structs.replace(REPORT, **changes)
    )
    return root_read(root, None, 5.0)(snapshot)


def failed() -> dict[str, Any]:
    return {"run": structs.replace(RUN, figure=None, failure=BROKEN)}


def nbody(mono_s: float, failure: Failure | None = None, rate: float = 2e13) -> Event:
    sample = snapshots.sample("nbody", Unit.FLOPS_PER_SECOND, rate)
    samples = (sample,) if failure is None else ()
    report = RunReport("nbody", Backend.CUDA, snapshots.DEVICE, samples, failure=failure)
    return run_finished(report, snapshots.DEVICE.uuid, 5.0, mono_s)


@pytest.mark.parametrize("root", [None, structs.replace(snapshots.ROOT, containers=None)])
def test_a_root_that_reports_no_containers_takes_the_figure_and_the_counts_with_it(
    root: RootReport | None,
) -> None:
    after = root_read(root, None if root else "gone", 5.0)(snapshots.full())
    assert KEY not in after.measure.probes
    assert "container_nbody" not in after.measure.runs
    assert not [
        key
        for key in (*after.measure.failures, *after.measure.skips)
        if key[0] == "container_nbody"
    ]
    assert "containers" not in after.health
    assert after.root.comparison is None


def test_a_failed_container_beside_a_good_probe_is_the_toolkits_fault() -> None:
    after = after_report(snapshots.full(), **failed())
    assert after.root.comparison is not None
    assert after.root.comparison.verdict is ContainerVerdict.ONLY_CONTAINER_FAILS
    health = after.health["containers"]
    assert (health.level, health.reason) == (Level.FAILED, "toolkit_missing")
    assert health.detail is not None
    assert "look at the toolkit" in health.detail
    assert health.fix == "install it"
    assert after.measure.probes[KEY].samples == ()
    assert after.measure.probes[KEY].last_success_s == REPORT.last_success_s


def test_a_failed_container_beside_a_failed_probe_is_the_drivers_fault() -> None:
    lost = Failure(Reason.DEVICE_LOST, "gone")
    after = after_report(nbody(60.0, lost)(snapshots.full()), **failed())
    assert after.root.comparison is not None
    assert after.root.comparison.verdict is ContainerVerdict.BOTH_FAIL
    assert after.health["containers"].level is Level.DEGRADED


def test_what_was_found_within_the_hour_holds_until_the_next_container_run() -> None:
    paired = after_report(snapshots.full())
    assert paired.root.comparison is not None
    assert paired.root.comparison.ratio == pytest.approx(0.8)
    later = after_report(nbody(9000.0, rate=1e12)(paired), beat_s=9001.0)
    assert later.root.comparison == paired.root.comparison
    fresh = structs.replace(RUN, finished_mono_s=9010.0)
    assert after_report(later, beat_s=9011.0, run=fresh).root.comparison != paired.root.comparison


FIGURE = ContainerFigure(
    flops_per_second=4e12,
    interactions_per_second=2e11,
    bodies=20480,
    iterations=50,
    gpu_index=0,
    gpu_name="n",
    compute_capability="8.6",
)
LONE_RUN = ContainerRun(1e9, 100.0, 2.0, figure=FIGURE)
TOOLKIT_FAILED = Failure(Reason.TOOLKIT_FAILED, "the toolkit's words", advice="do this")
FAILED = ContainerRun(1e9, 100.0, 2.0, failure=ContainerFailure.of(TOOLKIT_FAILED))
DRIVER = Failure(Reason.INIT_FAILED, "cuInit: 999")
DEVICE = Device(0, "GPU-0", "n", "0000:01:00.0", "8.6", 20, 1, 1)


@pytest.mark.parametrize(
    ("run", "inside", "verdict"),
    [
        (LONE_RUN, InProcess(200.0, 5e12), ContainerVerdict.AGREES),
        (LONE_RUN, InProcess(200.0, 1e12), ContainerVerdict.AGREES),
        (FAILED, InProcess(200.0, 5e12), ContainerVerdict.ONLY_CONTAINER_FAILS),
        (FAILED, InProcess(200.0, failure=DRIVER), ContainerVerdict.BOTH_FAIL),
        (LONE_RUN, InProcess(200.0, failure=DRIVER), ContainerVerdict.ONLY_IN_PROCESS_FAILS),
        (LONE_RUN, None, ContainerVerdict.NOT_COMPARABLE),
        (FAILED, None, ContainerVerdict.NOT_COMPARABLE),
        (LONE_RUN, InProcess(3701.0, 5e12), ContainerVerdict.NOT_COMPARABLE),
        (LONE_RUN, InProcess(-3501.0, 5e12), ContainerVerdict.NOT_COMPARABLE),
        (FAILED, InProcess(3701.0, failure=DRIVER), ContainerVerdict.NOT_COMPARABLE),
    ],
)
def test_a_toolkits_fault_is_told_from_a_drivers(
    run: ContainerRun,
    inside: InProcess | None,
    verdict: ContainerVerdict,
) -> None:
    assert compared(run, inside).verdict is verdict


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
        (report_of(LONE_RUN), verdict(ContainerVerdict.AGREES), Level.OK, None),
        (report_of(LONE_RUN), verdict(ContainerVerdict.NOT_COMPARABLE), Level.OK, None),
        (
            report_of(LONE_RUN),
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
