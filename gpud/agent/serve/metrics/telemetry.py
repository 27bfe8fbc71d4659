"""How telemetry itself is doing: which source gives what, what nobody gives, and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from gpud.agent.serve.metrics.labels import clean
from gpud.core import telemetry
from gpud.core.fields import FIELDS
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.sample import Reading
    from gpud.core.settings import Settings

PROGRAMS = ("nvidia_smi", "nvidia_smi_exe")
"""Sources that start a program, and are limited in it: that they started none is worth a line."""


def families(
    snapshot: Snapshot, readings: Iterable[Reading], settings: Settings, now: Instant
) -> Iterator[Metric]:
    """Yield what is known of the sources, then of the fields. ``readings``: those that hold now."""
    yield from _best(snapshot, settings)
    yield from _sources(snapshot, now)
    starts = CounterMetricFamily(
        "gpud_telemetry_program_starts",
        "Times that a source started a program of the driver's.",
        labels=["source"],
    )
    for source in PROGRAMS:
        if source not in settings.telemetry.disabled:
            starts.add_metric([source], snapshot.telemetry.starts.get(source, 0))
    yield starts
    yield from _fields(readings)


def _best(snapshot: Snapshot, settings: Settings) -> Iterator[Metric]:
    """Yield what is told of one source without naming it: the best that is not switched off."""
    said = snapshot.telemetry
    usable = [name for name in telemetry.LEVELS[1:] if name not in settings.telemetry.disabled]
    best = usable[-1] if usable else telemetry.LEVELS[0]
    last = GaugeMetricFamily(
        "gpud_telemetry_last_success_timestamp_seconds",
        "Unix time of the last collection in which the best source brought readings.",
        labels=[],
    )
    if best in said.last_success_s:
        last.add_metric([], said.last_success_s[best])
    yield last
    yield CounterMetricFamily(
        "gpud_telemetry_failures",
        "Collections in which the best source brought nothing.",
        sum(count for (source, _), count in said.failures.items() if source == best),
    )


def _sources(snapshot: Snapshot, now: Instant) -> Iterator[Metric]:
    said = snapshot.telemetry
    level = GaugeMetricFamily(
        "gpud_telemetry_level",
        "The best source that sees a GPU now: "
        + ", ".join(f"{rank} {name}" for rank, name in enumerate(telemetry.LEVELS))
        + ".",
        labels=[],
    )
    if said.answers:
        level.add_metric([], telemetry.level(said, now.mono_s))
    up = GaugeMetricFamily(
        "gpud_telemetry_source_up",
        "1 while the last answer of a source is neither a failure nor too old.",
        labels=["source"],
    )
    took = GaugeMetricFamily(
        "gpud_telemetry_source_duration_seconds",
        "How long the last answer of a source took.",
        labels=["source"],
    )
    for source, answer in sorted(said.answers.items()):
        up.add_metric([source], float(answer.holds(now.mono_s)))
        if answer.duration_s is not None:
            took.add_metric([source], answer.duration_s)
    last = GaugeMetricFamily(
        "gpud_telemetry_source_last_success_timestamp_seconds",
        "Unix time of the last answer of a source that brought readings.",
        labels=["source"],
    )
    for source, taken_s in sorted(said.last_success_s.items()):
        last.add_metric([source], taken_s)
    failures = CounterMetricFamily(
        "gpud_telemetry_source_failures",
        "Times that a source was asked and brought nothing.",
        labels=["source", "reason"],
    )
    for (source, reason), count in sorted(said.failures.items()):
        failures.add_metric([source, clean(reason)], count)
    yield from (level, up, took, last, failures)


def _fields(readings: Iterable[Reading]) -> Iterator[Metric]:
    given = dict[tuple[str, str], None]()
    missing = dict[tuple[str, str, str], None]()
    for reading in readings:
        if reading.field not in FIELDS:
            continue
        if isinstance(reading.value, Absent):
            gpu = "" if reading.gpu is None else str(reading.gpu)
            missing[gpu, reading.field, reading.value.value] = None
        else:
            given[reading.field, reading.source] = None
    sources = InfoMetricFamily(
        "gpud_telemetry_source",
        "Where each telemetry field comes from.",
        labels=["field", "source"],
    )
    for pair in sorted(given):
        sources.add_metric(pair, {})
    absent = InfoMetricFamily(
        "gpud_telemetry_absent",
        "Why a telemetry field has no value.",
        labels=["gpu", "field", "reason"],
    )
    for three in sorted(missing):
        absent.add_metric(three, {})
    yield from (sources, absent)
