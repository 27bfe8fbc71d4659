"""What changed of driver and machine, for rules that look back and for marks on a chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gpud.agent.regression.changes import KINDS
from gpud.agent.serve.metrics.labels import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from gpud.agent.state.snapshot import Snapshot


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield how often each kind changed, and when the latest did; to the same twice is once."""
    counts = CounterMetricFamily(
        "gpud_changes",
        "Changes of driver and machine that were seen since the agent started.",
        labels=["kind"],
    )
    for kind in KINDS:
        counts.add_metric([kind], snapshot.change_counts.get(kind, 0))
    moments = GaugeMetricFamily(
        "gpud_change_timestamp_seconds",
        "Unix time at which a change was seen, of the latest few.",
        labels=["kind", "to"],
    )
    latest = {(change.kind, clean(change.new)): change.at_s for change in snapshot.changes}
    for labels, at_s in latest.items():
        moments.add_metric(labels, at_s)
    yield from (counts, moments)
