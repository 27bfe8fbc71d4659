"""The figures of the probes, how often they ran and why not, and the detectors' results on them."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from gpud.agent.regression.detector import ChangeKind
from gpud.agent.state import containers
from gpud.agent.state.snapshot import ProbeKey, probe_key
from gpud.agent.state.status import usual
from gpud.core.sample import Unit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.agent.regression.detector import StreamStanding
    from gpud.agent.serve.metrics.families import Families
    from gpud.agent.state.snapshot import ProbeState, Snapshot
    from gpud.core.streams import StreamKey

MEDIANS: Final = {
    Unit.SECONDS: "gpud_probe_latency_median_seconds",
    Unit.BYTES_PER_SECOND: "gpud_probe_bytes_per_second",
    Unit.FLOPS_PER_SECOND: "gpud_probe_flops_per_second",
}
BASELINES: Final = {
    Unit.SECONDS: "gpud_baseline_latency_seconds",
    Unit.BYTES_PER_SECOND: "gpud_baseline_bytes_per_second",
    Unit.FLOPS_PER_SECOND: "gpud_baseline_flops_per_second",
}
PEAKS: Final = ("low", "high")


def figures(current: Mapping[ProbeKey, ProbeState]) -> Families:
    """Yield the figures of the ``current`` runs, and what a median of latencies omits.

    That are two peaks, the tail, and what the way to the GPU and back costs.
    """
    samples = {
        (*_labels(key), sample.mode): sample
        for key, state in current.items()
        for sample in state.report.samples
    }
    for unit, name in MEDIANS.items():
        yield name, {key: sample.median for key, sample in samples.items() if sample.unit is unit}
    versions = {
        _labels(key): {"version": str(state.report.version)}
        for key, state in current.items()
        if state.report.samples
    }
    yield "gpud_probe_info", versions
    elements = {k: sample for k, sample in samples.items() if sample.unit is Unit.ELEMENTS}
    yield "gpud_crossover_elements", {key[0]: sample.median for key, sample in elements.items()}
    ratios = {
        _labels(key)[0]: _roundtrip_to_pipelined(state)
        for key, state in current.items()
        if key.probe == "launch"
    }
    yield "gpud_submit_roundtrip_to_pipelined_ratio", ratios
    peaks = {
        (*labels, name): peak
        for labels, sample in samples.items()
        if len(sample.peaks) == len(PEAKS)
        for name, peak in zip(PEAKS, sample.peaks, strict=True)
    }
    yield "gpud_probe_latency_peak_seconds", {key: peak.value for key, peak in peaks.items()}
    yield "gpud_probe_latency_peak_share_ratio", {key: peak.share for key, peak in peaks.items()}
    tails = {labels: sample.p99_net for labels, sample in samples.items()}
    yield "gpud_probe_latency_p99_net_seconds", tails
    clocks = {
        _labels(key): clock
        for key, state in current.items()
        if isinstance(clock := state.report.conditions.get("sm_clock_hertz"), int | float)
    }
    yield "gpud_probe_sm_clock_hertz", clocks


def runs(snapshot: Snapshot, current: Mapping[ProbeKey, ProbeState]) -> Families:
    """Yield counters of all runs, then times and flags of the last ones."""
    measure = snapshot.measure
    yield (
        "gpud_submit_latency_seconds",
        {(str(gpu), mode): buckets for (gpu, mode), buckets in measure.latencies.items()},
    )
    yield "gpud_probe_runs_total", measure.runs
    yield "gpud_probe_failures_total", measure.failures
    yield "gpud_probe_skips_total", measure.skips
    yield "gpud_probe_flagged_runs_total", measure.flagged
    successes = {_labels(key): state.last_success_s for key, state in measure.probes.items()}
    yield "gpud_probe_last_success_timestamp_seconds", successes
    beat = snapshot.pace.beat
    yield "gpud_probe_interval_seconds", {spec.name: beat.run_s(spec) for spec in measure.specs}
    states = {_labels(key): state for key, state in current.items()}
    durations = {labels: state.report.duration_s or None for labels, state in states.items()}
    yield "gpud_probe_duration_seconds", durations
    flags = {(*labels, flag): 1 for labels, state in states.items() for flag in state.flags}
    yield "gpud_probe_flag", flags
    on_battery = {labels: _on_battery(state) for labels, state in states.items()}
    yield "gpud_probe_on_battery", on_battery
    skipped = {key: 0 for key in measure.probes if key.probe != containers.PROBE}
    skipped |= {key: put_off.count for key, put_off in measure.put_off.items()}
    yield "gpud_probe_skipped_in_a_row", {_labels(key): count for key, count in skipped.items()}


def regression(snapshot: Snapshot, current: Mapping[ProbeKey, ProbeState]) -> Families:
    """Yield the detectors' results for each GPU, probe and mode.

    Of two power sources the one counts that the last run had, but a regression is one on either.
    """
    every = {
        labels: [snapshot.streams[key] for key in keys]
        for labels, keys in _streams(snapshot).items()
    }
    first = {labels: standings[0] for labels, standings in every.items()}
    good = {_labels(key) for key, state in current.items() if state.report.failure is None}
    ratios = {labels: standing.slowdown for labels, standing in first.items()}
    yield "gpud_slowdown_ratio", {key: ratio for key, ratio in ratios.items() if key[:2] in good}
    yield (
        "gpud_regression_active",
        {
            (*labels, kind): any(a.kind is kind for standing in standings for a in standing.open)
            for labels, standings in every.items()
            if any(standing.level is not None for standing in standings)
            for kind in ChangeKind
        },
    )
    yield (
        "gpud_driver_verdict",
        {
            (*labels, standing.verdict.state): 1
            for labels, standing in first.items()
            if standing.verdict is not None
        },
    )
    for unit, name in BASELINES.items():
        of_unit = {key: standing for key, standing in first.items() if standing.unit is unit}
        yield name, {labels: usual(standing) for labels, standing in of_unit.items()}
    shares = {labels: standing.slow_state_ratio for labels, standing in first.items()}
    yield "gpud_slow_state_ratio", shares
    yield (
        "gpud_judged_samples_total",
        {
            labels: sum(standing.judged for standing in standings)
            for labels, standings in every.items()
        },
    )
    yield (
        "gpud_unjudged_samples_total",
        {
            (*labels, reason): count
            for labels, standings in every.items()
            for reason, count in _unjudged(standings)
        },
    )


def _streams(snapshot: Snapshot) -> dict[tuple[str, str, str], list[StreamKey]]:
    """Return the streams of each GPU, probe and mode, the one that its last run was of first.

    Those of a GPU that is gone are left out, as its figures are, and so are those of an earlier
    version of a probe's method. A list of GPUs that could not be taken takes none away.
    """
    inventory, present = snapshot.measure.inventory, set(snapshot.gpus)
    if inventory is not None and inventory.failure is None:
        present &= {device.uuid for device in inventory.devices}
    found: defaultdict[tuple[ProbeKey, str], list[StreamKey]] = defaultdict(list)
    for stream in snapshot.streams:
        if stream.gpu is None or stream.gpu in present:
            found[probe_key(snapshot.gpus, stream.probe, stream.gpu), stream.mode].append(stream)
    return {
        (*_labels(key), mode): _ordered(snapshot, key, found[key, mode])
        for key, mode in sorted(found, key=lambda place: (_labels(place[0]), place[1]))
    }


def _ordered(snapshot: Snapshot, key: ProbeKey, streams: list[StreamKey]) -> list[StreamKey]:
    state = snapshot.measure.probes.get(key)
    on_battery = None if state is None else _on_battery(state) or False

    def newest(stream: StreamKey) -> tuple[bool, float]:
        judged_s = snapshot.streams[stream].last_judged_s
        return stream.on_battery is on_battery, 0.0 if judged_s is None else judged_s

    version = max(stream.version for stream in streams)
    now = [stream for stream in streams if stream.version == version]
    return sorted(now, key=newest, reverse=True)


def _unjudged(standings: Sequence[StreamStanding]) -> list[tuple[str, int]]:
    """Count the samples of streams that were not judged, by reason."""
    counts = (Counter(stream.refused) + Counter(stream.set_aside) for stream in standings)
    return sorted(sum(counts, Counter()).items())


def _labels(key: ProbeKey) -> tuple[str, str]:
    """Return GPU and probe; the CPU's GPU is empty, and so no label to Prometheus."""
    return ("" if key.gpu is None else str(key.gpu)), key.probe


def _roundtrip_to_pipelined(state: ProbeState) -> float | None:
    medians = {sample.mode: sample.median for sample in state.report.samples}
    roundtrip, pipelined = medians.get("roundtrip"), medians.get("pipelined")
    return roundtrip / pipelined if roundtrip is not None and pipelined else None


def _on_battery(state: ProbeState) -> bool | None:
    on_mains = state.report.conditions.get("after.ac")
    return not on_mains if isinstance(on_mains, bool) else None
