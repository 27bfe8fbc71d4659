"""Everything that can change the snapshot: what happened, and when.

Units: ``now_s`` is Unix time, ``now_mono_s`` CLOCK_MONOTONIC, both read by whoever saw it happen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.agent.measure.breaker import Standing
    from gpud.agent.regression.changes import Change
    from gpud.agent.regression.detector import Standing as StreamStanding
    from gpud.agent.state.presence import Expected
    from gpud.agent.state.recent import Point
    from gpud.agent.state.snapshot import StoreSize
    from gpud.core.alerts import Alert, SinkState
    from gpud.core.health import Level
    from gpud.core.report import RootReport
    from gpud.core.sample import Flag, Inventory, ProbeSpec, RunReport, Skip, Unit
    from gpud.core.stream_key import StreamKey
    from gpud.core.telemetry import Answer
    from gpud.show.refusals import Refused


@dataclass(frozen=True, slots=True)
class ProbesListed:
    """Discovery said which probes there are."""

    specs: tuple[ProbeSpec, ...]
    refused: Mapping[str, str]
    now_s: float


@dataclass(frozen=True, slots=True)
class InventoryTaken:
    """CUDA said which GPUs there are."""

    inventory: Inventory
    now_s: float
    now_mono_s: float | None = None


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


@dataclass(frozen=True, slots=True)
class BreakerChanged:
    """GPU work may start or may not; ``standing`` says which, since when and why."""

    standing: Standing
    now_s: float


@dataclass(frozen=True, slots=True)
class ChildSpawned:
    """Processes were started, of whatever kind: gpud publishes its own cost."""

    count: int = 1


@dataclass(frozen=True, slots=True)
class SourceAnswered:
    """A telemetry source was asked: it brought readings, or a reason."""

    answer: Answer
    now_s: float


@dataclass(frozen=True, slots=True)
class ProgramStarted:
    """A telemetry source started a program such as nvidia-smi, which is not free."""

    source: str


@dataclass(frozen=True, slots=True)
class PlatformRead:
    """More became known of the machine, by name: ``wsl_version``, ``windows_build``."""

    facts: Mapping[str, str]
    now_s: float


@dataclass(frozen=True, slots=True)
class Changed:
    """Facts of the machine have become others."""

    changes: tuple[Change, ...]
    now_s: float


@dataclass(frozen=True, slots=True)
class Remembered:
    """The history was read: which GPUs to expect and, the first time, its latest changes."""

    expected: Mapping[str, Expected]
    now_s: float
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class RootHeard:
    """Root's status file was read; None when it is missing, unreadable or too old."""

    report: RootReport | None
    detail: str | None
    now_s: float


@dataclass(frozen=True, slots=True)
class HealthSet:
    """An adapter (store, http) tells how it is."""

    component: str
    level: Level
    now_s: float
    reason: str | None = None
    detail: str | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class ClockJumped:
    """Wall and monotonic time parted by ``offset_s``; positive: a pause, or the clock set on."""

    offset_s: float
    now_s: float
    now_mono_s: float


@dataclass(frozen=True, slots=True)
class Judged:
    """Detectors have taken samples in, or a person told them something; how these streams stand.

    ``units`` are those of the same streams; ``gone`` have brought nothing for long.
    """

    streams: Mapping[StreamKey, StreamStanding]
    now_s: float
    units: Mapping[StreamKey, Unit] = field(default_factory=dict)
    gone: tuple[StreamKey, ...] = ()


@dataclass(frozen=True, slots=True)
class RecentRead:
    """The history was read: clean medians of before this agent began, in any order."""

    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class AlertsChanged:
    """What there is to tell, all of it: what fires, and what ended lately."""

    alerts: tuple[Alert, ...]
    now_s: float


@dataclass(frozen=True, slots=True)
class SinkTold:
    """A sink was given something, and delivered it or did not."""

    sink: str
    state: SinkState
    now_s: float


@dataclass(frozen=True, slots=True)
class StoreMeasured:
    """Somebody has asked how much the history holds."""

    size: StoreSize
    now_s: float


@dataclass(frozen=True, slots=True)
class CertificateRead:
    """The listener serves with this certificate now, or with none."""

    expires_s: float | None  # Unix time


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """The listener has refused so many more, by reason."""

    counts: Mapping[Refused, int]


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
