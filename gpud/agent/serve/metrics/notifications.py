"""How the sinks do: what they delivered and what they did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily

from gpud.agent.serve.metrics.labels import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from gpud.agent.state.snapshot import Snapshot


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield both counters for each sink there is, from 0."""
    sent = CounterMetricFamily(
        "gpud_notifications", "Messages that a sink delivered.", labels=["sink"]
    )
    failed = CounterMetricFamily(
        "gpud_notifications_failures", "Deliveries that failed.", labels=["sink"]
    )
    for name, state in snapshot.sinks.items():
        sent.add_metric([clean(name)], state.sent)
        failed.add_metric([clean(name)], state.failed)
    yield from (sent, failed)
