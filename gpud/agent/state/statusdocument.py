"""The document of /api/v1/status, agent.json and ``gpud status --json``, as types.

Units: names carry them. ``*_s`` that are moments are Unix seconds; null: not known. ``gpu`` is a
GPU's number, null for the CPU and for what is of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from gpud.agent.measure import breaker
from gpud.agent.regression import detector
from gpud.agent.regression.changes import MachineChange
from gpud.agent.state.gpus import KnownGpu
from gpud.agent.state.snapshot import Expected, PutOff, StoreSize
from gpud.core.alerts import Alert, Cause, Evidence, SinkState
from gpud.core.containers import Comparison
from gpud.core.health import Health
from gpud.core.report import RootReport
from gpud.core.sample import (
    SCHEMA_VERSION,
    Absent,
    Backend,
    Condition,
    Failure,
    Flag,
    Inventory,
    Missing,
    Peak,
    Point,
    Unit,
)


@dataclass(frozen=True, slots=True)
class Figures:
    """One mode of a run. Units: figures are in ``unit``; the null figures are the empty call's."""

    mode: str
    unit: Unit
    n: int
    median: float
    p10: float
    p90: float
    p99: float
    minimum: float
    maximum: float
    null_median: float | None
    null_p99: float | None
    peaks: tuple[Peak, ...]
    p99_net: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldFailure(Failure):
    """A failed run. ``severity``: warning, error or critical, as alerts have it."""

    severity: str


@dataclass(frozen=True, slots=True)
class LastRun:
    """The last run of one probe on one GPU: figures, or a failure and no figures."""

    probe: str
    gpu: int | None
    backend: Backend
    last_success_s: float | None
    duration_s: float | None
    failure: ToldFailure | None
    missing: tuple[Missing, ...]
    conditions: Mapping[str, Condition]
    flags: tuple[Flag, ...]
    curve: tuple[Point, ...]
    samples: tuple[Figures, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut(PutOff):
    """A probe that was put off, and how often in a row."""

    probe: str
    gpu: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(detector.StreamStanding):
    """How figures that compare with each other stand. ``uuid``: of the GPU, null for the CPU.

    ``usual`` and ``level`` are in ``unit``; ``slowdown`` is 1.25 for 25 % slower.
    """

    gpu: int | None
    uuid: str | None
    probe: str
    mode: str
    version: int
    on_battery: bool
    unit: Unit | None
    usual: float | None


@dataclass(frozen=True, slots=True)
class RecentSeries:
    """The latest clean medians of one series, the oldest first, to four digits.

    ``uuid``: of the GPU, null for the CPU. ``after_s`` counts from ``from_s``.
    """

    uuid: str | None
    probe: str
    mode: str
    unit: Unit
    from_s: float
    after_s: tuple[int, ...]
    medians: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """How one source of telemetry answered last; ``failures`` are counts by reason."""

    level: int
    up: bool
    reason: str | None
    detail: str | None
    fix: str | None
    taken_s: float
    duration_s: float | None
    last_success_s: float | None
    failures: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ToldReading:
    """One field of telemetry: a value, or the reason why there is none."""

    gpu: int | None
    field: str
    source: str
    value: float | str | None
    absent: Absent | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class ToldTelemetry:
    """What the sources say. ``level`` names how good the best is, ``taken_s`` is its moment."""

    level: str
    taken_s: float | None
    sources: Mapping[str, Source]
    readings: tuple[ToldReading, ...]
    program_starts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ToldAlert:
    """One thing to tell. ``ends_s`` is null while it fires; ``labels`` and ``name`` identify it.

    ``summary`` is one sentence; ``description`` has the evidence line by line and what to do. Both
    may quote foreign strings. ``causes``: the most likely first. ``runbook`` is a path below gpud's
    own address.
    """

    name: str
    severity: str
    summary: str
    fingerprint: str
    starts_s: float
    updated_s: float
    firing: bool
    ends_s: float | None = None
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    causes: tuple[Cause, ...] = ()
    fix: str | None = None
    acknowledged_s: float | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    runbook: str = ""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts since the agent started; those of two things are by `PROBE:REASON`."""

    runs: Mapping[str, int]
    failures: Mapping[str, int]
    skips: Mapping[str, int]
    flagged: Mapping[str, int]
    changes: Mapping[str, int]
    clock_jumps: int
    paused_s: float
    children: int
    gpu_seconds: float
    vram_peak_bytes: int | None
    pinned_peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class StatusDocument:
    """Everything a person or a program may want to know of this moment.

    ``state`` is the worst of ``health``. ``gpus`` and ``expected`` are by UUID. ``gpu_from_s`` is
    when GPU work begins, None where it may have begun at once.
    ``url``: where the page is, while ``http`` has not failed.
    """

    version: str
    state: str
    written_s: float
    started_s: float
    url: str
    gpu_from_s: float | None
    platform: Mapping[str, str]
    health: Mapping[str, Health]
    root: RootReport | None
    containers: Comparison | None
    gpus: Mapping[str, KnownGpu]
    breaker: breaker.Standing | None
    changes: tuple[MachineChange, ...]
    expected: Mapping[str, Expected]
    cuda: Inventory | None
    probes: tuple[LastRun, ...]
    put_off: tuple[LeftOut, ...]
    streams: tuple[Stream, ...]
    recent: tuple[RecentSeries, ...]
    telemetry: ToldTelemetry
    alerts: tuple[ToldAlert, ...]
    sinks: Mapping[str, SinkState]
    store: StoreSize | None
    counters: Counters
    schema_version: int = SCHEMA_VERSION


def alert(alert: Alert) -> ToldAlert:
    """Give an alert as everybody is told of it."""
    return ToldAlert(
        **parts(alert), fingerprint=alert.fingerprint, firing=alert.firing, runbook=alert.runbook
    )


def parts(value: Any) -> dict[str, Any]:  # noqa: ANN401  # any dataclass
    """Give the fields of a dataclass as they are, for one that has more."""
    return {item.name: getattr(value, item.name) for item in fields(value)}
