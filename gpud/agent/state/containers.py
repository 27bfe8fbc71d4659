"""The container probe in the snapshot: root's report of it, beside the agent's own probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpud.agent.state.snapshot import MeasureState, ProbeKey, ProbeState, Snapshot, number
from gpud.core import containers
from gpud.core.sample import Backend

if TYPE_CHECKING:
    from gpud.core.containers import Comparison
    from gpud.core.report import ContainersReport, RootReport
    from gpud.core.sample import Device


def with_container_probe(snapshot: Snapshot, root: RootReport | None) -> MeasureState:
    """Put root's container probe in the place of its last report; without one it is gone."""
    own, measure = containers.PROBE, snapshot.measure
    after = replace(
        measure,
        probes={key: value for key, value in measure.probes.items() if key.probe != own},
        runs={probe: count for probe, count in measure.runs.items() if probe != own},
        failures={key: count for key, count in measure.failures.items() if key[0] != own},
        skips={key: count for key, count in measure.skips.items() if key[0] != own},
    )
    report = None if root is None else root.containers
    if report is None:
        return after
    failures = {(own, reason): count for reason, count in report.failures.items()}
    skips = {(own, reason): count for reason, count in report.skips.items()}
    return replace(
        after,
        probes={**after.probes, **_container_probe(snapshot, report)},
        runs={**after.runs, own: report.runs} if report.runs or report.skips else after.runs,
        failures={**after.failures, **failures},
        skips={**after.skips, **skips},
    )


def container_key(snapshot: Snapshot, said: ContainersReport) -> ProbeKey:
    """Name the container probe's series after the GPU it ran on, as far as that is known."""
    gpu = number(snapshot, said.gpu_index)
    return ProbeKey(containers.PROBE, said.gpu_index if gpu is None else gpu)


def _container_probe(snapshot: Snapshot, said: ContainersReport) -> dict[ProbeKey, ProbeState]:
    """Give the last run as any other probe's, once it is known on which GPU it runs."""
    if said.run is None or said.gpu_index is None:
        return {}
    report = containers.run_report(said.run, _measured_device(snapshot, said))
    state = ProbeState(
        backend=Backend.CUDA,
        samples=report.samples,
        report=report,
        failure=report.failure,
        last_success_s=said.last_success_s,
        finished_mono_s=said.run.finished_mono_s,
        duration_s=report.duration_s,
    )
    return {container_key(snapshot, said): state}


def _measured_device(snapshot: Snapshot, said: ContainersReport) -> Device | None:
    """Find the GPU the container measured: the same index, and the same name."""
    inventory, figure = snapshot.measure.inventory, None if said.run is None else said.run.figure
    if inventory is None or figure is None:
        return None
    wanted = (figure.gpu_index, figure.gpu_name)
    return next((d for d in inventory.devices if (d.index, d.name) == wanted), None)


def comparison(snapshot: Snapshot, root: RootReport) -> Comparison | None:
    """Compare while both runs are of the same hour; afterwards what was found then still holds."""
    said = root.containers
    if said is None or said.run is None:
        return None
    found = containers.compared(
        said.run,
        said.recent_flops_per_second,
        _in_process(snapshot, said.gpu_index, root.beat_s),
        same_gpu=_measured_device(snapshot, said) is not None,
    )
    before = snapshot.root.comparison
    same_run = before is not None and before.run_mono_s == said.run.finished_mono_s
    return before if same_run and found.verdict is containers.Verdict.NOT_COMPARABLE else found


def _in_process(snapshot: Snapshot, gpu: int | None, beat_s: float) -> containers.InProcess | None:
    inventory = snapshot.measure.inventory
    if inventory is not None and inventory.failure is not None:
        return containers.InProcess(beat_s, failure=inventory.failure)  # asked anew all the time
    runs = {
        key.gpu: state
        for key, state in snapshot.measure.probes.items()
        if key.probe == containers.IN_PROCESS and key.gpu is not None
    }
    chosen = min(runs, default=None) if gpu is None else number(snapshot, gpu)
    state = None if chosen is None else runs.get(chosen)
    if state is None or state.finished_mono_s is None:
        return None
    median = next((sample.median for sample in state.samples), None)
    return containers.InProcess(state.finished_mono_s, median, state.failure)
