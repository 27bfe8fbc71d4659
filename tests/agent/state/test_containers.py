"""What root says of the container probe, as everybody sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from gpud.agent.state.containers import ContainerVerdict
from gpud.agent.state.snapshot import ProbeKey, Snapshot
from gpud.core.health import Level
from gpud.core.report import (
    ContainerFailure,
    ContainerRun,
    ContainersReport,
    ToolkitReport,
    ToolkitState,
)
from gpud.core.sample import Backend, Failure, Inventory, Reason, RunReport, Unit
from tests import snapshots
from tests.events import Event, folded, inventory_taken, root_read, run_finished

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


def test_what_was_found_within_the_hour_holds_until_the_next_container_run() -> None:
    paired = after_report(snapshots.full())
    assert paired.root.comparison is not None
    assert paired.root.comparison.ratio == pytest.approx(0.8)
    later = after_report(nbody(9000.0, rate=1e12)(paired), beat_s=9001.0)
    assert later.root.comparison == paired.root.comparison
    fresh = structs.replace(RUN, finished_mono_s=9010.0)
    assert after_report(later, beat_s=9011.0, run=fresh).root.comparison != paired.root.comparison


FAILED = structs.replace(RUN, figure=None, failure=BROKEN)
DRIVER = Failure(Reason.DEVICE_LOST, "gone")
FOUND = inventory_taken(Inventory((snapshots.DEVICE,)), 1.0)


@pytest.mark.parametrize(
    ("run", "inside", "verdict", "level", "reason"),
    [
        (RUN, nbody(60.0), ContainerVerdict.AGREES, Level.OK, None),
        (RUN, nbody(3650.0, rate=1e12), ContainerVerdict.AGREES, Level.OK, None),
        (
            FAILED,
            nbody(60.0),
            ContainerVerdict.ONLY_CONTAINER_FAILS,
            Level.FAILED,
            "toolkit_missing",
        ),
        (
            FAILED,
            nbody(60.0, DRIVER),
            ContainerVerdict.BOTH_FAIL,
            Level.DEGRADED,
            "toolkit_missing",
        ),
        (
            RUN,
            nbody(60.0, DRIVER),
            ContainerVerdict.ONLY_IN_PROCESS_FAILS,
            Level.DEGRADED,
            "only_in_process_fails",
        ),
        (RUN, FOUND, ContainerVerdict.NOT_COMPARABLE, Level.OK, None),
        (FAILED, FOUND, ContainerVerdict.NOT_COMPARABLE, Level.FAILED, "toolkit_missing"),
        (RUN, nbody(3651.0), ContainerVerdict.NOT_COMPARABLE, Level.OK, None),
        (RUN, nbody(-3551.0), ContainerVerdict.NOT_COMPARABLE, Level.OK, None),
        (
            FAILED,
            nbody(3651.0, DRIVER),
            ContainerVerdict.NOT_COMPARABLE,
            Level.FAILED,
            "toolkit_missing",
        ),
    ],
)
def test_a_toolkits_fault_is_told_from_a_drivers(
    run: ContainerRun, inside: Event, verdict: ContainerVerdict, level: Level, reason: str | None
) -> None:
    after = after_report(folded(snapshots.bare(), FOUND, inside), run=run)
    assert after.root.comparison is not None
    assert after.root.comparison.verdict is verdict
    health = after.health["containers"]
    assert (health.level, health.reason) == (level, reason)
    if verdict is ContainerVerdict.ONLY_CONTAINER_FAILS:
        assert "look at the toolkit" in (health.detail or "")
        assert health.fix == "install it"
        assert after.measure.probes[KEY].samples == ()
        assert after.measure.probes[KEY].last_success_s == REPORT.last_success_s


@pytest.mark.parametrize(
    ("toolkit", "level", "reason"),
    [
        (ToolkitReport(ToolkitState.RUNTIME), Level.OK, None),
        (ToolkitReport(ToolkitState.NONE), Level.OK, "not_set_up"),
        (ToolkitReport(ToolkitState.BROKEN, "cdi_off"), Level.DEGRADED, "toolkit_cdi_off"),
    ],
)
def test_before_a_container_ran_the_toolkit_is_the_health_of_gpu_containers(
    toolkit: ToolkitReport, level: Level, reason: str | None
) -> None:
    health = after_report(FOUND(snapshots.bare()), run=None, toolkit=toolkit).health["containers"]
    assert (health.level, health.reason) == (level, reason)


def test_a_fault_holds_while_a_new_dockerd_was_not_asked_yet_and_ends_with_the_image() -> None:
    failed = after_report(snapshots.full(), run=FAILED)
    unknown, gone = (
        after_report(failed, run=FAILED, image_present=present) for present in (None, False)
    )
    assert unknown.health["containers"] == failed.health["containers"]
    assert gone.health["containers"].level is Level.OK
