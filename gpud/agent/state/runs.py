"""Changes of ``MeasureState``: figures, failures and counts of each probe, and its skips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpud.agent.state import containers, recent
from gpud.agent.state.snapshot import (
    MeasureState,
    ProbeKey,
    ProbeState,
    Snapshot,
    holds_s,
    number,
    probe_key,
)
from gpud.core import stats
from gpud.core.sample import Backend, RunReport
from gpud.document.runs import PutOff

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping
    from typing import TypeVar

    from gpud.core.clock import Instant
    from gpud.core.sample import Buckets, Flag, Inventory, ProbeSpec, Skip
    from gpud.document.machine import ComparisonReport, ListedGpu
    from gpud.document.runs import RecentSeries

    K = TypeVar("K", bound=Hashable)
    from gpud.core.report import ContainersReport, RootReport


def current(snapshot: Snapshot, now: Instant) -> dict[ProbeKey, ProbeState]:
    """Return the probes whose last run is recent enough to stand for now.

    The age is by the wall clock as well: while the machine slept, the monotonic one stood still.
    """
    specs = {spec.name: spec for spec in snapshot.measure.specs}
    runs = {}
    for key, state in snapshot.measure.probes.items():
        if key.probe == containers.PROBE:
            interval_s = snapshot.pace.container_s
        else:
            interval_s = snapshot.pace.beat.run_s(specs.get(key.probe))
        age_s = max(now.mono_s - state.finished_mono_s, now.wall_s - state.finished_s)
        if age_s <= holds_s(interval_s):
            runs[key] = state
    return runs


def with_specs(
    measure: MeasureState, specs: tuple[ProbeSpec, ...], refused: Mapping[str, str]
) -> MeasureState:
    """List the probes, each with its count of runs; what is listed no more leaves no figures."""
    names = {spec.name for spec in specs}
    gone = {spec.name for spec in measure.specs} - names
    return replace(
        measure,
        specs=specs,
        refused=refused,
        probes={key: state for key, state in measure.probes.items() if key.probe not in gone},
        put_off={key: skip for key, skip in measure.put_off.items() if key.probe not in gone},
        runs=dict.fromkeys(sorted(names), 0)
        | {name: count for name, count in measure.runs.items() if count or name not in gone},
    )


def with_inventory(
    measure: MeasureState, inventory: Inventory, gpus: Mapping[str, ListedGpu], now_mono_s: float
) -> MeasureState:
    """Take in CUDA's list, whose GPUs ``gpus`` holds. Series of a GPU that is gone go with it."""
    here = {None, *(gpus[device.uuid].number for device in inventory.devices)}
    return replace(
        measure,
        inventory=inventory,
        inventory_mono_s=now_mono_s,
        probes={key: state for key, state in measure.probes.items() if key.gpu in here},
        latencies={key: value for key, value in measure.latencies.items() if key[0] in here},
        put_off={key: value for key, value in measure.put_off.items() if key.gpu in here},
    )


def with_run(  # noqa: PLR0913, PLR0917  # a run, and where and when it was
    measure: MeasureState,
    gpus: Mapping[str, ListedGpu],
    report: RunReport,
    uuid: str | None,
    at: Instant,
    flags: tuple[Flag, ...] = (),
    past: tuple[RecentSeries, ...] = (),
) -> MeasureState:
    """Take in a finished run: its figures or its failure, the counts, and the end of its skips.

    ``uuid`` is that of the GPU that was asked for, also where the child never got to see it.
    ``past`` has the medians of its probe on that GPU.
    """
    key = probe_key(gpus, report.probe, uuid)
    gpu = key.gpu
    before, failure = measure.probes.get(key), report.failure
    success_s = None if before is None else before.last_success_s
    success_s = at.wall_s if failure is None else success_s
    state = ProbeState(report, at.wall_s, at.mono_s, success_s, flags)
    failures = () if failure is None else ((report.probe, failure.reason),)
    ended = {key, ProbeKey(key.probe, None)}  # skips of before a GPU was chosen included
    on_gpu = gpu is not None
    vram, pinned = measure.vram_peak_bytes, measure.pinned_peak_bytes
    return replace(
        measure,
        probes={**measure.probes, key: state},
        put_off={each: value for each, value in measure.put_off.items() if each not in ended},
        runs=_counted(measure.runs, (report.probe,)),
        failures=_counted(measure.failures, failures),
        flagged=_counted(measure.flagged, ((report.probe, flag) for flag in flags)),
        latencies=_accumulated(measure.latencies, gpu, report),
        recent=recent.with_past(measure.recent, report.probe, uuid, past),
        gpu_seconds=measure.gpu_seconds + (report.gpu_seconds or 0.0),
        vram_peak_bytes=_most(vram, report.vram_peak_bytes) if on_gpu else vram,
        pinned_peak_bytes=_most(pinned, report.pinned_peak_bytes) if on_gpu else pinned,
    )


def gpu_costs(measure: MeasureState) -> dict[str, float]:
    """Give the GPU seconds of the last run of each probe, the most on any GPU."""
    costs_s: dict[str, float] = {}
    for key, state in measure.probes.items():
        costs_s[key.probe] = max(costs_s.get(key.probe, 0.0), state.report.gpu_seconds or 0.0)
    return costs_s


def with_skip(  # noqa: PLR0913  # each is one fact of the skip
    measure: MeasureState,
    key: ProbeKey,
    reason: Skip,
    *,
    starving: bool = False,
    used_ratio: float | None = None,
    next_s: float | None = None,
) -> MeasureState:
    """Count a due run that was not started, by probe and reason and in a row.

    ``starving``: for this reason and too long already. ``used_ratio``: of a busy GPU, the share of
    the time that others used it. ``next_s``: Unix time of the next attempt.
    """
    before = measure.put_off.get(key)
    count = 1 if before is None else before.count + 1
    return replace(
        measure,
        skips=_counted(measure.skips, ((key.probe, reason),)),
        put_off={**measure.put_off, key: PutOff(count, reason, starving, used_ratio, next_s)},
    )


def _counted(counts: Mapping[K, int], keys: Iterable[K]) -> Mapping[K, int]:
    after = dict(counts)
    for key in keys:
        after[key] = after.get(key, 0) + 1
    return after


def _most(before: int | None, now: int | None) -> int | None:
    return max(before or 0, now) if now is not None else before


def _accumulated(
    totals: Mapping[tuple[int, str], Buckets], gpu: int | None, report: RunReport
) -> Mapping[tuple[int, str], Buckets]:
    if report.failure is not None or gpu is None:
        return totals
    grown = dict(totals)
    for sample in report.samples:
        if (buckets := sample.buckets) is not None:
            key = (gpu, sample.mode)
            grown[key] = stats.merged(grown[key], buckets) if key in grown else buckets
    return grown


def with_container_probe(snapshot: Snapshot, root: RootReport | None) -> MeasureState:
    """Put root's container probe in the place of its last report; without one it is gone."""
    own, measure = containers.PROBE, snapshot.measure
    report = None if root is None else root.containers
    keys = {key.probe for key in measure.probes} | measure.runs.keys()
    if report is None and own not in keys:  # nor does a skip come without a count of runs
        return measure
    after = replace(
        measure,
        probes={key: value for key, value in measure.probes.items() if key.probe != own},
        runs={probe: count for probe, count in measure.runs.items() if probe != own},
        failures={key: count for key, count in measure.failures.items() if key[0] != own},
        skips={key: count for key, count in measure.skips.items() if key[0] != own},
    )
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


def _container_probe(snapshot: Snapshot, status: ContainersReport) -> dict[ProbeKey, ProbeState]:
    """Give the last run as any other probe's, once it is known on which GPU it runs."""
    run, index = status.run, status.gpu_index
    if run is None or index is None:
        return {}
    device = containers.measured_device(run, snapshot.measure.inventory)
    report = containers.run_report(run, device)
    state = ProbeState(report, run.finished_s, run.finished_mono_s, status.last_success_s)
    gpu = number(snapshot, index)
    return {ProbeKey(containers.PROBE, index if gpu is None else gpu): state}


def comparison(snapshot: Snapshot, root: RootReport) -> ComparisonReport | None:
    """Compare while both runs are of the same hour; afterwards what was found then still holds."""
    status, before = root.containers, snapshot.root.comparison
    if status is None or status.run is None:
        return None
    result = containers.compared(
        status.run,
        _in_process(snapshot, root, status.gpu_index),
        containers.measured_device(status.run, snapshot.measure.inventory),
    )
    same_run = before is not None and before.run_mono_s == status.run.finished_mono_s
    unknown = result.verdict is containers.ContainerVerdict.NOT_COMPARABLE
    return before if same_run and unknown else result


def _in_process(snapshot: Snapshot, root: RootReport, gpu: int | None) -> ProbeState | None:
    """Return the last in-process n-body run; while CUDA fails that is one that fails now."""
    inventory = snapshot.measure.inventory
    if inventory is not None and inventory.failure is not None:
        failed = RunReport(containers.IN_PROCESS, Backend.CUDA, failure=inventory.failure)
        return ProbeState(failed, root.written_s, root.beat_s, None)
    runs = {
        key.gpu: state
        for key, state in snapshot.measure.probes.items()
        if key.probe == containers.IN_PROCESS and key.gpu is not None
    }
    chosen = min(runs, default=None) if gpu is None else number(snapshot, gpu)
    return None if chosen is None else runs.get(chosen)
