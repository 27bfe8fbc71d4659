"""The figures of the probes, how often they ran, and why they did not."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client.core import HistogramMetricFamily

from gpud.agent.serve.metrics.families import counters, gauges, gpu_of, infos
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

MEDIANS: Final = {
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
PEAKS: Final = ("low", "high")
OF_A_RUN: Final = ("gpu", "probe")
OF_A_FIGURE: Final = ("gpu", "probe", "mode")


def fresh_enough(
    snapshot: Snapshot, settings: Settings, now: Instant
) -> dict[ProbeKey, ProbeState]:
    """Return the probes whose last run is recent enough to be published."""
    specs = {spec.name: spec for spec in snapshot.measure.specs}
    return {
        key: state
        for key, state in snapshot.measure.probes.items()
        if state.finished_mono_s is not None
        and fresh(now.mono_s - state.finished_mono_s, _interval_s(key.probe, specs, settings))
    }


def families(snapshot: Snapshot, current: Mapping[ProbeKey, ProbeState]) -> Iterator[Metric]:
    """Yield the figures of the ``current`` runs, then counters and times of all."""
    yield from _figures(current)
    yield from _latencies(current)
    yield _histogram(snapshot)
    yield from _counters(snapshot)
    yield from _last_runs(snapshot, current)


def _interval_s(probe: str, specs: Mapping[str, ProbeSpec], settings: Settings) -> float:
    if probe == containers.PROBE:
        return settings.containers.interval_s
    spec, schedule = specs.get(probe), settings.schedule
    if spec is None or spec.pace is Pace.LARGE:
        return schedule.large_interval_s * (1 if spec is None else spec.every)
    return schedule.small_interval_s * spec.every


def _figures(current: Mapping[ProbeKey, ProbeState]) -> Iterator[Metric]:
    samples = [(key, sample) for key, state in current.items() for sample in state.samples]
    for unit, (name, text) in MEDIANS.items():
        yield gauges(
            name,
            text,
            OF_A_FIGURE,
            (
                ([gpu_of(key), key.probe, sample.mode], sample.median)
                for key, sample in samples
                if sample.unit is unit
            ),
        )
    yield infos(
        "gpud_probe",
        "Version of the method of the last verified run; figures of two never compare.",
        OF_A_RUN,
        (
            ([gpu_of(key), key.probe], {"version": str(state.report.version)})
            for key, state in current.items()
            if state.report is not None and state.samples
        ),
    )
    yield gauges(
        "gpud_crossover_elements",
        "Smallest matrix whose product the GPU, copies included, brings sooner than the CPU.",
        ("gpu",),
        (([gpu_of(key)], one.median) for key, one in samples if one.unit is Unit.ELEMENTS),
    )


def _latencies(current: Mapping[ProbeKey, ProbeState]) -> Iterator[Metric]:
    """Yield what a median omits: two peaks, the tail, what the way to the GPU and back costs."""
    samples = [
        ([gpu_of(key), key.probe, sample.mode], sample)
        for key, state in current.items()
        for sample in state.samples
    ]
    yield gauges(
        "gpud_submit_roundtrip_to_pipelined_ratio",
        "A launch that is waited for over one in a row of 200, medians of the same run.",
        ("gpu",),
        (
            ([gpu_of(key)], _roundtrip_to_pipelined(state))
            for key, state in current.items()
            if key.probe == "launch"
        ),
    )
    peaks = [
        ([*labels, name], peak)
        for labels, sample in samples
        if len(sample.peaks) == len(PEAKS)
        for name, peak in zip(PEAKS, sample.peaks, strict=True)
    ]
    yield gauges(
        "gpud_probe_latency_peak_seconds",
        "Median of either hump of the last run, where it has two.",
        (*OF_A_FIGURE, "peak"),
        ((labels, peak.value) for labels, peak in peaks),
    )
    yield gauges(
        "gpud_probe_latency_peak_share_ratio",
        "Share of the last run's calls in either hump.",
        (*OF_A_FIGURE, "peak"),
        ((labels, peak.share) for labels, peak in peaks),
    )
    yield gauges(
        "gpud_probe_latency_p99_net_seconds",
        "99th percentile of the last run's short launches, less the null calls' excess.",
        OF_A_FIGURE,
        ((labels, sample.p99_net) for labels, sample in samples),
    )


def _roundtrip_to_pipelined(state: ProbeState) -> float | None:
    medians = {sample.mode: sample.median for sample in state.samples}
    roundtrip, pipelined = medians.get("roundtrip"), medians.get("pipelined")
    return roundtrip / pipelined if roundtrip is not None and pipelined else None


def _histogram(snapshot: Snapshot) -> Metric:
    family = HistogramMetricFamily(
        "gpud_submit_latency_seconds",
        "Every launch timed since the agent started, the empty call subtracted.",
        labels=["gpu", "mode"],
    )
    bounds = [*(f"{bound:g}" for bound in LATENCY_BOUNDS_S), "+Inf"]
    for (gpu, mode), buckets in snapshot.measure.latencies.items():
        cumulative = map(float, accumulate(buckets.counts))
        family.add_metric(
            [str(gpu), mode], list(zip(bounds, cumulative, strict=True)), buckets.total
        )
    return family


def _counters(snapshot: Snapshot) -> Iterator[Metric]:
    yield counters(
        "gpud_probe_runs",
        "Runs that ended, good or bad.",
        ("probe",),
        (([probe], count) for probe, count in snapshot.measure.runs.items()),
    )
    for name, text, label, counts in (
        ("failures", "Runs that brought no number.", "reason", snapshot.measure.failures),
        ("skips", "Due runs that were not started.", "reason", snapshot.measure.skips),
        ("flagged_runs", "Runs that are no usual ones, and why.", "flag", snapshot.measure.flagged),
    ):
        yield counters(f"gpud_probe_{name}", text, ("probe", label), counts.items())


def _last_runs(snapshot: Snapshot, current: Mapping[ProbeKey, ProbeState]) -> Iterator[Metric]:
    fresh_runs = [([gpu_of(key), key.probe], state) for key, state in current.items()]
    yield gauges(
        "gpud_probe_last_success_timestamp_seconds",
        "Unix time of the last run whose results were right.",
        OF_A_RUN,
        (
            ([gpu_of(k), k.probe], state.last_success_s)
            for k, state in snapshot.measure.probes.items()
        ),
    )
    yield gauges(
        "gpud_probe_duration_seconds",
        "Wall time of the last run, inside the child.",
        OF_A_RUN,
        ((labels, state.duration_s) for labels, state in fresh_runs),
    )
    yield gauges(
        "gpud_probe_flag",
        "1 for what makes the last run no usual one.",
        (*OF_A_RUN, "flag"),
        (([*labels, flag], 1) for labels, state in fresh_runs for flag in state.flags),
    )
    yield gauges(
        "gpud_probe_on_battery",
        "1 when the last run was on battery, 0 when it was on mains.",
        OF_A_RUN,
        ((labels, _on_battery(state)) for labels, state in fresh_runs),
    )
    skipped = {key: 0 for key in snapshot.measure.probes if key.probe != containers.PROBE}
    skipped |= {key: put_off.count for key, put_off in snapshot.measure.put_off.items()}
    yield gauges(
        "gpud_probe_skipped_in_a_row",
        "Due runs that were not started since the last one that was.",
        OF_A_RUN,
        (([gpu_of(key), key.probe], count) for key, count in skipped.items()),
    )


def _on_battery(state: ProbeState) -> bool | None:
    on_mains = None if state.report is None else state.report.conditions.get("after.ac")
    return not on_mains if isinstance(on_mains, bool) else None
