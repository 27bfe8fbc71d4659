"""Whether the driver gives answers, and what the kernel says of the GPU's bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gpud.agent.measure import breaker
from gpud.agent.serve.metrics.gauges import gauge
from gpud.agent.serve.metrics.labels import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from gpud.agent.state.snapshot import Snapshot


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the breaker's state, and the kernel's log where root can read it."""
    standing = snapshot.breaker
    if standing is not None:
        states = GaugeMetricFamily(
            "gpud_breaker_state", "1 for the state the breaker is in.", labels=["state"]
        )
        for state in breaker.State:
            states.add_metric([state], float(state is standing.state))
        yield states
        stuck = standing.state is breaker.State.STUCK
        yield GaugeMetricFamily(
            "gpud_gpu_stuck", "1 while a probe that was killed does not go away.", float(stuck)
        )
        yield GaugeMetricFamily("gpud_breaker_hangs", "Hangs in a row.", standing.hangs)
        yield gauge(
            "gpud_breaker_retry_timestamp_seconds",
            "When GPU work is tried again.",
            standing.retry_s,
        )
    said = None if snapshot.root is None else snapshot.root.kernel_log
    if said is None:
        return
    yield GaugeMetricFamily(
        "gpud_kernel_log_readable",
        "1 while root can read the kernel's log.",
        float(said.unreadable is None),
    )
    if said.unreadable is not None:
        return
    messages = CounterMetricFamily(
        "gpud_dxg_messages", "Lines of dxgkrnl in the kernel's log.", labels=["kind"]
    )
    for kind, count in sorted(said.counts.items()):
        messages.add_metric([clean(kind)], count)
    yield messages
    yield CounterMetricFamily(
        "gpud_kernel_log_overruns", "Times the kernel's log overtook its reader.", said.overruns
    )
