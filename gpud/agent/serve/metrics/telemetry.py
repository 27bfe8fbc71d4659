"""The state of telemetry itself: which source gives what, which field has no value, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily

from gpud.agent.serve.metrics.families import clean, counters, gauge, gauges, infos
from gpud.agent.telemetry.answers import level
from gpud.agent.telemetry.fields import FIELDS
from gpud.core import telemetry
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.sample import Reading
    from gpud.core.settings import Settings

PROGRAMS: Final = ("nvidia_smi", "nvidia_smi_exe")
"""Sources that start a program, and are limited in it: that they started none is worth a line."""


def families(
    snapshot: Snapshot, readings: Iterable[Reading], settings: Settings, now: Instant
) -> Iterator[Metric]:
    """Yield the state of the sources, then of the fields. ``readings``: those that hold now."""
    disabled, state = settings.telemetry.disabled, snapshot.telemetry
    usable = [name for name in telemetry.LEVELS[1:] if name not in disabled]
    best = usable[-1] if usable else telemetry.LEVELS[0]
    yield gauge(
        "gpud_telemetry_last_success_timestamp_seconds",
        "Unix time of the last collection in which the best source brought readings.",
        state.last_success_s.get(best),
    )
    yield CounterMetricFamily(
        "gpud_telemetry_failures",
        "Collections in which the best source brought nothing.",
        sum(count for (source, _), count in state.failures.items() if source == best),
    )
    yield from _sources(snapshot, now)
    yield counters(
        "gpud_telemetry_program_starts",
        "Times that a source started a program of the driver's.",
        ("source",),
        (([name], state.starts.get(name, 0)) for name in PROGRAMS if name not in disabled),
    )
    yield from _fields(readings)


def _sources(snapshot: Snapshot, now: Instant) -> Iterator[Metric]:
    state = snapshot.telemetry
    levels = ", ".join(f"{rank} {name}" for rank, name in enumerate(telemetry.LEVELS))
    yield gauge(
        "gpud_telemetry_level",
        f"The best source that sees a GPU now: {levels}.",
        level(state, now.mono_s) if state.answers else None,
    )
    answers = sorted(state.answers.items())
    yield gauges(
        "gpud_telemetry_source_up",
        "1 while the last answer of a source is neither a failure nor too old.",
        ("source",),
        (([source], answer.holds(now.mono_s)) for source, answer in answers),
    )
    yield gauges(
        "gpud_telemetry_source_duration_seconds",
        "How long the last answer of a source took.",
        ("source",),
        (([source], answer.duration_s) for source, answer in answers),
    )
    yield gauges(
        "gpud_telemetry_source_last_success_timestamp_seconds",
        "Unix time of the last answer of a source that brought readings.",
        ("source",),
        (([source], at_s) for source, at_s in sorted(state.last_success_s.items())),
    )
    yield counters(
        "gpud_telemetry_source_failures",
        "Times that a source was asked and brought nothing.",
        ("source", "reason"),
        (([name, clean(reason)], n) for (name, reason), n in sorted(state.failures.items())),
    )


def _fields(readings: Iterable[Reading]) -> Iterator[Metric]:
    given, missing = set[tuple[str, str]](), set[tuple[str, str, str]]()
    for reading in readings:
        if reading.field not in FIELDS:
            continue
        if isinstance(reading.value, Absent):
            gpu = "" if reading.gpu is None else str(reading.gpu)
            missing.add((gpu, reading.field, reading.value.value))
        else:
            given.add((reading.field, reading.source))
    yield infos(
        "gpud_telemetry_source",
        "Where each telemetry field comes from.",
        ("field", "source"),
        ((labels, {}) for labels in sorted(given)),
    )
    yield infos(
        "gpud_telemetry_absent",
        "Why a telemetry field has no value.",
        ("gpu", "field", "reason"),
        ((labels, {}) for labels in sorted(missing)),
    )
