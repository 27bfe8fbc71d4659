"""What a median of latencies omits: two humps, the tail, what the way to the GPU and back costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from gpud.agent.state.snapshot import ProbeKey, ProbeState

PEAKS = ("low", "high")


def families(current: Mapping[ProbeKey, ProbeState]) -> Iterator[Metric]:
    """Yield the families of the runs whose figures are fresh enough to be published."""
    ratio = GaugeMetricFamily(
        "gpud_submit_roundtrip_to_pipelined_ratio",
        "A launch that is waited for over one in a row of 200, medians of the same run.",
        labels=["gpu"],
    )
    values = GaugeMetricFamily(
        "gpud_probe_latency_peak_seconds",
        "Median of either hump of the last run, where it has two.",
        labels=["gpu", "probe", "mode", "peak"],
    )
    shares = GaugeMetricFamily(
        "gpud_probe_latency_peak_share_ratio",
        "Share of the last run's calls in either hump.",
        labels=["gpu", "probe", "mode", "peak"],
    )
    tails = GaugeMetricFamily(
        "gpud_probe_latency_p99_net_seconds",
        "99th percentile of the last run's short launches, less the null calls' excess.",
        labels=["gpu", "probe", "mode"],
    )
    for key, state in current.items():
        gpu = "" if key.gpu is None else str(key.gpu)
        for sample in state.samples:
            if sample.p99_net is not None:
                tails.add_metric([gpu, key.probe, sample.mode], sample.p99_net)
            if len(sample.peaks) != len(PEAKS):
                continue
            for name, peak in zip(PEAKS, sample.peaks, strict=True):
                labels = [gpu, key.probe, sample.mode, name]
                values.add_metric(labels, peak.value)
                shares.add_metric(labels, peak.share)
        medians = {sample.mode: sample.median for sample in state.samples}
        waited, pipelined = medians.get("roundtrip"), medians.get("pipelined")
        if key.probe == "launch" and waited is not None and pipelined:
            ratio.add_metric([gpu], waited / pipelined)
    yield from (ratio, values, shares, tails)
