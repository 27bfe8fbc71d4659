"""What root says of the container probe, as everybody sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from gpud.agent.state.containers import ContainerVerdict
from gpud.agent.state.snapshot import ProbeKey, Snapshot, overall
from gpud.core.health import Level
from gpud.core.report import ContainerFailure
from gpud.core.sample import Backend, Failure, Inventory, Reason, RunReport, Unit
from tests import snapshots
from tests.events import Event, altered, inventory_taken, root_read, run_finished

if TYPE_CHECKING:
    from gpud.core.report import ContainerFigure, ContainerRun, ContainersReport, RootReport

KEY = ProbeKey("container_nbody", 0)
BROKEN = ContainerFailure(
    Reason.TOOLKIT_MISSING, "could not select device driver", advice="install it"
)
assert snapshots.ROOT.containers is not None
SAID: ContainersReport = snapshots.ROOT.containers
assert SAID.run is not None
RUN: ContainerRun = SAID.run


def heard(snapshot: Snapshot, beat_s: float = 99.0, **changes: Any) -> Snapshot:
    root = structs.replace(
        snapshots.ROOT, beat_s=beat_s, containers=structs.replace(SAID, **changes)
    )
    return root_read(root, None, 5.0)(snapshot)


def failed() -> dict[str, Any]:
    return {"run": structs.replace(RUN, figure=None, failure=BROKEN), "recent_flops_per_second": ()}


def nbody(mono_s: float, failure: Failure | None = None, rate: float = 2e13) -> Event:
    sample = snapshots.sample("nbody", Unit.FLOPS_PER_SECOND, rate)
    samples = (sample,) if failure is None else ()
    report = RunReport("nbody", Backend.CUDA, snapshots.DEVICE, samples, failure=failure)
    return run_finished(report, snapshots.DEVICE.uuid, 5.0, mono_s)


def test_a_run_of_roots_is_a_probe_as_any_other() -> None:
    snapshot = snapshots.full()
    state = snapshot.measure.probes[KEY]
    assert state.samples[0].median == 1.6e13
    assert state.report is not None
    assert state.report.device == snapshots.DEVICE
    assert snapshot.measure.runs["container_nbody"] == 3
    assert snapshot.measure.failures["container_nbody", "toolkit_missing"] == 2
    assert snapshot.measure.skips["container_nbody", "image_absent"] == 1
    assert snapshot.health["containers"].level is Level.OK


def test_hearing_it_again_changes_nothing() -> None:
    once = snapshots.full()
    assert heard(once) == altered(once, root=heard(once).root)


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
    after = heard(snapshots.full(), **failed())
    assert after.root.comparison is not None
    assert after.root.comparison.verdict is ContainerVerdict.ONLY_CONTAINER_FAILS
    health = after.health["containers"]
    assert (health.level, health.reason) == (Level.FAILED, "toolkit_missing")
    assert health.detail is not None
    assert "look at the toolkit" in health.detail
    assert health.fix == "install it"
    assert after.measure.probes[KEY].samples == ()
    assert after.measure.probes[KEY].last_success_s == SAID.last_success_s


def test_a_failed_container_says_nothing_about_gpuds_own_probes() -> None:
    before = snapshots.full()
    after = nbody(95.0)(heard(before, **failed()))
    assert after.health["probes"] == before.health["probes"]


def test_a_failed_container_beside_a_failed_probe_is_the_drivers_fault() -> None:
    lost = Failure(Reason.DEVICE_LOST, "gone")
    after = heard(nbody(60.0, lost)(snapshots.full()), **failed())
    assert after.root.comparison is not None
    assert after.root.comparison.verdict is ContainerVerdict.BOTH_FAIL
    assert after.health["containers"].level is Level.DEGRADED


def test_a_machine_on_which_cuda_does_not_start_counts_as_a_probe_that_fails() -> None:
    nothing = Inventory(failure=Failure(Reason.LIBRARY_MISSING, "no libcuda"))
    after = inventory_taken(nothing, 5.0)(snapshots.full())
    assert heard(after, **failed()).root.comparison is not None
    good, bad = heard(after), heard(after, **failed())
    assert good.root.comparison is not None
    assert bad.root.comparison is not None
    assert good.root.comparison.verdict is ContainerVerdict.ONLY_IN_PROCESS_FAILS
    assert bad.root.comparison.verdict is ContainerVerdict.BOTH_FAIL
    assert bad.health["containers"].reason == "toolkit_missing"


def test_what_was_found_within_the_hour_holds_until_the_next_container_run() -> None:
    paired = heard(snapshots.full())
    assert paired.root.comparison is not None
    assert paired.root.comparison.ratio == pytest.approx(0.8)
    later = heard(nbody(9000.0, rate=1e12)(paired), beat_s=9001.0)
    assert later.root.comparison == paired.root.comparison
    fresh = structs.replace(RUN, finished_mono_s=9010.0)
    assert heard(later, beat_s=9011.0, run=fresh).root.comparison != paired.root.comparison


def test_a_container_that_measured_another_gpu_is_not_compared() -> None:
    assert RUN.figure is not None
    other: ContainerFigure = structs.replace(RUN.figure, gpu_name="another")
    after = heard(snapshots.full(), run=structs.replace(RUN, figure=other, finished_mono_s=51.0))
    assert after.root.comparison is not None
    assert after.root.comparison.verdict is ContainerVerdict.NOT_COMPARABLE
    report = after.measure.probes[KEY].report
    assert report is not None
    assert report.device is None


def test_the_health_says_since_when() -> None:
    first = heard(snapshots.full(), **failed())
    root = structs.replace(snapshots.ROOT, containers=structs.replace(SAID, **failed()))
    again = root_read(root, None, 500.0)(first)
    assert again.health["containers"].since_s == first.health["containers"].since_s == 5.0
    assert overall(again) is Level.FAILED
