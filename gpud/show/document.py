"""Status document: what the agent publishes and what page, terminal and doctor read.

It is the answer of /api/v1/status, agent.json and ``gpud status --json``. Nearly every field has a
default, because an agent of another release may have written what is read: what it lacks is not
known. For the same reason a name out of a bounded set is any string here.
Units: names carry them; ``*_s`` that are moments are Unix seconds. ``gpu`` is a GPU's number, None
for the CPU and for what is of the machine; ``uuid`` is a GPU's, None for the CPU. Texts may quote
foreign strings and are escaped where shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, TypeAlias

import msgspec

from gpud.core.alerts import Cause, Evidence, SinkState
from gpud.core.errors import GpudError
from gpud.core.health import Health, words_of
from gpud.core.report import ProcessRef, RootReport
from gpud.core.sample import (
    SCHEMA_VERSION,
    Absent,
    Backend,
    Condition,
    Device,
    Flag,
    Peak,
    Point,
    Reason,
    Skip,
    Unit,
)
from gpud.core.stats import human
from gpud.core.text import escaped

UnitName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Unit)})]
BackendName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Backend)})]
FlagName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Flag)})]
ReasonName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Reason)})]
AbsentName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Absent)})]
SkipName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Skip)})]


class ComparisonReport(msgspec.Struct, frozen=True):
    """One container run beside one in-process run. ``ratio`` is container over in-process."""

    verdict: str = ""
    detail: str = ""
    ratio: float | None = None
    gpu: int | None = None
    run_mono_s: float = 0.0


class ListedGpu(msgspec.Struct, frozen=True):
    """A GPU that was listed at least once. ``cuda`` is False while only NVML has listed it."""

    number: int
    name: str = ""
    pci_bus_id: str = ""
    cuda: bool = True


class BreakerReport(msgspec.Struct, frozen=True):
    """State of the breaker: what hung, and when GPU work is tried again."""

    state: str = ""
    since_s: float | None = None
    hangs: int = 0
    retry_s: float | None = None
    process: ProcessRef | None = None
    what: str | None = None
    detail: str | None = None
    fix: str | None = None


class ChangeReport(msgspec.Struct, frozen=True):
    """One fact that became another. ``level`` is that of its source of telemetry."""

    kind: str = ""
    old: str | None = None
    new: str | None = None
    at_s: float = 0.0
    boot_id: str = ""
    level: int = 0


class Expected(msgspec.Struct, frozen=True):
    """A GPU that was here. ``gone_s``: the Unix time at which CUDA first did not list it.

    ``compute_capability``: "8.9"; empty where only an older gpud has seen it.
    """

    name: str = ""
    gone_s: float | None = None
    compute_capability: str = ""


class FailureReport(msgspec.Struct, frozen=True):
    """A failure, in terms a person can act on. ``code`` is the CUresult of ``function``."""

    reason: ReasonName = ""
    detail: str = ""
    function: str | None = None
    code: int | None = None
    advice: str | None = None


class RunFailure(FailureReport, frozen=True):
    """A failed run. ``severity``: warning, error or critical, as alerts have it."""

    severity: str = ""


class CudaReport(msgspec.Struct, frozen=True):
    """GPUs that CUDA offers right now, or why none; ``refused`` are counted and not described."""

    devices: tuple[Device, ...] = ()
    cuda_version: str | None = None
    library: str | None = None
    failure: FailureReport | None = None
    driver_folder: str | None = None
    refused: tuple[FailureReport, ...] = ()
    schema_version: int = SCHEMA_VERSION


class MissingMode(msgspec.Struct, frozen=True):
    """A mode that this machine cannot offer; the rest of the run is still good."""

    mode: str = ""
    reason: ReasonName = ""
    detail: str = ""


class Figures(msgspec.Struct, frozen=True):
    """One mode of a run. Units: figures are in ``unit``; the null figures are the empty call's."""

    mode: str
    unit: UnitName = ""
    n: int = 0
    median: float = 0.0
    p10: float | None = None
    p90: float | None = None
    p99: float | None = None
    minimum: float = 0.0
    maximum: float = 0.0
    null_median: float | None = None
    null_p99: float | None = None
    peaks: tuple[Peak, ...] = ()
    p99_net: float | None = None

    @property
    def value(self) -> float:
        """The median, or that of the hump with the larger share: between two lies nothing."""
        if not self.peaks:
            return self.median
        return max(self.peaks, key=lambda peak: peak.share).value

    @property
    def humps(self) -> list[str]:
        """The median in words, or each of two humps with its share."""
        if not self.peaks:
            return [human(self.median, self.unit, self.mode)]
        return [
            f"{human(peak.value, self.unit, self.mode)} ({peak.share:.0%})" for peak in self.peaks
        ]


class LastRun(msgspec.Struct, frozen=True):
    """The last run of one probe on one GPU: figures, or a failure and no figures."""

    probe: str
    gpu: int | None = None
    backend: BackendName = ""
    last_success_s: float | None = None
    duration_s: float | None = None
    failure: RunFailure | None = None
    missing: tuple[MissingMode, ...] = ()
    conditions: Mapping[str, Condition] = {}
    flags: tuple[FlagName, ...] = ()
    curve: tuple[Point, ...] = ()
    samples: tuple[Figures, ...] = ()

    @property
    def on_battery(self) -> bool:
        """Whether the run ended without mains."""
        return self.conditions.get("after.ac") is False


class PutOff(msgspec.Struct, frozen=True):
    """How often in a row a probe was skipped, the last time for ``reason``.

    ``starving``: for too long. The GPU was used by others, where it was busy, by the ratio.
    ``next_s``: Unix time of the next attempt, where it is not that of the next round.
    """

    count: int = 0
    reason: SkipName = ""
    starving: bool = False
    utilization_gpu_ratio: float | None = None
    next_s: float | None = None


class SkippedProbe(PutOff, frozen=True):
    """A probe that is skipped, and how often in a row."""

    probe: str = ""
    gpu: int | None = None


class EffectReport(msgspec.Struct, frozen=True):
    """A change of level; the interval holds it nine times in ten.

    Of a rate 0.9 is 11 % more time. ``slowdown``, ``least`` and ``most`` are of the time.
    """

    ratio: float = 1.0
    low: float = 1.0
    high: float = 1.0

    @property
    def slowdown(self) -> float:
        """The effect as a time, never below 1."""
        return max(self.ratio, 1 / self.ratio)

    @property
    def interval(self) -> tuple[float, float]:
        """The interval as a time, the lower end first."""
        low, high = sorted((self.low, self.high))
        return (low, high) if self.ratio > 1 else (1 / high, 1 / low)


class AlarmReport(msgspec.Struct, frozen=True):
    """A change for the worse that still holds. ``at_s``: when it was decided.

    ``before`` and ``after`` are levels in the unit of the stream; ``seq`` numbers its samples.
    """

    kind: str = ""
    worse: bool = True
    seq: int = 0
    at_s: float | None = None
    since_seq: int = 0
    since_s: float = 0.0
    effect: EffectReport = EffectReport()
    before: float = 0.0
    after: float = 0.0
    old_driver: str = ""
    new_driver: str = ""
    samples: int = 0
    reference: int = 0
    closes: tuple[int, ...] = ()


class VerdictReport(msgspec.Struct, frozen=True):
    """The verdict on the newest driver. ``limit``: of what can be seen, 0.03 for 3 %."""

    state: str
    old_driver: str = ""
    new_driver: str = ""
    since_s: float = 0.0
    samples: int = 0
    reference: int = 0
    effect: EffectReport | None = None
    limit: float | None = None
    why: str | None = None


class StreamReport(msgspec.Struct, frozen=True):
    """A GPU, probe and mode over time, beside what is usual. None: not known yet.

    ``usual`` and ``level`` are in ``unit``; ``slowdown`` is 1.25 for 25 % slower. Counts are of
    samples: ``seen``, ``judged``, and by the reason why they were ``refused`` or ``set_aside``.
    """

    seen: int = 0
    judged: int = 0
    refused: Mapping[str, int] = {}
    set_aside: Mapping[str, int] = {}
    last_judged_s: float | None = None
    level: float | None = None
    slowdown: float | None = None
    slow_state_ratio: float | None = None
    open: tuple[AlarmReport, ...] = ()
    verdict: VerdictReport | None = None
    busy_ratio: float | None = None
    busy_before_ratio: float | None = None
    busy_since_s: float | None = None
    unjudged_since_s: float | None = None
    unjudged_for: str | None = None
    gpu: int | None = None
    uuid: str | None = None
    probe: str = ""
    mode: str = ""
    version: int = 1
    on_battery: bool = False
    unit: UnitName | None = None
    usual: float | None = None


class RecentSeries(msgspec.Struct, frozen=True):
    """The latest clean medians of one series, the oldest first, to four digits.

    ``after_s`` counts from ``from_s``.
    """

    uuid: str | None = None
    probe: str = ""
    mode: str = ""
    unit: UnitName = ""
    from_s: float = 0.0
    after_s: tuple[int, ...] = ()
    medians: tuple[float, ...] = ()


class SourceReport(msgspec.Struct, frozen=True):
    """The last answer of a source of telemetry; ``failures`` are counts by reason."""

    level: int = 0
    up: bool = False
    reason: str | None = None
    detail: str | None = None
    fix: str | None = None
    taken_s: float | None = None
    duration_s: float | None = None
    last_success_s: float | None = None
    failures: Mapping[str, int] = {}

    @property
    def why(self) -> str:
        """The reason in words; empty if there is none."""
        return words_of(self.reason, self.detail)


class ReadingReport(msgspec.Struct, frozen=True):
    """One field of telemetry: a value, or the reason why there is none."""

    gpu: int | None = None
    field: str = ""
    source: str = ""
    value: float | str | None = None
    absent: AbsentName | None = None
    detail: str | None = None


class TelemetryReport(msgspec.Struct, frozen=True):
    """Readings and sources. ``level`` names how good the best source is, ``taken_s`` its moment."""

    level: str = ""
    taken_s: float | None = None
    sources: Mapping[str, SourceReport] = {}
    readings: tuple[ReadingReport, ...] = ()
    program_starts: Mapping[str, int] = {}


class AlertReport(msgspec.Struct, frozen=True):
    """An alert; ``ends_s`` is None while it fires; ``labels`` and ``name`` identify it.

    ``summary`` is one sentence; ``description`` has the evidence line by line and what to do. Both
    may quote foreign strings. ``causes``: the most likely first. ``runbook`` is a path below gpud's
    own address.
    """

    name: str
    severity: str = ""
    summary: str = ""
    fingerprint: str = ""
    starts_s: float = 0.0
    updated_s: float = 0.0
    firing: bool = True
    ends_s: float | None = None
    description: str = ""
    labels: Mapping[str, str] = {}
    evidence: tuple[Evidence, ...] = ()
    causes: tuple[Cause, ...] = ()
    fix: str | None = None
    acknowledged_s: float | None = None
    annotations: Mapping[str, str] = {}
    runbook: str = ""

    @property
    def began_s(self) -> float:
        """When the change behind it began; the alert comes later."""
        return min([self.starts_s, *(piece.since_s for piece in self.evidence)])


class FaultReport(msgspec.Struct, frozen=True):
    """A known fault, of docs/known-issues.md, that was seen here or is of this machine's versions.

    ``state``: "seen", "applies" (the versions are within its bounds) or "reported" (somebody met it
    on these versions). ``alarm``: it was seen together with a GPU call that failed or stalled.
    ``evidence`` quotes the kernel or a driver; ``count`` and ``at_s`` (the last) are of its traces.
    """

    id: str
    state: str = ""
    effect: str = ""
    title: str = ""
    fix: str | None = None
    source: str = ""
    confidence: str = ""
    evidence: str | None = None
    at_s: float | None = None
    count: int = 0
    alarm: bool = False


class StoreSize(msgspec.Struct, frozen=True):
    """How much the history holds. ``waiting`` runs are in memory only, ``dropped`` ones lost.

    ``n_bytes`` are on the disk, its log included; ``first_s`` is of the oldest run or hour.
    """

    n_bytes: int = 0
    runs: int = 0
    waiting: int = 0
    dropped: int = 0
    first_s: float | None = None


class Counters(msgspec.Struct, frozen=True):
    """Counts since the agent started; those of two things are by `PROBE:REASON`."""

    runs: Mapping[str, int] = {}
    failures: Mapping[str, int] = {}
    skips: Mapping[str, int] = {}
    flagged: Mapping[str, int] = {}
    changes: Mapping[str, int] = {}
    clock_jumps: int = 0
    paused_s: float = 0.0
    children: int = 0
    gpu_seconds: float | None = None
    vram_peak_bytes: int | None = None
    pinned_peak_bytes: int | None = None


class ContextsReport(msgspec.Struct, frozen=True):
    """GPU contexts made since the machine's boot; ``budget``: how many it may have, None for any.

    Units: ``interval_s`` in seconds, from one round with the GPU to the next.
    """

    used: int = 0
    budget: int | None = None
    interval_s: float = 0.0


class Status(msgspec.Struct, frozen=True, dict=True):
    """Everything a person or a program may want to know of one moment.

    ``state`` is the worst of ``health``. ``gpus`` and ``expected`` are by UUID. ``gpu_from_s`` is
    when GPU work begins, None where it may have begun at once. ``url``: where the page is, while
    ``http`` has not failed.
    """

    version: str = ""
    state: str = ""
    written_s: float = 0.0
    started_s: float = 0.0
    url: str | None = None
    gpu_from_s: float | None = None
    platform: Mapping[str, str] = {}
    health: Mapping[str, Health] = {}
    root: RootReport | None = None
    containers: ComparisonReport | None = None
    gpus: Mapping[str, ListedGpu] = {}
    breaker: BreakerReport | None = None
    contexts: ContextsReport | None = None
    changes: tuple[ChangeReport, ...] = ()
    expected: Mapping[str, Expected] = {}
    cuda: CudaReport | None = None
    probes: tuple[LastRun, ...] = ()
    put_off: tuple[SkippedProbe, ...] = ()
    streams: tuple[StreamReport, ...] = ()
    recent: tuple[RecentSeries, ...] = ()
    telemetry: TelemetryReport = TelemetryReport()
    alerts: tuple[AlertReport, ...] = ()
    sinks: Mapping[str, SinkState] = {}
    known_faults: tuple[FaultReport, ...] = ()
    store: StoreSize | None = None
    counters: Counters = Counters()
    schema_version: int = SCHEMA_VERSION

    @property
    def devices(self) -> dict[str, Device]:
        """The GPUs that CUDA lists now, by UUID."""
        return {} if self.cuda is None else {device.uuid: device for device in self.cuda.devices}

    def place(self, uuid: str | None) -> str:
        """Name a GPU by its number, and the CPU."""
        gpu = self.gpus.get(uuid or "")
        return "CPU" if uuid is None else f"GPU {gpu.number}" if gpu else uuid

    def stream(self, run: LastRun, mode: str) -> StreamReport | None:
        """Return the stream of a figure: of its newest method and the run's power source."""
        return self._newest.get((run.gpu, run.probe, mode, run.on_battery))

    @cached_property
    def _newest(self) -> dict[tuple[int | None, str, str, bool], StreamReport]:
        ordered = sorted(
            self.streams, key=lambda stream: (stream.version, stream.last_judged_s or 0.0)
        )
        return {
            (stream.gpu, stream.probe, stream.mode, stream.on_battery): stream
            for stream in ordered
            if (stream.uuid is None) is (stream.gpu is None)  # else its GPU is gone
        }


def read(document: Mapping[str, Any]) -> Status:
    """Read a document. Errors: ``GpudError`` where this release cannot show it."""
    try:
        return msgspec.convert(document, Status)
    except msgspec.ValidationError as error:
        message = f"the agent's status is none that this gpud can show: {escaped(str(error))}"
        raise GpudError(message, fix="gpud restart") from error
