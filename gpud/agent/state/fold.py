"""How an event makes the next snapshot: one rule per event, and the old snapshot stays."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import TYPE_CHECKING

from gpud.agent.state import presence, recent
from gpud.agent.state.change_fold import with_changes, with_memory
from gpud.agent.state.container_fold import with_containers
from gpud.agent.state.events import (
    AlertsChanged,
    BreakerChanged,
    CertificateRead,
    Changed,
    ChildSpawned,
    ClockJumped,
    Event,
    HealthSet,
    InventoryTaken,
    Judged,
    PlatformRead,
    ProbesListed,
    ProgramStarted,
    RecentRead,
    Remembered,
    RootHeard,
    RunFinished,
    RunSkipped,
    SinkTold,
    SourceAnswered,
    StoreMeasured,
    TurnedAway,
)
from gpud.agent.state.loss_fold import with_breaker, with_kernel_log
from gpud.agent.state.presence import with_presence
from gpud.agent.state.severity import LEVEL, SEVERITY
from gpud.agent.state.skip_fold import gate_health, with_run, with_skip
from gpud.agent.state.snapshot import ProbeKey, ProbeState, Snapshot, with_health
from gpud.agent.state.telemetry_fold import with_answer
from gpud.core import clock, containers, gpus, stats, telemetry
from gpud.core.health import Level
from gpud.core.report import DockerdReport, Owner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.sample import Buckets, RunReport


@singledispatch
def fold(event: Event, snapshot: Snapshot) -> Snapshot:  # noqa: ARG001  # rules use it
    """Give the snapshot after ``event``; the old one stays as it was.

    The event comes first because it chooses the rule. ``Errors: TypeError`` for a foreign event.
    """
    raise TypeError(f"not an event: {event!r}")


@fold.register
def _(event: ProbesListed, snapshot: Snapshot) -> Snapshot:
    after = replace(
        snapshot,
        specs=event.specs,
        refused=event.refused,
        runs={spec.name: snapshot.runs.get(spec.name, 0) for spec in event.specs},
    )
    if not event.refused:
        return with_health(after, "discovery", Level.OK, event.now_s)
    words = "; ".join(f"{name}: {why}" for name, why in sorted(event.refused.items()))
    return with_health(
        after, "discovery", Level.DEGRADED, event.now_s, reason="refused", detail=words
    )


@fold.register
def _(event: InventoryTaken, snapshot: Snapshot) -> Snapshot:
    inventory = event.inventory
    known = gpus.with_devices(snapshot.gpus, inventory.devices)
    present = {known[device.uuid].number for device in inventory.devices}
    after = replace(
        snapshot,
        inventory=inventory,
        inventory_mono_s=event.now_mono_s,
        expected=presence.with_inventory(snapshot.expected, inventory, event.now_s),
        gpus=known,
        # A GPU that is gone takes its series with it; its counters stay, they are history.
        probes={
            key: state
            for key, state in snapshot.probes.items()
            if key.gpu is None or key.gpu in present
        },
        latencies={key: value for key, value in snapshot.latencies.items() if key[0] in present},
        put_off={
            key: value
            for key, value in snapshot.put_off.items()
            if key.gpu is None or key.gpu in present
        },
    )
    after = gate_health(after, event.now_s)
    if "probes" in after.health:
        after = _probe_health(after, event.now_s)  # its failures went with it
    return with_presence(after, event.now_s)


@fold.register
def _(event: RunFinished, snapshot: Snapshot) -> Snapshot:
    report = event.report
    known = snapshot.gpus if event.gpu is None else gpus.with_uuid(snapshot.gpus, event.gpu)
    gpu = None if event.gpu is None else known[event.gpu].number
    key = ProbeKey(report.probe, gpu)
    before = snapshot.probes.get(key, ProbeState(report.backend))
    good = report.failure is None
    state = ProbeState(
        backend=report.backend,
        samples=report.samples if good else (),
        report=report,
        failure=report.failure,
        last_success_s=event.now_s if good else before.last_success_s,
        finished_mono_s=event.now_mono_s,
        duration_s=report.duration_s or None,  # 0 where no child lived to tell
        flags=event.flags,
    )
    failures = dict(snapshot.failures)
    if report.failure is not None:
        counted = (report.probe, report.failure.reason)
        failures[counted] = failures.get(counted, 0) + 1
    after = replace(
        snapshot,
        gpus=known,
        probes={**snapshot.probes, key: state},
        runs={**snapshot.runs, report.probe: snapshot.runs.get(report.probe, 0) + 1},
        failures=failures,
        flagged={
            **snapshot.flagged,
            **{
                (report.probe, flag): snapshot.flagged.get((report.probe, flag), 0) + 1
                for flag in event.flags
            },
        },
        latencies=_accumulated(snapshot.latencies, gpu, report),
        gpu_seconds=snapshot.gpu_seconds + (report.gpu_seconds or 0.0),
    )
    fresh = recent.points(report, event.gpu, event.now_s, event.flags)
    after = recent.with_points(after, fresh) if fresh else after
    if gpu is not None:
        after = replace(
            after,
            vram_peak_bytes=_most(snapshot.vram_peak_bytes, report.vram_peak_bytes),
            pinned_peak_bytes=_most(snapshot.pinned_peak_bytes, report.pinned_peak_bytes),
        )
    return _probe_health(with_run(after, key, event.now_s), event.now_s)


@fold.register
def _(event: RunSkipped, snapshot: Snapshot) -> Snapshot:
    return with_skip(snapshot, event)


@fold.register
def _(event: BreakerChanged, snapshot: Snapshot) -> Snapshot:
    return with_breaker(replace(snapshot, breaker=event.standing), event.now_s)


@fold.register
def _(event: ChildSpawned, snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, children=snapshot.children + event.count)


@fold.register
def _(event: SourceAnswered, snapshot: Snapshot) -> Snapshot:
    return with_answer(snapshot, event.answer, event.now_s)


@fold.register
def _(event: ProgramStarted, snapshot: Snapshot) -> Snapshot:
    starts = snapshot.telemetry.starts
    started = {**starts, event.source: starts.get(event.source, 0) + 1}
    return replace(
        snapshot,
        telemetry=replace(snapshot.telemetry, starts=started),
        children=snapshot.children + 1,
    )


@fold.register
def _(event: PlatformRead, snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, platform={**snapshot.platform, **event.facts})


@fold.register
def _(event: Changed, snapshot: Snapshot) -> Snapshot:
    return with_changes(snapshot, event.changes)


@fold.register
def _(event: Remembered, snapshot: Snapshot) -> Snapshot:
    return with_memory(snapshot, event)


@fold.register
def _(event: RootHeard, snapshot: Snapshot) -> Snapshot:
    after = replace(snapshot, root=event.report)
    if event.report is None:
        silent = with_health(
            after,
            "root",
            Level.FAILED,
            event.now_s,
            reason="silent",
            detail=event.detail,
            fix="gpud up",
        )
        mute = {"dockerd", "dxg"}
        unknown = {name: value for name, value in silent.health.items() if name not in mute}
        return with_containers(replace(silent, health=unknown), None, event.now_s)
    heard = with_health(after, "root", Level.OK, event.now_s)
    known = _dockerd_health(heard, event.report.dockerd, event.now_s)
    known = with_kernel_log(known, event.report.kernel_log, event.now_s)
    return with_containers(known, event.report, event.now_s)


@fold.register
def _(event: HealthSet, snapshot: Snapshot) -> Snapshot:
    return with_health(
        snapshot,
        event.component,
        event.level,
        event.now_s,
        reason=event.reason,
        detail=event.detail,
        fix=event.fix,
    )


@fold.register
def _(event: ClockJumped, snapshot: Snapshot) -> Snapshot:
    after = replace(
        snapshot,
        clock_jumps=snapshot.clock_jumps + 1,
        paused_s=snapshot.paused_s + max(event.offset_s, 0.0),
    )
    if event.offset_s < clock.ASLEEP_FROM_S:
        return after
    aged = telemetry.paused(snapshot.telemetry, event.offset_s)
    return replace(after, telemetry=aged, resumed_mono_s=event.now_mono_s)


@fold.register
def _(event: Judged, snapshot: Snapshot) -> Snapshot:
    kept = {key: one for key, one in snapshot.streams.items() if key not in event.gone}
    units = {key: unit for key, unit in snapshot.units.items() if key not in event.gone}
    return replace(snapshot, streams={**kept, **event.streams}, units={**units, **event.units})


@fold.register
def _(event: RecentRead, snapshot: Snapshot) -> Snapshot:
    return recent.with_past(snapshot, event.points)


@fold.register
def _(event: AlertsChanged, snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, alerts=event.alerts, alerts_s=event.now_s)


@fold.register
def _(event: StoreMeasured, snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, store=event.size)


@fold.register
def _(event: SinkTold, snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, sinks={**snapshot.sinks, event.sink: event.state})


@fold.register
def _(event: CertificateRead, snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, certificate_expires_s=event.expires_s)


@fold.register
def _(event: TurnedAway, snapshot: Snapshot) -> Snapshot:
    before = snapshot.turned_away
    more = {reason: before.get(reason, 0) + count for reason, count in event.counts.items()}
    return replace(snapshot, turned_away={**before, **more})


def _most(before: int | None, now: int | None) -> int | None:
    return max(before or 0, now) if now is not None else before


def _accumulated(
    totals: Mapping[tuple[int, str], Buckets], gpu: int | None, report: RunReport
) -> Mapping[tuple[int, str], Buckets]:
    if report.failure is not None or gpu is None:
        return totals
    grown = dict(totals)
    for sample in report.samples:
        if sample.buckets is not None:
            key = (gpu, sample.mode)
            grown[key] = (
                stats.merged(grown[key], sample.buckets) if key in grown else sample.buckets
            )
    return grown


def _probe_health(snapshot: Snapshot, now_s: float) -> Snapshot:
    failing = {
        key: state.failure
        for key, state in snapshot.probes.items()
        if state.failure is not None and key.probe != containers.PROBE  # that has its own health
    }
    if not failing:
        return with_health(snapshot, "probes", Level.OK, now_s)
    words = [
        f"{key}: {failure.detail}"
        for key, failure in sorted(failing.items(), key=lambda item: str(item[0]))
    ]
    worst = max(failing.values(), key=lambda failure: SEVERITY[failure.reason])
    return with_health(
        snapshot,
        "probes",
        LEVEL[SEVERITY[worst.reason]],
        now_s,
        reason=worst.reason,
        detail="; ".join(words),
        fix=worst.advice,
    )


def _dockerd_health(snapshot: Snapshot, dockerd: DockerdReport, now_s: float) -> Snapshot:
    if dockerd.up is None:
        unknown = {name: value for name, value in snapshot.health.items() if name != "dockerd"}
        return replace(snapshot, health=unknown)
    if dockerd.up:
        level = Level.OK if dockerd.reason is None else Level.DEGRADED
    else:
        # Nobody asked for a dockerd on a machine that has none and does not manage one.
        absent = dockerd.owner is Owner.NONE and dockerd.policy == "observe"
        level = Level.DEGRADED if dockerd.state == "starting" or absent else Level.FAILED
    return with_health(
        snapshot,
        "dockerd",
        level,
        now_s,
        reason=dockerd.reason or (None if dockerd.up else dockerd.state),
        detail=dockerd.detail,
        fix=dockerd.fix,
    )
