"""What root says of the container probe, as everybody sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from gpud.agent.state.containers import ContainerVerdict
from gpud.agent.state.snapshot import ProbeKey, Snapshot
from gpud.core.health import Level
from gpud.core.report import ContainerFailure
from gpud.core.sample import Backend, Failure, Reason, RunReport, Unit
from tests import snapshots
from tests.events import Event, root_read, run_finished

if TYPE_CHECKING:
    from gpud.core.report import ContainerRun, ContainersReport, RootReport

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


def test_a_failed_container_beside_a_failed_probe_is_the_drivers_fault() -> None:
    lost = Failure(Reason.DEVICE_LOST, "gone")
    after = heard(nbody(60.0, lost)(snapshots.full()), **failed())
    assert after.root.comparison is not None
    assert after.root.comparison.verdict is ContainerVerdict.BOTH_FAIL
    assert after.health["containers"].level is Level.DEGRADED


def test_what_was_found_within_the_hour_holds_until_the_next_container_run() -> None:
    paired = heard(snapshots.full())
    assert paired.root.comparison is not None
    assert paired.root.comparison.ratio == pytest.approx(0.8)
    later = heard(nbody(9000.0, rate=1e12)(paired), beat_s=9001.0)
    assert later.root.comparison == paired.root.comparison
    fresh = structs.replace(RUN, finished_mono_s=9010.0)
    assert heard(later, beat_s=9011.0, run=fresh).root.comparison != paired.root.comparison
