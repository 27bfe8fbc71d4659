"""Snapshot -> the document of /api/v1/status, agent.json and ``gpud status --json``."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpud.agent.state import recent
from gpud.agent.state.health import SEVERITY
from gpud.agent.state.snapshot import ProbeKey, RegressionState, overall
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
    from collections.abc import Iterable, Mapping

    from gpud.agent.regression.detector import StreamStanding
    from gpud.agent.state.snapshot import ProbeState, Snapshot
    from gpud.agent.telemetry.answers import Telemetry
    from gpud.core.clock import Instant
    from gpud.core.sample import Failure, Sample, StreamKey, Unit


def document(snapshot: Snapshot, *, now: Instant) -> dict[str, Any]:
    """Give everything a person or a program may want to know, as plain JSON data.

    Units: names carry them; ``*_s`` that are moments are Unix seconds.
    """
    plain_data: dict[str, Any] = msgspec.to_builtins(typed(snapshot, now=now))
    return plain_data


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
        recent=tuple(RecentSeries(**each) for each in recent.document(snapshot.measure.recent)),
        telemetry=_telemetry(snapshot.telemetry, now),
        alerts=tuple(alert(each) for each in snapshot.alerts.alerts),
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


def _telemetry(state: Telemetry, now: Instant) -> ToldTelemetry:
    taken = [answer.taken_s for answer in answers.ranked(state) if answer.holds(now.mono_s)]
    return ToldTelemetry(
        level=telemetry.LEVELS[answers.level(state, now.mono_s)],
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
                last_success_s=state.last_success_s.get(answer.source),
                failures={
                    reason: count
                    for (source, reason), count in state.failures.items()
                    if source == answer.source
                },
            )
            for answer in answers.ranked(state)
        },
        readings=tuple(
            ToldReading(**plain(reading)) for reading in answers.current(state, now.mono_s)
        ),
        program_starts=state.starts,
    )


class Place(NamedTuple):
    """What people take for one series: the power source and the probe's version are not in it."""

    gpu: int | None  # its number; None for the CPU
    probe: str
    mode: str


def number(snapshot: Snapshot, stream: StreamKey) -> int | None:
    """Give the number of the GPU that a stream is of; None for the CPU, and for no such GPU."""
    gpu = None if stream.gpu is None else snapshot.gpus.get(stream.gpu)
    return None if gpu is None else gpu.number


def places(snapshot: Snapshot) -> dict[Place, tuple[StreamKey, ...]]:
    """Give the streams of each place, the one that its last run was of first.

    Those of a GPU that is gone are left out, as its figures are, and so are those of an earlier
    version of a probe's method. A list of GPUs that could not be taken takes none away.
    """
    inventory = snapshot.measure.inventory
    present = set(snapshot.gpus)
    if inventory is not None and inventory.failure is None:
        present &= {device.uuid for device in inventory.devices}
    streams: defaultdict[Place, list[StreamKey]] = defaultdict(list)
    for stream in snapshot.regression.streams:
        if stream.gpu is None or stream.gpu in present:
            place = Place(number(snapshot, stream), stream.probe, stream.mode)
            streams[place].append(stream)
    return {
        place: _ordered(snapshot, place, streams)
        for place, streams in sorted(
            streams.items(), key=lambda item: (item[0].gpu is not None, item[0])
        )
    }


def with_streams(
    regression: RegressionState,
    streams: Mapping[StreamKey, StreamStanding],
    units: Mapping[StreamKey, Unit],
    gone: Iterable[StreamKey] = (),
) -> RegressionState:
    """Take in how these streams stand; those that are ``gone`` are shown no more."""
    shown, shown_units = {**regression.streams, **streams}, {**regression.units, **units}
    for key in set(gone) - streams.keys():
        shown.pop(key, None)
        shown_units.pop(key, None)
    return RegressionState(shown, shown_units)


def usual(standing: StreamStanding) -> float | None:
    """Give the level that slowdown is measured from: the one before all open regressions.

    Units: those of the stream. None: not known yet.
    """
    if not standing.open:
        return standing.level
    before = [alarm.before for alarm in standing.open]
    higher_is_worse = standing.open[0].effect.ratio > 1
    return min(before) if higher_is_worse else max(before)


def _ordered(snapshot: Snapshot, place: Place, streams: list[StreamKey]) -> tuple[StreamKey, ...]:
    state = snapshot.measure.probes.get(ProbeKey(place.probe, place.gpu))
    run = None if state is None else state.report
    on_battery = None if run is None else run.conditions.get("after.ac") is False

    def newest(stream: StreamKey) -> tuple[bool, float]:
        judged_s = snapshot.regression.streams[stream].last_judged_s
        return stream.on_battery is on_battery, 0.0 if judged_s is None else judged_s

    version = max(stream.version for stream in streams)
    now = [stream for stream in streams if stream.version == version]
    return tuple(sorted(now, key=newest, reverse=True))
