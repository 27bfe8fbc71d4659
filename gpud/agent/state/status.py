"""Snapshot -> the document of /api/v1/status, agent.json and ``gpud status --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from gpud.agent.memo import memo
from gpud.agent.state import runs
from gpud.agent.state.health import SEVERITY
from gpud.agent.state.snapshot import overall
from gpud.agent.telemetry import answers
from gpud.core import telemetry
from gpud.core.sample import plain
from gpud.document.alerts import AlertReport
from gpud.document.machine import (
    ContextsReport,
    Counters,
    CudaReport,
    ReadingReport,
    SourceReport,
    TelemetryReport,
)
from gpud.document.runs import LastRun, RunFailure, SkippedProbe, StreamReport
from gpud.document.status import Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.agent.regression.detector import StreamStanding
    from gpud.agent.state.snapshot import ProbeKey, ProbeState, Snapshot
    from gpud.agent.telemetry.answers import Telemetry
    from gpud.core.alerts import Alert
    from gpud.core.clock import Instant
    from gpud.core.sample import Reading
    from gpud.core.streams import StreamKey
    from gpud.document.machine import ListedGpu

T = TypeVar("T", bound=msgspec.Struct)


def document(snapshot: Snapshot, *, now: Instant) -> Status:
    """Make the document of a snapshot."""
    measure, changes = snapshot.measure, snapshot.changes
    return Status(
        version=snapshot.machine.version,
        state=overall(snapshot).name.lower(),
        written_s=now.wall_s,
        started_s=snapshot.machine.started_s,
        url=snapshot.machine.url,
        gpu_from_s=snapshot.machine.gpu_from_s,
        platform=snapshot.machine.platform,
        health=snapshot.health,
        root=snapshot.root.report,
        containers=snapshot.root.comparison,
        gpus=snapshot.gpus,
        breaker=measure.breaker,
        contexts=_contexts(snapshot),
        changes=changes.latest,
        expected=changes.expected,
        cuda=optional(CudaReport, measure.inventory),
        probes=_last_runs(snapshot, now),
        put_off=tuple(
            built(SkippedProbe, skipped, probe=key.probe, gpu=key.gpu)
            for key, skipped in measure.put_off.items()
        ),
        streams=_streams(snapshot.streams, snapshot.gpus),
        recent=measure.recent,
        telemetry=_telemetry(snapshot.telemetry, now),
        alerts=tuple(alert_report(alert) for alert in snapshot.alerts.alerts),
        sinks=snapshot.alerts.sinks,
        known_faults=snapshot.known_faults,
        store=snapshot.store,
        counters=built(
            Counters,
            measure,
            failures={f"{p}:{why}": n for (p, why), n in measure.failures.items()},
            skips={f"{p}:{why}": n for (p, why), n in measure.skips.items()},
            flagged={f"{p}:{flag}": n for (p, flag), n in measure.flagged.items()},
            changes=changes.counts,
            clock_jumps=snapshot.machine.clock_jumps,
            paused_s=snapshot.machine.paused_s,
        ),
    )


def _contexts(snapshot: Snapshot) -> ContextsReport | None:
    pace = snapshot.pace
    if pace.contexts is None:
        return None
    return ContextsReport(pace.contexts, pace.context_budget, pace.beat.gpu_s)


def built(kind: type[T], source: object, **more: object) -> T:
    """Make a part of the document of the attributes that ``source`` has by its names, and more."""
    values = {
        name: getattr(source, name) for name in kind.__struct_fields__ if hasattr(source, name)
    }
    return msgspec.convert(values | more, kind, from_attributes=True)


def optional(kind: type[T], source: object | None) -> T | None:
    """Make a part of the document, None where there is no source."""
    return None if source is None else built(kind, source)


def alert_report(alert: Alert) -> AlertReport:
    """Return an alert as it is published and kept."""
    return built(AlertReport, alert)


def _last_runs(snapshot: Snapshot, now: Instant) -> tuple[LastRun, ...]:
    current, made = runs.current(snapshot, now), _made(snapshot.measure.probes)
    return tuple(
        run if key in current else msgspec.structs.replace(run, old=True)
        for key, run in made.items()
    )


@memo
def _made(probes: Mapping[ProbeKey, ProbeState]) -> dict[ProbeKey, LastRun]:
    return {key: _last_run(key, state) for key, state in probes.items()}


def _last_run(key: ProbeKey, state: ProbeState) -> LastRun:
    failure = state.report.failure
    return built(
        LastRun,
        state.report,
        gpu=key.gpu,
        failure=failure
        and built(RunFailure, failure, severity=SEVERITY[failure.reason].name.lower()),
        last_success_s=state.last_success_s,
        duration_s=state.report.duration_s or None,  # 0 where no child lived to report it
        flags=state.flags,
    )


@memo
def _streams(
    streams: Mapping[StreamKey, StreamStanding], gpus: Mapping[str, ListedGpu]
) -> tuple[StreamReport, ...]:
    def order(key: StreamKey) -> tuple[object, ...]:
        return (key.gpu or "", key.probe, key.mode, key.version, key.on_battery, key.peer or "")

    return tuple(
        built(
            StreamReport,
            standing := streams[key],
            gpu=gpu.number if (gpu := gpus.get(key.gpu or "")) else None,
            uuid=key.gpu,
            probe=key.probe,
            mode=key.mode,
            version=key.version,
            on_battery=key.on_battery,
            usual=usual(standing),
        )
        for key in sorted(streams, key=order)
    )


def _telemetry(state: Telemetry, now: Instant) -> TelemetryReport:
    ranked = answers.ranked(state)
    holding = [answer.taken_s for answer in ranked if answer.holds(now.mono_s)]
    sources = {
        answer.source: built(
            SourceReport,
            answer,
            up=answer.holds(now.mono_s),
            last_success_s=state.last_success_s.get(answer.source),
            failures={
                reason: count
                for (source, reason), count in state.failures.items()
                if source == answer.source
            },
        )
        for answer in ranked
    }
    return TelemetryReport(
        level=telemetry.LEVELS[answers.level(state, now.mono_s)],
        taken_s=holding[0] if holding else None,  # by the best source
        sources=sources,
        readings=_readings(answers.current(state, now.mono_s)),
        program_starts=state.starts,
    )


@memo
def _readings(readings: tuple[Reading, ...]) -> tuple[ReadingReport, ...]:
    return tuple(ReadingReport(**plain(reading)) for reading in readings)


def usual(standing: StreamStanding) -> float | None:
    """Give the level that slowdown is measured from: the one before all open regressions.

    Units: those of the stream. None: not known yet.
    """
    if not standing.open:
        return standing.level
    before = [alarm.before for alarm in standing.open]
    higher_is_worse = standing.open[0].effect.ratio > 1
    return min(before) if higher_is_worse else max(before)
