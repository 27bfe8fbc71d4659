"""All the world may see of gpud, as one frozen value.

Only events (``gpud.agent.state.events``) change it. The agent swaps the new one in with one
assignment; a scrape, a page view and ``gpud status`` read a finished value and can neither
start nor delay anything. What failed takes its figures with it: nothing stale is left to be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from gpud.core.health import Health, Level
from gpud.core.sample import Skip
from gpud.core.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.agent.measure.breaker import Standing
    from gpud.agent.regression.changes import Change
    from gpud.agent.regression.detector import Standing as StreamStanding
    from gpud.agent.state.presence import Expected
    from gpud.agent.state.recent import Recent, Series
    from gpud.core.alerts import Alert, SinkState
    from gpud.core.containers import Comparison
    from gpud.core.gpus import KnownGpu
    from gpud.core.report import RootReport
    from gpud.core.sample import (
        Backend,
        Buckets,
        Failure,
        Flag,
        Inventory,
        ProbeSpec,
        RunReport,
        Sample,
        Unit,
    )
    from gpud.core.stream_key import StreamKey
    from gpud.show.refusals import Refused

ALLOWANCE_S: Final = 30.0
"""Beyond the intervals: a busy machine is late."""


@dataclass(frozen=True, slots=True)
class ProbeKey:
    """One probe on one GPU, by the GPU's number in ``Snapshot.gpus``; None for CPU probes."""

    probe: str
    gpu: int | None

    def __str__(self) -> str:
        """Name it for a person: "launch on GPU 0"."""
        return self.probe if self.gpu is None else f"{self.probe} on GPU {self.gpu}"


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
    flags: tuple[Flag, ...] = ()  # of the last run


@dataclass(frozen=True, slots=True)
class PutOff:
    """How often in a row a probe was left out, the last time for ``reason``."""

    count: int
    reason: Skip
    starving: bool  # it has been put off for too long
    utilization_gpu_ratio: float | None = None  # by others, where the GPU was busy


@dataclass(frozen=True, slots=True)
class StoreSize:
    """How much the history holds. ``waiting`` runs are in memory only, ``dropped`` ones lost."""

    n_bytes: int  # on the disk, its log included
    runs: int
    waiting: int
    dropped: int  # since the agent started
    first_s: float | None = None  # Unix time of the oldest run or hour that is kept


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything published, at one moment. Counters count since the agent started."""

    version: str
    started_s: float
    url: str = ""  # where the page is, or will be as soon as the address is free
    gpu_from_s: float | None = None  # Unix time: GPU work begins then, after a boot
    platform: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)  # hostname and machine_id
    specs: tuple[ProbeSpec, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)  # probe modules that do not load
    library_configured: bool = False  # [cuda] library or [nvml] library names one
    inventory: Inventory | None = None
    inventory_mono_s: float | None = None
    expected: Mapping[str, Expected] = field(default_factory=dict)  # GPUs that were here, by UUID
    changes: tuple[Change, ...] = ()  # the latest, newest last; first sights are none
    change_counts: Mapping[str, int] = field(default_factory=dict)  # by kind
    gpus: Mapping[str, KnownGpu] = field(default_factory=dict)  # by UUID, all that were ever seen
    probes: Mapping[ProbeKey, ProbeState] = field(default_factory=dict)
    runs: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by Reason
    skips: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by Skip
    put_off: Mapping[ProbeKey, PutOff] = field(default_factory=dict)  # since their last run
    flagged: Mapping[tuple[str, str], int] = field(default_factory=dict)  # runs, by Flag
    latencies: Mapping[tuple[int, str], Buckets] = field(default_factory=dict)  # (gpu, mode)
    breaker: Standing | None = None  # None until somebody looked
    gpu_seconds: float = 0.0
    vram_peak_bytes: int | None = None  # the most one run of a probe took
    pinned_peak_bytes: int | None = None
    children: int = 0  # spawned
    telemetry: Telemetry = field(default_factory=Telemetry)
    root: RootReport | None = None
    containers: Comparison | None = None  # the container probe beside the in-process one
    health: Mapping[str, Health] = field(default_factory=dict)
    paused_s: float = 0.0
    clock_jumps: int = 0
    streams: Mapping[StreamKey, StreamStanding] = field(default_factory=dict)
    units: Mapping[StreamKey, Unit] = field(default_factory=dict)  # of the streams
    recent: Mapping[Series, Recent] = field(default_factory=dict)
    alerts: tuple[Alert, ...] = ()  # what fires, and what ended lately
    alerts_s: float | None = None  # Unix time; None until somebody has said what fires
    sinks: Mapping[str, SinkState] = field(default_factory=dict)  # by name
    store: StoreSize | None = None  # None until it could be read
    certificate_expires_s: float | None = None  # Unix time; None: no TLS
    turned_away: Mapping[Refused, int] = field(default_factory=dict)  # by the listener
    resumed_mono_s: float | None = None  # when the machine came back from its last long pause


def overall(snapshot: Snapshot) -> Level:
    """Give the worst level of any component, OK when none has spoken yet."""
    return max((health.level for health in snapshot.health.values()), default=Level.OK)


def number(snapshot: Snapshot, index: int | None) -> int | None:
    """Give the number of the GPU that has ``index`` in CUDA's present list; None for no such."""
    inventory = snapshot.inventory
    for device in () if inventory is None else inventory.devices:
        if device.index == index and device.uuid in snapshot.gpus:
            return snapshot.gpus[device.uuid].number
    return None


def holds_s(interval_s: float) -> float:
    """Give for how long a figure or a reading may be shown: three intervals and an allowance."""
    return 3 * interval_s + ALLOWANCE_S


def fresh(age_s: float | None, interval_s: float) -> bool:
    """Say whether a figure of this age may still be published."""
    return age_s is not None and age_s <= holds_s(interval_s)


def with_health(  # noqa: PLR0913, PLR0917  # one argument per field of Health
    snapshot: Snapshot,
    component: str,
    level: Level,
    now_s: float,
    reason: str | None = None,
    detail: str | None = None,
    fix: str | None = None,
) -> Snapshot:
    """Set one component's health, keeping ``since_s`` while level and reason stay the same.

    One that is not well has words: without ``detail``, those of its reason.
    """
    if level is not Level.OK:
        detail = detail or (reason or "no reason is known").replace("_", " ")
    before = snapshot.health.get(component)
    unchanged = before is not None and (before.level, before.reason) == (level, reason)
    since_s = before.since_s if before is not None and unchanged else now_s
    return replace(
        snapshot,
        health={**snapshot.health, component: Health(level, reason, detail, fix, since_s)},
    )


def without_health(snapshot: Snapshot, *components: str) -> Snapshot:
    """Drop the health of components of which nothing is known."""
    known = {name: value for name, value in snapshot.health.items() if name not in components}
    return replace(snapshot, health=known)


def with_since_of(snapshot: Snapshot, component: str, before: Health | None) -> Snapshot:
    """Give a component the ``since_s`` it had, where two judgements in a row left it as it was."""
    now = snapshot.health.get(component)
    if before is None or now is None or (before.level, before.reason) != (now.level, now.reason):
        return snapshot
    kept = replace(now, since_s=before.since_s)
    return replace(snapshot, health={**snapshot.health, component: kept})
