"""Metric families from rows of label values and a number, and texts that are fit to be labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

    from gpud.agent.state.snapshot import ProbeKey

    Labels: TypeAlias = Sequence[str]
    Rows: TypeAlias = Iterable[tuple[Labels, float | None]]

LONGEST_LABEL: Final = 128


def gauge(name: str, text: str, value: float | None) -> Metric:
    """Return a gauge without labels; a value that is not known is absent."""
    return gauges(name, text, (), [((), value)])


def gauges(name: str, text: str, labels: Labels, rows: Rows) -> Metric:
    """Return a gauge with one sample for each row whose value is known."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), rows)


def counters(name: str, text: str, labels: Labels, rows: Rows) -> Metric:
    """Return a counter with one sample for each row; ``name`` is without ``_total``."""
    return _filled(CounterMetricFamily(name, text, labels=labels), rows)


def infos(
    name: str, text: str, labels: Labels, rows: Iterable[tuple[Labels, Mapping[str, str]]]
) -> Metric:
    """Return an info family: each row adds labels of its own."""
    family = InfoMetricFamily(name, text, labels=labels)
    for values, more in rows:
        family.add_metric(values, dict(more))
    return family


def gpu_of(key: ProbeKey) -> str:
    """Return the label ``gpu`` of a probe: empty for the CPU, and so no label to Prometheus."""
    return "" if key.gpu is None else str(key.gpu)


def clean(text: str) -> str:
    """Make a foreign string fit to be a label value: printable and cut."""
    return "".join(character for character in text if character.isprintable())[:LONGEST_LABEL]


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: Rows) -> Metric:
    for values, value in rows:
        if value is not None:
            family.add_metric(values, value)
    return family
