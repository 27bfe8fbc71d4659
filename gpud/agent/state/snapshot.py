"""Snapshot of all that gpud publishes: the frozen state of each subject, side by side.

A publisher makes a new state of its own subject and hands it to ``gpud.agent.state.board.Board``,
which swaps it in with one assignment. A scrape, a page view and ``gpud status`` read a finished
value and can neither start nor delay anything. A failure takes its figures with it: nothing stale
is left to be read. Counters count since the agent started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from gpud.agent.measure.pace import Beat
from gpud.agent.telemetry import answers
from gpud.agent.telemetry.answers import Telemetry
from gpud.core import clock
from gpud.core.health import Health, Level

if TYPE_CHECKING:
    from gpud.agent.regression.detector import StreamStanding
    from gpud.agent.serve.refusals import Refused
    from gpud.core.alerts import Alert, SinkState
    from gpud.core.report import RootReport
    from gpud.core.sample import Buckets, Flag, Inventory, ProbeSpec, RunReport
    from gpud.core.streams import StreamKey
    from gpud.document.alerts import FaultReport
    from gpud.document.machine import (
        BreakerReport,
        ChangeReport,
        ComparisonReport,
        Expected,
        ListedGpu,
        StoreSize,
    )
    from gpud.document.runs import PutOff, RecentSeries

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
    """The last run of one probe on one GPU, good or bad, and when it ended."""

    report: RunReport
    finished_s: float  # Unix time
    finished_mono_s: float
    last_success_s: float | None  # Unix time
    flags: tuple[Flag, ...] = ()


class MachineState(Struct, frozen=True):
    """The agent's own start, the machine it runs on, and the jumps of its clocks."""

    version: str
    started_s: float
    url: str = ""  # where the page is, or will be as soon as the address is free
    gpu_from_s: float | None = None  # Unix time: GPU work begins then, after a boot
    platform: Mapping[str, str] = {}
    identity: Mapping[str, str] = {}  # hostname and machine_id
    library_configured: bool = False  # [cuda] library or [nvml] library names one
    paused_s: float = 0.0
    clock_jumps: int = 0
    resumed_mono_s: float | None = None  # when the machine came back from its last long pause


class MeasureState(Struct, frozen=True):
    """Probes, the GPUs that CUDA lists, and the runs; ``gpud.agent.state.runs`` changes it."""

    specs: tuple[ProbeSpec, ...] = ()
    refused: Mapping[str, str] = {}  # probe modules that do not load
    inventory: Inventory | None = None
    inventory_mono_s: float | None = None
    probes: Mapping[ProbeKey, ProbeState] = {}
    runs: Mapping[str, int] = {}
    failures: Mapping[tuple[str, str], int] = {}  # by Reason
    skips: Mapping[tuple[str, str], int] = {}  # by Skip
    put_off: Mapping[ProbeKey, PutOff] = {}  # since their last run
    flagged: Mapping[tuple[str, str], int] = {}  # runs, by Flag
    latencies: Mapping[tuple[int, str], Buckets] = {}  # (gpu, mode)
    recent: tuple[RecentSeries, ...] = ()
    breaker: BreakerReport | None = None  # None until the launcher has looked
    gpu_seconds: float = 0.0
    vram_peak_bytes: int | None = None  # the most one run of a probe took
    pinned_peak_bytes: int | None = None
    children: int = 0  # spawned, of whatever kind: gpud publishes its own cost


class PaceState(Struct, frozen=True):
    """How far apart runs are now, and the GPU contexts since the machine's boot."""

    beat: Beat = Beat()
    contexts: int | None = None  # None until they are counted
    context_budget: int | None = None  # None: any number
    container_s: float = 21600.0  # between two runs of the container probe


class ChangesState(Struct, frozen=True):
    """The GPUs that are expected, and the changes of driver and machine."""

    expected: Mapping[str, Expected] = {}  # GPUs that were here, by UUID
    latest: tuple[ChangeReport, ...] = ()  # newest last; first sights are none
    counts: Mapping[str, int] = {}  # by kind


class RootState(Struct, frozen=True):
    """Root's last report, or the reason why there is none in ``silent``."""

    report: RootReport | None = None
    silent: str | None = None
    comparison: ComparisonReport | None = None  # the container probe beside the in-process one


class AlertsState(Struct, frozen=True):
    """What fires and what ended lately, and how each sink does."""

    alerts: tuple[Alert, ...] = ()
    published_s: float | None = None  # Unix time; None until the alerts are known
    sinks: Mapping[str, SinkState] = {}  # by name


class HttpState(Struct, frozen=True):
    """The listener: its certificate, and the requests that it refused, by reason."""

    certificate_expires_s: float | None = None  # Unix time; None: no TLS
    turned_away: Mapping[Refused, int] = {}


class Snapshot(Struct, frozen=True):
    """Everything published, at one moment. ``health`` is by component."""

    machine: MachineState
    gpus: Mapping[str, ListedGpu] = {}  # by UUID, all that were ever seen
    measure: MeasureState = MeasureState()
    pace: PaceState = PaceState()
    telemetry: Telemetry = Telemetry()
    changes: ChangesState = ChangesState()
    root: RootState = RootState()
    streams: Mapping[StreamKey, StreamStanding] = {}  # each beside its baseline
    alerts: AlertsState = AlertsState()
    http: HttpState = HttpState()
    known_faults: tuple[FaultReport, ...] = ()
    store: StoreSize | None = None  # None until it could be read
    health: Mapping[str, Health] = {}


def probe_key(gpus: Mapping[str, ListedGpu], probe: str, uuid: str | None) -> ProbeKey:
    """Return the key of a probe on the GPU with this UUID, None for the CPU."""
    return ProbeKey(probe, None if uuid is None else gpus[uuid].number)


def after_jump(
    snapshot: Snapshot, offset_s: float, now_mono_s: float
) -> tuple[MachineState, Telemetry]:
    """Count a jump of the clocks; after a long pause the readings are as much older.

    Positive ``offset_s``: the machine paused, or the wall clock was set on.
    """
    before = snapshot.machine
    machine = replace(
        before, clock_jumps=before.clock_jumps + 1, paused_s=before.paused_s + max(offset_s, 0.0)
    )
    if offset_s < clock.ASLEEP_FROM_S:
        return machine, snapshot.telemetry
    aged = answers.paused(snapshot.telemetry, offset_s)
    return replace(machine, resumed_mono_s=now_mono_s), aged


def with_refusals(http: HttpState, counts: Mapping[Refused, int]) -> HttpState:
    """Count requests that the listener has refused since the last call, by reason."""
    before = http.turned_away
    more = {reason: before.get(reason, 0) + count for reason, count in counts.items()}
    return replace(http, turned_away={**before, **more})


def overall(snapshot: Snapshot) -> Level:
    """Return the worst level of any component, OK while there is none."""
    return max((health.level for health in snapshot.health.values()), default=Level.OK)


def number(snapshot: Snapshot, index: int | None) -> int | None:
    """Return the number of the GPU that has ``index`` in CUDA's present list; None for no such."""
    inventory = snapshot.measure.inventory
    for device in () if inventory is None else inventory.devices:
        if device.index == index and device.uuid in snapshot.gpus:
            return snapshot.gpus[device.uuid].number
    return None


def holds_s(interval_s: float) -> float:
    """Return for how long a figure or a reading may be shown: three intervals and an allowance."""
    return 3 * interval_s + ALLOWANCE_S
