"""The alerts that fire, and the deliveries of each sink."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gpud.agent.serve.metrics.families import clean, counters, gauges
from gpud.core.alerts import (
    DRIVER_REGRESSION,
    FUNCTION_LOST,
    SINK_FAILING,
    SLOWDOWN,
    UNWELL,
    Severity,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from gpud.agent.state.snapshot import Snapshot

USUAL: Final = (
    (DRIVER_REGRESSION, Severity.WARNING),
    (DRIVER_REGRESSION, Severity.CRITICAL),
    (SLOWDOWN, Severity.WARNING),
    (SLOWDOWN, Severity.CRITICAL),
    (FUNCTION_LOST, Severity.CRITICAL),
    (UNWELL, Severity.WARNING),
    (SINK_FAILING, Severity.WARNING),
)
"""What can fire, with which severity: 0 where it does not."""


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the number of firing alerts and both counters of each sink, from 0."""
    firing = Counter((one.name, one.severity) for one in snapshot.alerts.alerts if one.firing)
    yield gauges(
        "gpud_alerts_firing",
        "gpud's own alerts that fire, those that a person has acknowledged included.",
        ("alertname", "severity"),
        ((pair, firing[pair]) for pair in dict.fromkeys([*USUAL, *sorted(firing)])),
    )
    sinks = [([clean(name)], state) for name, state in snapshot.alerts.sinks.items()]
    yield counters(
        "gpud_notifications",
        "Messages that a sink delivered.",
        ("sink",),
        ((labels, state.sent) for labels, state in sinks),
    )
    yield counters(
        "gpud_notifications_failures",
        "Deliveries that failed.",
        ("sink",),
        ((labels, state.failed) for labels, state in sinks),
    )
