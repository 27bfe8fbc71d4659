"""A family of one number, which may not be known."""

from __future__ import annotations

from prometheus_client.core import GaugeMetricFamily


def gauge(name: str, text: str, value: float | None) -> GaugeMetricFamily:
    """Give the family; without a sample, and so absent, where the number is not known."""
    family = GaugeMetricFamily(name, text, labels=[])
    if value is not None:
        family.add_metric([], value)
    return family
