"""Snapshot -> the document of /api/v1/status, agent.json and ``gpud status --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpud.agent.state import recent
from gpud.agent.state.severity import SEVERITY
from gpud.agent.state.snapshot import overall
from gpud.agent.state.standings import number, usual
from gpud.agent.state.statusdocument import (
    Counters,
    Figures,
    LastRun,
    LeftOut,
    RecentSeries,
    Source,
    StatusDocument,
    Stream,
    ToldFailure,
    ToldReading,
    ToldTelemetry,
    alert,
    parts,
)
from gpud.agent.telemetry import answers
from gpud.core import telemetry
from gpud.core.health import Level
from gpud.core.sample import plain

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import ProbeKey, ProbeState, Snapshot
    from gpud.agent.telemetry.answers import Telemetry
    from gpud.core.clock import Instant
    from gpud.core.sample import Failure, Sample
    from gpud.core.stream_key import StreamKey


def document(snapshot: Snapshot, *, now: Instant) -> dict[str, Any]:
    """Give everything a person or a program may want to know, as plain JSON data.

    Units: names carry them; ``*_s`` that are moments are Unix seconds.
    """
    found: dict[str, Any] = msgspec.to_builtins(typed(snapshot, now=now))
    return found


def typed(snapshot: Snapshot, *, now: Instant) -> StatusDocument:
    """Give the same as types, which only need to be encoded."""
    return StatusDocument(
        version=snapshot.machine.version,
        state=Level(overall(snapshot)).name.lower(),
        written_s=now.wall_s,
        started_s=snapshot.machine.started_s,
        url=snapshot.machine.url,
        gpu_from_s=snapshot.machine.gpu_from_s,
        platform=snapshot.machine.platform,
        health=snapshot.health,
        root=snapshot.root.report,
        containers=snapshot.root.comparison,
        gpus=snapshot.gpus,
        breaker=snapshot.measure.breaker,
        changes=snapshot.changes.latest,
        expected=snapshot.changes.expected,
        cuda=snapshot.measure.inventory,
        probes=tuple(_probe(key, state) for key, state in snapshot.measure.probes.items()),
        put_off=tuple(
            LeftOut(**parts(value), probe=key.probe, gpu=key.gpu)
            for key, value in snapshot.measure.put_off.items()
        ),
        streams=tuple(
            _stream(snapshot, key) for key in sorted(snapshot.regression.streams, key=_order)
        ),
        recent=tuple(RecentSeries(**one) for one in recent.document(snapshot.measure.recent)),
        telemetry=_telemetry(snapshot.telemetry, now),
        alerts=tuple(alert(one) for one in snapshot.alerts.alerts),
        sinks=snapshot.alerts.sinks,
        store=snapshot.store,
        counters=Counters(
            runs=snapshot.measure.runs,
            failures={f"{p}:{why}": n for (p, why), n in snapshot.measure.failures.items()},
            skips={f"{p}:{why}": n for (p, why), n in snapshot.measure.skips.items()},
            flagged={f"{p}:{flag}": n for (p, flag), n in snapshot.measure.flagged.items()},
            changes=snapshot.changes.counts,
            clock_jumps=snapshot.machine.clock_jumps,
            paused_s=snapshot.machine.paused_s,
            children=snapshot.measure.children,
            gpu_seconds=snapshot.measure.gpu_seconds,
            vram_peak_bytes=snapshot.measure.vram_peak_bytes,
            pinned_peak_bytes=snapshot.measure.pinned_peak_bytes,
        ),
    )


def figures(sample: Sample) -> dict[str, Any]:
    """Give what ``Figures`` tell of a sample: all but its distribution."""
    return {name: value for name, value in parts(sample).items() if name != "buckets"}


def _probe(key: ProbeKey, state: ProbeState) -> LastRun:
    report = state.report
    return LastRun(
        probe=key.probe,
        gpu=key.gpu,
        backend=state.backend,
        last_success_s=state.last_success_s,
        duration_s=state.duration_s,
        failure=_failure(state.failure) if state.failure is not None else None,
        missing=report.missing if report else (),
        conditions=report.conditions if report else {},
        flags=state.flags,
        curve=report.curve if report else (),
        samples=tuple(Figures(**figures(sample)) for sample in state.samples),
    )


def _stream(snapshot: Snapshot, key: StreamKey) -> Stream:
    standing = snapshot.regression.streams[key]
    return Stream(
        **parts(standing),
        gpu=number(snapshot, key),
        uuid=key.gpu,
        probe=key.probe,
        mode=key.mode,
        version=key.version,
        on_battery=key.on_battery,
        unit=snapshot.regression.units.get(key),
        usual=usual(standing),
    )


def _order(key: StreamKey) -> tuple[Any, ...]:
    return (key.gpu or "", key.probe, key.mode, key.version, key.on_battery)


def _failure(failure: Failure) -> ToldFailure:
    return ToldFailure(**parts(failure), severity=SEVERITY[failure.reason].name.lower())


def _telemetry(said: Telemetry, now: Instant) -> ToldTelemetry:
    taken = [answer.taken_s for answer in answers.ranked(said) if answer.holds(now.mono_s)]
    return ToldTelemetry(
        level=telemetry.LEVELS[answers.level(said, now.mono_s)],
        taken_s=taken[0] if taken else None,  # by the best source
        sources={
            answer.source: Source(
                level=answer.level,
                up=answer.holds(now.mono_s),
                reason=answer.reason,
                detail=answer.detail,
                fix=answer.fix,
                taken_s=answer.taken_s,
                duration_s=answer.duration_s,
                last_success_s=said.last_success_s.get(answer.source),
                failures={
                    reason: count
                    for (source, reason), count in said.failures.items()
                    if source == answer.source
                },
            )
            for answer in answers.ranked(said)
        },
        readings=tuple(
            ToldReading(**plain(reading)) for reading in answers.current(said, now.mono_s)
        ),
        program_starts=said.starts,
    )
