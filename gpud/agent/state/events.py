"""Events: everything that can change the published snapshot, each with its rule.

``apply`` returns the snapshot after an event; the one before stays as it was. Units: ``now_s`` is
Unix time, ``now_mono_s`` CLOCK_MONOTONIC, both read where the event happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpud.agent.regression.changes import real
from gpud.agent.state import presence, recent, runs
from gpud.agent.state.containers import with_containers
from gpud.agent.state.health import with_breaker, with_dockerd, with_kernel_log
from gpud.agent.state.snapshot import with_health, without_health
from gpud.agent.state.telemetry import with_answer
from gpud.core import clock, gpus, telemetry
from gpud.core.health import Level

if TYPE_CHECKING:
    from gpud.agent.measure.breaker import Standing
    from gpud.agent.regression.changes import Change
    from gpud.agent.regression.detector import Standing as StreamStanding
    from gpud.agent.state.presence import Expected
    from gpud.agent.state.recent import Point
    from gpud.agent.state.snapshot import Snapshot, StoreSize
    from gpud.core.alerts import Alert, SinkState
    from gpud.core.report import RootReport
    from gpud.core.sample import Flag, Inventory, ProbeSpec, RunReport, Skip, Unit
    from gpud.core.stream_key import StreamKey
    from gpud.core.telemetry import Answer
    from gpud.show.refusals import Refused

CHANGES_KEPT = 16


@dataclass(frozen=True, slots=True)
class ProbesListed:
    """The child listed the probes."""

    specs: tuple[ProbeSpec, ...]
    refused: Mapping[str, str]
    now_s: float

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """List the probes, each with its count of runs."""
        counts = {spec.name: snapshot.runs.get(spec.name, 0) for spec in self.specs}
        after = replace(snapshot, specs=self.specs, refused=self.refused, runs=counts)
        if not self.refused:
            return with_health(after, "discovery", Level.OK, self.now_s)
        words = "; ".join(f"{name}: {why}" for name, why in sorted(self.refused.items()))
        return with_health(after, "discovery", Level.DEGRADED, self.now_s, "refused", words)


@dataclass(frozen=True, slots=True)
class InventoryTaken:
    """CUDA listed the GPUs."""

    inventory: Inventory
    now_s: float
    now_mono_s: float | None = None

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Number the GPUs. One that is gone takes its series with it; its counters stay."""
        known = gpus.with_devices(snapshot.gpus, self.inventory.devices)
        present = {known[device.uuid].number for device in self.inventory.devices}
        after = replace(
            runs.of_gpus(snapshot, present),
            inventory=self.inventory,
            inventory_mono_s=self.now_mono_s,
            expected=presence.with_inventory(snapshot.expected, self.inventory, self.now_s),
            gpus=known,
        )
        after = runs.with_gate_health(after, self.now_s)
        if "probes" in after.health:
            after = runs.with_probe_health(after, self.now_s)  # its failures went with it
        return presence.with_presence(after, self.now_s)


@dataclass(frozen=True, slots=True)
class RunFinished:
    """A probe child ended; the launcher turns hangs and crashes into failed reports too.

    ``gpu`` is the UUID that was asked for, also where the child never got to see it.
    """

    report: RunReport
    gpu: str | None
    now_s: float
    now_mono_s: float
    flags: tuple[Flag, ...] = ()

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Take in figures or failure, count, and end the row of skips."""
        return runs.with_run(snapshot, self)


@dataclass(frozen=True, slots=True)
class RunSkipped:
    """A due run was not started. ``starving``: for this reason and too long already.

    ``utilization_gpu_ratio``: of a busy GPU, the share of the time that others used it.
    """

    probe: str
    reason: Skip
    now_s: float
    gpu: str | None = None  # its UUID, None for the CPU's and where no GPU was chosen yet
    starving: bool = False
    utilization_gpu_ratio: float | None = None

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Count it, by probe and reason and in a row."""
        return runs.with_skip(snapshot, self)


@dataclass(frozen=True, slots=True)
class BreakerChanged:
    """GPU work may start or may not; ``standing`` says which, since when and why."""

    standing: Standing
    now_s: float

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Set the health of ``gpu``."""
        return with_breaker(replace(snapshot, breaker=self.standing), self.now_s)


@dataclass(frozen=True, slots=True)
class ChildSpawned:
    """Processes were started, of whatever kind: gpud publishes its own cost."""

    count: int = 1

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Count them."""
        return replace(snapshot, children=snapshot.children + self.count)


@dataclass(frozen=True, slots=True)
class SourceAnswered:
    """A telemetry source was asked: it brought readings, or a reason."""

    answer: Answer
    now_s: float

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Take in the readings and set the health of ``nvml``."""
        return with_answer(snapshot, self.answer, self.now_s)


@dataclass(frozen=True, slots=True)
class ProgramStarted:
    """A telemetry source started a program such as nvidia-smi, which is not free."""

    source: str

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Count it, by source and as a child."""
        before = snapshot.telemetry
        starts = {**before.starts, self.source: before.starts.get(self.source, 0) + 1}
        return replace(
            snapshot, telemetry=replace(before, starts=starts), children=snapshot.children + 1
        )


@dataclass(frozen=True, slots=True)
class PlatformRead:
    """More became known of the machine, by name: ``wsl_version``, ``windows_build``."""

    facts: Mapping[str, str]
    now_s: float

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Add it to the platform."""
        return replace(snapshot, platform={**snapshot.platform, **self.facts})


@dataclass(frozen=True, slots=True)
class Changed:
    """Facts of driver or machine have become others."""

    changes: tuple[Change, ...]
    now_s: float

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Keep the latest and count them; a first sight is none."""
        changes, counts = real(self.changes), dict(snapshot.change_counts)
        for change in changes:
            counts[change.kind] = counts.get(change.kind, 0) + 1
        latest = (*snapshot.changes, *changes)[-CHANGES_KEPT:]
        return replace(snapshot, changes=latest, change_counts=counts)


@dataclass(frozen=True, slots=True)
class Remembered:
    """The history was read: which GPUs to expect and, the first time, its latest changes."""

    expected: Mapping[str, Expected]
    now_s: float
    changes: tuple[Change, ...] = ()

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Expect these GPUs and those that CUDA lists; the changes are not counted again."""
        expected = dict(self.expected)
        if snapshot.inventory is not None:
            expected = presence.with_inventory(expected, snapshot.inventory, self.now_s)
        changes = (*real(self.changes), *snapshot.changes)[-CHANGES_KEPT:]
        after = replace(snapshot, expected=expected, changes=changes)
        return presence.with_presence(after, self.now_s)


@dataclass(frozen=True, slots=True)
class RootHeard:
    """Root's status file was read; None when it is missing, unreadable or too old."""

    report: RootReport | None
    detail: str | None
    now_s: float

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Take in what root reports of dockerd, the kernel's log and containers."""
        after, report, now_s = replace(snapshot, root=self.report), self.report, self.now_s
        if report is None:
            after = with_health(
                after, "root", Level.FAILED, now_s, "silent", self.detail, "gpud up"
            )
            return with_containers(without_health(after, "dockerd", "dxg"), None, now_s)
        after = with_health(after, "root", Level.OK, now_s)
        after = with_dockerd(after, report.dockerd, now_s)
        after = with_kernel_log(after, report.kernel_log, now_s)
        return with_containers(after, report, now_s)


@dataclass(frozen=True, slots=True)
class HealthSet:
    """The health of a component (store, http)."""

    component: str
    level: Level
    now_s: float
    reason: str | None = None
    detail: str | None = None
    fix: str | None = None

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Set it."""
        words = (self.reason, self.detail, self.fix)
        return with_health(snapshot, self.component, self.level, self.now_s, *words)


@dataclass(frozen=True, slots=True)
class ClockJumped:
    """Wall and monotonic time parted by ``offset_s``; positive: a pause, or the clock set on."""

    offset_s: float
    now_s: float
    now_mono_s: float

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Count it; a long pause ages the readings."""
        after = replace(
            snapshot,
            clock_jumps=snapshot.clock_jumps + 1,
            paused_s=snapshot.paused_s + max(self.offset_s, 0.0),
        )
        if self.offset_s < clock.ASLEEP_FROM_S:
            return after
        aged = telemetry.paused(snapshot.telemetry, self.offset_s)
        return replace(after, telemetry=aged, resumed_mono_s=self.now_mono_s)


@dataclass(frozen=True, slots=True)
class Judged:
    """Streams were evaluated, or a person decided about them.

    ``units`` are those of the same streams; ``gone`` have brought nothing for long.
    """

    streams: Mapping[StreamKey, StreamStanding]
    now_s: float
    units: Mapping[StreamKey, Unit] = field(default_factory=dict)
    gone: tuple[StreamKey, ...] = ()

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Take in how these streams stand; those that are gone are not shown."""
        streams, units = {**snapshot.streams, **self.streams}, {**snapshot.units, **self.units}
        for key in set(self.gone) - self.streams.keys():
            streams.pop(key, None)
            units.pop(key, None)
        return replace(snapshot, streams=streams, units=units)


@dataclass(frozen=True, slots=True)
class RecentRead:
    """The history was read: clean medians of before this agent began, in any order."""

    points: tuple[Point, ...]

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Put them in front of what has come in since."""
        return recent.with_past(snapshot, self.points)


@dataclass(frozen=True, slots=True)
class AlertsChanged:
    """All alerts: what fires, and what ended lately."""

    alerts: tuple[Alert, ...]
    now_s: float

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Replace the alerts."""
        return replace(snapshot, alerts=self.alerts, alerts_s=self.now_s)


@dataclass(frozen=True, slots=True)
class SinkTold:
    """A sink was given an alert, and delivered it or did not."""

    sink: str
    state: SinkState
    now_s: float

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Replace the state of this sink."""
        return replace(snapshot, sinks={**snapshot.sinks, self.sink: self.state})


@dataclass(frozen=True, slots=True)
class StoreMeasured:
    """The size of the history was read."""

    size: StoreSize
    now_s: float

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Replace the size."""
        return replace(snapshot, store=self.size)


@dataclass(frozen=True, slots=True)
class CertificateRead:
    """The listener serves with this certificate now, or with none."""

    expires_s: float | None  # Unix time

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Replace the expiry."""
        return replace(snapshot, certificate_expires_s=self.expires_s)


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """The listener has refused so many more requests, by reason."""

    counts: Mapping[Refused, int]

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Count them."""
        before = snapshot.turned_away
        more = {reason: before.get(reason, 0) + count for reason, count in self.counts.items()}
        return replace(snapshot, turned_away={**before, **more})


Event = (
    ProbesListed
    | InventoryTaken
    | RunFinished
    | RunSkipped
    | BreakerChanged
    | ChildSpawned
    | SourceAnswered
    | ProgramStarted
    | PlatformRead
    | Changed
    | Remembered
    | RootHeard
    | HealthSet
    | ClockJumped
    | Judged
    | RecentRead
    | AlertsChanged
    | SinkTold
    | StoreMeasured
    | CertificateRead
    | TurnedAway
)
