"""What fires, for whoever watches gpud's own alerts beside the rules of Prometheus."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily

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

USUAL = {
    DRIVER_REGRESSION: (Severity.WARNING, Severity.CRITICAL),
    SLOWDOWN: (Severity.WARNING, Severity.CRITICAL),
    FUNCTION_LOST: (Severity.CRITICAL,),
    UNWELL: (Severity.WARNING,),
    SINK_FAILING: (Severity.WARNING,),
}
"""What can fire, with which severities: 0 where it does not."""


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield how many alerts fire, the acknowledged ones included."""
    family = GaugeMetricFamily(
        "gpud_alerts_firing",
        "gpud's own alerts that fire, those that a person has acknowledged included.",
        labels=["alertname", "severity"],
    )
    firing = Counter((one.name, one.severity) for one in snapshot.alerts if one.firing)
    known = [(name, severity) for name, severities in USUAL.items() for severity in severities]
    for name, severity in dict.fromkeys([*known, *sorted(firing)]):
        family.add_metric([name, severity.value], firing[name, severity])
    yield family
