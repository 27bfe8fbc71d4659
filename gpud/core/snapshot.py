"""All the world may see of gpud, as one frozen value, and how an event makes the next one.

``fold(old, event)`` is the only way a snapshot changes. The agent swaps the new one in with one
assignment; a scrape, a page view and ``gpud status`` read a finished value and can neither start
nor delay anything. What failed takes its figures with it: nothing stale is left to be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import TYPE_CHECKING, Final

from gpud.core import containers, stats
from gpud.core.events import (
    ChildSpawned,
    ClockJumped,
    Event,
    HealthSet,
    InventoryTaken,
    ProbesListed,
    RootHeard,
    RunFinished,
    RunSkipped,
    TelemetryFailed,
    TelemetryRead,
)
from gpud.core.health import Health, Level
from gpud.core.report import ContainersReport, DockerdReport, Owner, RootReport
from gpud.core.sample import (
    Absent,
    Backend,
    Buckets,
    Device,
    Failure,
    Inventory,
    ProbeSpec,
    Reading,
    Reason,
    RunReport,
    Sample,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.containers import Comparison


@dataclass(frozen=True, slots=True)
class ProbeKey:
    """One probe on one GPU; ``gpu`` is None for CPU probes."""

    probe: str
    gpu: int | None


@dataclass(frozen=True, slots=True)
class ProbeState:
    """What is known of one probe on one GPU. ``samples`` is empty after a failure."""

    backend: Backend
    samples: tuple[Sample, ...] = ()
    report: RunReport | None = None  # the last run, good or bad
    failure: Failure | None = None
    last_success_s: float | None = None  # Unix time
    finished_mono_s: float | None = None
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The last collection: its readings, or why there are none. Never readings of an older one."""

    readings: tuple[Reading, ...] = ()
    taken_s: float | None = None
    taken_mono_s: float | None = None
    duration_s: float | None = None
    last_success_s: float | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything published, at one moment. Counters count since the agent started."""

    version: str
    started_s: float
    platform: Mapping[str, str] = field(default_factory=dict)
    specs: tuple[ProbeSpec, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)  # probe modules that do not load
    inventory: Inventory | None = None
    probes: Mapping[ProbeKey, ProbeState] = field(default_factory=dict)
    runs: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by Reason
    skips: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by Skip
    latencies: Mapping[tuple[int, str], Buckets] = field(default_factory=dict)  # (gpu, mode)
    gpu_seconds: float = 0.0
    children: int = 0  # spawned
    telemetry: Telemetry = field(default_factory=Telemetry)
    root: RootReport | None = None
    containers: Comparison | None = None  # the container probe beside the in-process one
    health: Mapping[str, Health] = field(default_factory=dict)
    paused_s: float = 0.0
    clock_jumps: int = 0


DEGRADED_REASONS: Final = frozenset(
    {Reason.BUDGET_EXCEEDED, Reason.OUT_OF_MEMORY, Reason.UNSUPPORTED, Reason.DEPENDENCY_MISSING}
)
"""Failures that say little about the GPU's health: the machine is busy or something is not here."""


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
        return _with_health(after, "discovery", Level.OK, event.now_s)
    words = "; ".join(f"{name}: {why}" for name, why in sorted(event.refused.items()))
    return _with_health(
        after, "discovery", Level.DEGRADED, event.now_s, reason="refused", detail=words
    )


@fold.register
def _(event: InventoryTaken, snapshot: Snapshot) -> Snapshot:
    inventory = event.inventory
    present = {device.index for device in inventory.devices}
    after = replace(
        snapshot,
        inventory=inventory,
        # A GPU that is gone takes its series with it; its counters stay, they are history.
        probes={
            key: state
            for key, state in snapshot.probes.items()
            if key.gpu is None or key.gpu in present
        },
        latencies={key: value for key, value in snapshot.latencies.items() if key[0] in present},
    )
    if "probes" in after.health:
        after = _probe_health(after, event.now_s)  # its failures went with it
    if inventory.failure is not None:
        return _failed(after, "cuda", inventory.failure, event.now_s)
    return _with_health(after, "cuda", Level.OK, event.now_s)


@fold.register
def _(event: RunFinished, snapshot: Snapshot) -> Snapshot:
    report = event.report
    key = ProbeKey(report.probe, event.gpu)
    before = snapshot.probes.get(key, ProbeState(report.backend))
    good = report.failure is None
    state = ProbeState(
        backend=report.backend,
        samples=report.samples if good else (),
        report=report,
        failure=report.failure,
        last_success_s=event.now_s if good else before.last_success_s,
        finished_mono_s=event.now_mono_s,
        duration_s=report.duration_s,
    )
    failures = dict(snapshot.failures)
    if report.failure is not None:
        counted = (report.probe, report.failure.reason)
        failures[counted] = failures.get(counted, 0) + 1
    after = replace(
        snapshot,
        probes={**snapshot.probes, key: state},
        runs={**snapshot.runs, report.probe: snapshot.runs.get(report.probe, 0) + 1},
        failures=failures,
        latencies=_accumulated(snapshot.latencies, event),
        gpu_seconds=snapshot.gpu_seconds + report.gpu_seconds,
    )
    return _probe_health(after, event.now_s)


@fold.register
def _(event: RunSkipped, snapshot: Snapshot) -> Snapshot:
    counted = (event.probe, event.reason)
    return replace(snapshot, skips={**snapshot.skips, counted: snapshot.skips.get(counted, 0) + 1})


@fold.register
def _(event: ChildSpawned, snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, children=snapshot.children + event.count)


@fold.register
def _(event: TelemetryRead, snapshot: Snapshot) -> Snapshot:
    telemetry = Telemetry(
        readings=event.readings,
        taken_s=event.now_s,
        taken_mono_s=event.now_mono_s,
        duration_s=event.duration_s,
        last_success_s=event.now_s,
        failures=snapshot.telemetry.failures,
    )
    after = replace(snapshot, telemetry=telemetry)
    broken = sorted({r.field for r in event.readings if r.value is Absent.FAILED})
    if broken:
        return _with_health(
            after,
            "nvml",
            Level.DEGRADED,
            event.now_s,
            reason="fields_failed",
            detail=f"NVML failed to give {', '.join(broken)}",
        )
    return _with_health(after, "nvml", Level.OK, event.now_s)


@fold.register
def _(event: TelemetryFailed, snapshot: Snapshot) -> Snapshot:
    telemetry = Telemetry(
        taken_s=event.now_s,
        taken_mono_s=event.now_mono_s,
        last_success_s=snapshot.telemetry.last_success_s,
        failures=snapshot.telemetry.failures + 1,
    )
    return _with_health(
        replace(snapshot, telemetry=telemetry),
        "nvml",
        Level.FAILED,
        event.now_s,
        reason=event.reason,
        detail=event.detail,
        fix=event.fix,
    )


@fold.register
def _(event: RootHeard, snapshot: Snapshot) -> Snapshot:
    after = replace(snapshot, root=event.report)
    if event.report is None:
        silent = _with_health(
            after,
            "root",
            Level.FAILED,
            event.now_s,
            reason="silent",
            detail=event.detail,
            fix="gpud up",
        )
        unknown = {name: value for name, value in silent.health.items() if name != "dockerd"}
        return _containers(replace(silent, health=unknown), None, event.now_s)
    heard = _with_health(after, "root", Level.OK, event.now_s)
    known = _dockerd_health(heard, event.report.dockerd, event.now_s)
    return _containers(known, event.report, event.now_s)


@fold.register
def _(event: HealthSet, snapshot: Snapshot) -> Snapshot:
    return _with_health(
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
    return replace(
        snapshot,
        clock_jumps=snapshot.clock_jumps + 1,
        paused_s=snapshot.paused_s + max(event.offset_s, 0.0),
    )


def overall(snapshot: Snapshot) -> Level:
    """Give the worst level of any component, OK when none has spoken yet."""
    return max((health.level for health in snapshot.health.values()), default=Level.OK)


def fresh(age_s: float | None, interval_s: float, *, allowance_s: float = 30.0) -> bool:
    """Say whether a figure of this age may still be published: three intervals and a run's time."""
    return age_s is not None and age_s <= 3 * interval_s + allowance_s


def _accumulated(
    totals: Mapping[tuple[int, str], Buckets], event: RunFinished
) -> Mapping[tuple[int, str], Buckets]:
    if event.report.failure is not None or event.gpu is None:
        return totals
    grown = dict(totals)
    for sample in event.report.samples:
        if sample.buckets is not None:
            key = (event.gpu, sample.mode)
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
        return _with_health(snapshot, "probes", Level.OK, now_s)
    words = [
        f"{key.probe}{'' if key.gpu is None else f' on GPU {key.gpu}'}: {failure.detail}"
        for key, failure in sorted(failing.items(), key=lambda item: (item[0].probe, str(item[0])))
    ]
    worst = max(failing.values(), key=lambda failure: failure.reason not in DEGRADED_REASONS)
    return _with_health(
        snapshot,
        "probes",
        Level.DEGRADED if worst.reason in DEGRADED_REASONS else Level.FAILED,
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
    return _with_health(
        snapshot,
        "dockerd",
        level,
        now_s,
        reason=dockerd.reason or (None if dockerd.up else dockerd.state),
        detail=dockerd.detail,
        fix=dockerd.fix,
    )


def _containers(snapshot: Snapshot, root: RootReport | None, now_s: float) -> Snapshot:
    """Take over what root says of the container probe; what it no longer says is gone."""
    said = None if root is None else root.containers
    after = _without_containers(snapshot)
    if root is None or said is None:
        return after
    own = containers.PROBE
    failures = {(own, reason): count for reason, count in said.failures.items()}
    skips = {(own, reason): count for reason, count in said.skips.items()}
    comparison = _comparison(snapshot, said, root.beat_s)
    after = replace(
        after,
        containers=comparison,
        probes={**after.probes, **_container_probe(snapshot, said)},
        runs={**after.runs, own: said.runs} if said.runs or said.skips else after.runs,
        failures={**after.failures, **failures},
        skips={**after.skips, **skips},
    )
    inventory = snapshot.inventory
    has_gpu = inventory is not None and bool(inventory.devices)
    judged = containers.judgement(said, comparison, has_gpu=has_gpu)
    if judged is None:
        return after
    before = snapshot.health.get("containers")
    kept = (
        after if before is None else replace(after, health={**after.health, "containers": before})
    )
    return _with_health(
        kept,
        "containers",
        judged.level,
        now_s,
        reason=judged.reason,
        detail=judged.detail,
        fix=judged.fix,
    )


def _without_containers(snapshot: Snapshot) -> Snapshot:
    own = containers.PROBE
    return replace(
        snapshot,
        containers=None,
        probes={key: value for key, value in snapshot.probes.items() if key.probe != own},
        runs={probe: count for probe, count in snapshot.runs.items() if probe != own},
        failures={key: count for key, count in snapshot.failures.items() if key[0] != own},
        skips={key: count for key, count in snapshot.skips.items() if key[0] != own},
        health={name: value for name, value in snapshot.health.items() if name != "containers"},
    )


def _container_probe(snapshot: Snapshot, said: ContainersReport) -> dict[ProbeKey, ProbeState]:
    """Give the last run as any other probe's, once it is known on which GPU it runs."""
    if said.run is None or said.gpu_index is None:
        return {}
    report = containers.run_report(said.run, _measured_device(snapshot, said))
    state = ProbeState(
        backend=Backend.CUDA,
        samples=report.samples,
        report=report,
        failure=report.failure,
        last_success_s=said.last_success_s,
        finished_mono_s=said.run.finished_mono_s,
        duration_s=report.duration_s,
    )
    return {ProbeKey(containers.PROBE, said.gpu_index): state}


def _measured_device(snapshot: Snapshot, said: ContainersReport) -> Device | None:
    """Find the GPU the container measured: the same index, and the same name."""
    inventory, figure = snapshot.inventory, None if said.run is None else said.run.figure
    if inventory is None or figure is None:
        return None
    wanted = (figure.gpu_index, figure.gpu_name)
    return next((d for d in inventory.devices if (d.index, d.name) == wanted), None)


def _comparison(snapshot: Snapshot, said: ContainersReport, beat_s: float) -> Comparison | None:
    """Compare while both runs are of the same hour; afterwards what was found then still holds."""
    if said.run is None:
        return None
    found = containers.compared(
        said.run,
        said.recent_flops_per_second,
        _in_process(snapshot, said.gpu_index, beat_s),
        same_gpu=_measured_device(snapshot, said) is not None,
    )
    before = snapshot.containers
    same_run = before is not None and before.run_mono_s == said.run.finished_mono_s
    return before if same_run and found.verdict is containers.Verdict.NOT_COMPARABLE else found


def _in_process(snapshot: Snapshot, gpu: int | None, beat_s: float) -> containers.InProcess | None:
    inventory = snapshot.inventory
    if inventory is not None and inventory.failure is not None:
        return containers.InProcess(beat_s, failure=inventory.failure)  # asked anew all the time
    runs = {
        key.gpu: state
        for key, state in snapshot.probes.items()
        if key.probe == containers.IN_PROCESS and key.gpu is not None
    }
    chosen = min(runs, default=None) if gpu is None else gpu
    state = None if chosen is None else runs.get(chosen)
    if state is None or state.finished_mono_s is None:
        return None
    median = next((sample.median for sample in state.samples), None)
    return containers.InProcess(state.finished_mono_s, median, state.failure)


def _failed(snapshot: Snapshot, component: str, failure: Failure, now_s: float) -> Snapshot:
    return _with_health(
        snapshot,
        component,
        Level.FAILED,
        now_s,
        reason=failure.reason,
        detail=failure.detail,
        fix=failure.advice,
    )


def _with_health(  # noqa: PLR0913  # one argument per field of Health
    snapshot: Snapshot,
    component: str,
    level: Level,
    now_s: float,
    *,
    reason: str | None = None,
    detail: str | None = None,
    fix: str | None = None,
) -> Snapshot:
    """Set one component's health, keeping ``since_s`` while level and reason stay the same."""
    before = snapshot.health.get(component)
    unchanged = before is not None and (before.level, before.reason) == (level, reason)
    since_s = before.since_s if before is not None and unchanged else now_s
    return replace(
        snapshot,
        health={**snapshot.health, component: Health(level, reason, detail, fix, since_s)},
    )
