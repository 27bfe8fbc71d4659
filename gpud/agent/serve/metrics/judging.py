"""What the detectors say: how much slower, since what, and how sure of it they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gpud.agent.regression.detector import Kind
from gpud.agent.state.snapshot import ProbeKey
from gpud.agent.state.standings import places, usual
from gpud.core.sample import Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from gpud.agent.regression.detector import Standing
    from gpud.agent.state.snapshot import ProbeState, Snapshot
    from gpud.agent.state.standings import Place
    from gpud.core.stream_key import StreamKey

LABELS = ("gpu", "probe", "mode")
BASELINES = {
    Unit.SECONDS: "gpud_baseline_latency_seconds",
    Unit.BYTES_PER_SECOND: "gpud_baseline_bytes_per_second",
    Unit.FLOPS_PER_SECOND: "gpud_baseline_flops_per_second",
}


def families(snapshot: Snapshot, current: Mapping[ProbeKey, ProbeState]) -> Iterator[Metric]:
    """Yield what is known of each GPU, probe and mode; ``current`` has the probes that are fresh.

    Of two power sources the one counts that the last run had, but a regression is one on either.
    """
    known = places(snapshot)
    chosen = {place: snapshot.streams[streams[0]] for place, streams in known.items()}
    fresh = {
        place: standing
        for place, standing in chosen.items()
        if (state := current.get(ProbeKey(place.probe, place.gpu))) and state.failure is None
    }
    yield _slowdowns(fresh)
    yield _regressions(snapshot, known)
    yield _verdicts(chosen)
    units = {place: snapshot.units.get(streams[0]) for place, streams in known.items()}
    yield from _baselines(chosen, units)
    yield _shares(chosen)
    yield from _counters(snapshot, known)


def _slowdowns(fresh: Mapping[Place, Standing]) -> Metric:
    family = GaugeMetricFamily(
        "gpud_slowdown_ratio",
        "How much slower than the baseline: 1.25 is 25 % slower, whatever the unit.",
        labels=LABELS,
    )
    for place, standing in fresh.items():
        if standing.slowdown is not None:
            family.add_metric(_labels(place), standing.slowdown)
    return family


def _regressions(snapshot: Snapshot, known: Mapping[Place, tuple[StreamKey, ...]]) -> Metric:
    family = GaugeMetricFamily(
        "gpud_regression_active",
        "1 while a change for the worse of this kind holds.",
        labels=[*LABELS, "kind"],
    )
    for place, streams in known.items():
        standings = [snapshot.streams[stream] for stream in streams]
        if any(standing.level is not None for standing in standings):
            active = {alarm.kind for standing in standings for alarm in standing.open}
            for kind in Kind:
                family.add_metric([*_labels(place), kind], kind in active)
    return family


def _verdicts(chosen: Mapping[Place, Standing]) -> Metric:
    family = GaugeMetricFamily(
        "gpud_driver_verdict",
        "1 for the state that the judgement of the latest driver update is in.",
        labels=[*LABELS, "state"],
    )
    for place, standing in chosen.items():
        if standing.verdict is not None:
            family.add_metric([*_labels(place), standing.verdict.state], 1)
    return family


def _baselines(
    chosen: Mapping[Place, Standing], units: Mapping[Place, Unit | None]
) -> Iterator[Metric]:
    for unit, name in BASELINES.items():
        family = GaugeMetricFamily(
            name, "The level that the slowdown is measured from.", labels=LABELS
        )
        for place, standing in chosen.items():
            if units[place] is unit and (level := usual(standing)) is not None:
                family.add_metric(_labels(place), level)
        yield family


def _shares(chosen: Mapping[Place, Standing]) -> Metric:
    family = GaugeMetricFamily(
        "gpud_slow_state_ratio",
        "Share of the latest runs in which the GPU was slower than it usually lets itself be.",
        labels=LABELS,
    )
    for place, standing in chosen.items():
        if standing.slow_state_ratio is not None:
            family.add_metric(_labels(place), standing.slow_state_ratio)
    return family


def _counters(snapshot: Snapshot, known: Mapping[Place, tuple[StreamKey, ...]]) -> Iterator[Metric]:
    judged = CounterMetricFamily(
        "gpud_judged_samples", "Samples that the detector has judged.", labels=LABELS
    )
    left = CounterMetricFamily(
        "gpud_unjudged_samples",
        "Samples that it has not, and why.",
        labels=[*LABELS, "reason"],
    )
    for place, streams in known.items():
        standings = [snapshot.streams[stream] for stream in streams]
        judged.add_metric(_labels(place), sum(standing.judged for standing in standings))
        reasons: dict[str, int] = {}
        for standing in standings:
            for reason, count in {**standing.refused, **standing.set_aside}.items():
                reasons[reason] = reasons.get(reason, 0) + count
        for reason, count in sorted(reasons.items()):
            left.add_metric([*_labels(place), reason], count)
    yield from (judged, left)


def _labels(place: Place) -> list[str]:
    return ["" if place.gpu is None else str(place.gpu), place.probe, place.mode]
