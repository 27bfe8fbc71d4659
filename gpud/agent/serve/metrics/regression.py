"""The detectors' results: how much slower, since what, and how sure of it they are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gpud.agent.regression.detector import Kind
from gpud.agent.serve.metrics.families import counters, gauges
from gpud.agent.state.snapshot import ProbeKey
from gpud.agent.state.status import places, usual
from gpud.core.sample import Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from gpud.agent.regression.detector import Standing
    from gpud.agent.state.snapshot import ProbeState, Snapshot
    from gpud.agent.state.status import Place

LABELS: Final = ("gpu", "probe", "mode")
BASELINES: Final = {
    Unit.SECONDS: "gpud_baseline_latency_seconds",
    Unit.BYTES_PER_SECOND: "gpud_baseline_bytes_per_second",
    Unit.FLOPS_PER_SECOND: "gpud_baseline_flops_per_second",
}


def families(snapshot: Snapshot, current: Mapping[ProbeKey, ProbeState]) -> Iterator[Metric]:
    """Yield the state of each GPU, probe and mode; ``current`` has the probes that are fresh.

    Of two power sources the one counts that the last run had, but a regression is one on either.
    """
    streams = places(snapshot)
    every = {
        place: [snapshot.regression.streams[key] for key in keys] for place, keys in streams.items()
    }
    chosen = {place: standings[0] for place, standings in every.items()}
    yield gauges(
        "gpud_slowdown_ratio",
        "How much slower than the baseline: 1.25 is 25 % slower, whatever the unit.",
        LABELS,
        (
            (_labels(place), one.slowdown)
            for place, one in chosen.items()
            if (state := current.get(ProbeKey(place.probe, place.gpu))) and state.failure is None
        ),
    )
    yield gauges(
        "gpud_regression_active",
        "1 while a change for the worse of this kind holds.",
        (*LABELS, "kind"),
        (
            ([*_labels(place), kind], any(a.kind is kind for one in standings for a in one.open))
            for place, standings in every.items()
            if any(one.level is not None for one in standings)
            for kind in Kind
        ),
    )
    yield gauges(
        "gpud_driver_verdict",
        "1 for the state that the judgement of the latest driver update is in.",
        (*LABELS, "state"),
        (
            ([*_labels(place), one.verdict.state], 1)
            for place, one in chosen.items()
            if one.verdict is not None
        ),
    )
    for unit, name in BASELINES.items():
        yield gauges(
            name,
            "The level that the slowdown is measured from.",
            LABELS,
            (
                (_labels(place), usual(one))
                for place, one in chosen.items()
                if snapshot.regression.units.get(streams[place][0]) is unit
            ),
        )
    yield gauges(
        "gpud_slow_state_ratio",
        "Share of the latest runs in which the GPU was slower than it usually lets itself be.",
        LABELS,
        ((_labels(place), one.slow_state_ratio) for place, one in chosen.items()),
    )
    yield from _counters(every)


def _counters(every: Mapping[Place, list[Standing]]) -> Iterator[Metric]:
    yield counters(
        "gpud_judged_samples",
        "Samples that the detector has judged.",
        LABELS,
        ((_labels(place), sum(one.judged for one in all_)) for place, all_ in every.items()),
    )
    reasons = {place: Counter[str]() for place in every}
    for place, standings in every.items():
        for one in standings:
            reasons[place].update({**one.refused, **one.set_aside})
    yield counters(
        "gpud_unjudged_samples",
        "Samples that it has not, and why.",
        (*LABELS, "reason"),
        (
            ([*_labels(place), reason], count)
            for place, counts in reasons.items()
            for reason, count in sorted(counts.items())
        ),
    )


def _labels(place: Place) -> list[str]:
    return ["" if place.gpu is None else str(place.gpu), place.probe, place.mode]
