"""What the probes brought, how often they ran, and why they did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

from gpud.agent.serve.metrics import latency
from gpud.agent.serve.metrics.labels import gpu_of
from gpud.agent.state.snapshot import fresh
from gpud.core import containers
from gpud.core.sample import Pace, Unit
from gpud.core.stats import LATENCY_BOUNDS_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from gpud.agent.state.snapshot import ProbeKey, ProbeState, Snapshot
    from gpud.core.clock import Instant
    from gpud.core.sample import ProbeSpec
    from gpud.core.settings import Settings

MEDIANS = {
    Unit.SECONDS: (
        "gpud_probe_latency_median_seconds",
        "Median of the last verified run, the empty call subtracted.",
    ),
    Unit.BYTES_PER_SECOND: (
        "gpud_probe_bytes_per_second",
        "Median throughput of the last verified run.",
    ),
    Unit.FLOPS_PER_SECOND: (
        "gpud_probe_flops_per_second",
        "Median arithmetic rate of the last verified run.",
    ),
}


def fresh_enough(
    snapshot: Snapshot, settings: Settings, now: Instant
) -> dict[ProbeKey, ProbeState]:
    """Give the probes whose last run may still be spoken of."""
    specs = {spec.name: spec for spec in snapshot.specs}
    return {
        key: state
        for key, state in snapshot.probes.items()
        if _is_fresh(state, _interval_s(key.probe, specs, settings), now)
    }


def families(snapshot: Snapshot, current: Mapping[ProbeKey, ProbeState]) -> Iterator[Metric]:
    """Yield the figures of runs that are fresh enough, the ``current`` ones, and the counters."""
    for unit, (name, text) in MEDIANS.items():
        family = GaugeMetricFamily(name, text, labels=["gpu", "probe", "mode"])
        for key, state in current.items():
            for sample in state.samples:
                if sample.unit is unit:
                    family.add_metric([gpu_of(key), key.probe, sample.mode], sample.median)
        yield family
    yield _methods(current)
    yield _crossovers(current)
    yield from latency.families(current)
    yield _latencies(snapshot)
    yield from _probe_counters(snapshot)
    finished = GaugeMetricFamily(
        "gpud_probe_last_success_timestamp_seconds",
        "Unix time of the last run whose results were right.",
        labels=["gpu", "probe"],
    )
    took = GaugeMetricFamily(
        "gpud_probe_duration_seconds",
        "Wall time of the last run, inside the child.",
        labels=["gpu", "probe"],
    )
    flags = GaugeMetricFamily(
        "gpud_probe_flag",
        "1 for what makes the last run no usual one.",
        labels=["gpu", "probe", "flag"],
    )
    powered = GaugeMetricFamily(
        "gpud_probe_on_battery",
        "1 when the last run was on battery, 0 when it was on mains.",
        labels=["gpu", "probe"],
    )
    for key, state in snapshot.probes.items():
        if state.last_success_s is not None:
            finished.add_metric([gpu_of(key), key.probe], state.last_success_s)
        if state.duration_s is not None and key in current:
            took.add_metric([gpu_of(key), key.probe], state.duration_s)
        for flag in state.flags if key in current else ():
            flags.add_metric([gpu_of(key), key.probe, flag], 1)
        if key in current and (on_mains := _on_mains(state)) is not None:
            powered.add_metric([gpu_of(key), key.probe], not on_mains)
    yield from (finished, took, flags, powered, _put_off(snapshot))


def _on_mains(state: ProbeState) -> bool | None:
    told = None if state.report is None else state.report.conditions.get("after.ac")
    return told if isinstance(told, bool) else None


def _interval_s(probe: str, specs: Mapping[str, ProbeSpec], settings: Settings) -> float:
    if probe == containers.PROBE:
        return settings.containers.interval_s
    spec, schedule = specs.get(probe), settings.schedule
    if spec is None or spec.pace is Pace.LARGE:
        return schedule.large_interval_s * (1 if spec is None else spec.every)
    return schedule.small_interval_s * spec.every


def _is_fresh(state: ProbeState, interval_s: float, now: Instant) -> bool:
    if state.finished_mono_s is None:
        return False
    return fresh(now.mono_s - state.finished_mono_s, interval_s)


def _methods(current: Mapping[ProbeKey, ProbeState]) -> Metric:
    family = InfoMetricFamily(
        "gpud_probe",
        "Version of the method of the last verified run; figures of two never compare.",
        labels=["gpu", "probe"],
    )
    for key, state in current.items():
        if state.report is not None and state.samples:
            family.add_metric([gpu_of(key), key.probe], {"version": str(state.report.version)})
    return family


def _crossovers(current: Mapping[ProbeKey, ProbeState]) -> Metric:
    family = GaugeMetricFamily(
        "gpud_crossover_elements",
        "Smallest matrix whose product the GPU, copies included, brings sooner than the CPU.",
        labels=["gpu"],
    )
    for key, state in current.items():
        for sample in state.samples:
            if sample.unit is Unit.ELEMENTS:
                family.add_metric([gpu_of(key)], sample.median)
    return family


def _latencies(snapshot: Snapshot) -> Metric:
    family = HistogramMetricFamily(
        "gpud_submit_latency_seconds",
        "Every launch timed since the agent started, the empty call subtracted.",
        labels=["gpu", "mode"],
    )
    bounds = [*(f"{bound:g}" for bound in LATENCY_BOUNDS_S), "+Inf"]
    for (gpu, mode), buckets in snapshot.latencies.items():
        cumulative, seen = [], 0
        for bound, count in zip(bounds, buckets.counts, strict=True):
            seen += count
            cumulative.append((bound, float(seen)))
        family.add_metric([str(gpu), mode], cumulative, buckets.total)
    return family


def _probe_counters(snapshot: Snapshot) -> Iterator[Metric]:
    runs = CounterMetricFamily("gpud_probe_runs", "Runs that ended, good or bad.", labels=["probe"])
    for probe, count in snapshot.runs.items():
        runs.add_metric([probe], count)
    failures = CounterMetricFamily(
        "gpud_probe_failures", "Runs that brought no number.", labels=["probe", "reason"]
    )
    for (probe, why), count in snapshot.failures.items():
        failures.add_metric([probe, why], count)
    skips = CounterMetricFamily(
        "gpud_probe_skips", "Due runs that were not started.", labels=["probe", "reason"]
    )
    for (probe, reason), count in snapshot.skips.items():
        skips.add_metric([probe, reason], count)
    flagged = CounterMetricFamily(
        "gpud_probe_flagged_runs", "Runs that are no usual ones, and why.", labels=["probe", "flag"]
    )
    for (probe, flag), count in snapshot.flagged.items():
        flagged.add_metric([probe, flag], count)
    yield from (runs, failures, skips, flagged)


def _put_off(snapshot: Snapshot) -> Metric:
    family = GaugeMetricFamily(
        "gpud_probe_skipped_in_a_row",
        "Due runs that were not started since the last one that was.",
        labels=["gpu", "probe"],
    )
    known = {key: 0 for key in snapshot.probes if key.probe != containers.PROBE}
    for key, count in {
        **known,
        **{key: put_off.count for key, put_off in snapshot.put_off.items()},
    }.items():
        family.add_metric([gpu_of(key), key.probe], count)
    return family
