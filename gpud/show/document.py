"""Status document as it is read back to be shown: of /api/v1/status, agent.json, `status --json`.

Every field has a default, because an agent of another release may have written the document: what
it lacks is not known. Units: names carry them; ``*_s`` that are moments are Unix seconds. ``gpu``
is a GPU's number, None for the CPU. Texts may quote foreign strings and are escaped where shown.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from gpud.core.alerts import Cause, SinkState
from gpud.core.errors import GpudError
from gpud.core.sample import Peak, Point, StreamKey
from gpud.core.stats import human
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Mapping


class Trouble(msgspec.Struct, frozen=True):
    """The state of something: why it is not well, in words or as a slug, and what to do."""

    reason: str | None = None
    detail: str | None = None
    fix: str | None = None

    @property
    def why(self) -> str:
        """The reason in words; empty if there is none."""
        return self.detail or (self.reason or "").replace("_", " ")


class Health(Trouble, frozen=True):
    """State of a component. ``level``: 0 ok, 1 degraded, 2 failed."""

    level: int = 0
    since_s: float | None = None


class Dockerd(Trouble, frozen=True):
    """State of dockerd; ``up`` is None while root does not look at it."""

    state: str = ""
    owner: str = ""
    policy: str = ""
    up: bool | None = None
    version: str | None = None
    ping_s: float | None = None
    last_start_s: float | None = None
    restarts: dict[str, int] = {}
    suspect_sockets: int | None = None
    containers_running: int | None = None


class Toolkit(msgspec.Struct, frozen=True):
    state: str = ""
    detail: str | None = None


class ContainerRun(msgspec.Struct, frozen=True):
    finished_s: float = 0.0


class Containers(msgspec.Struct, frozen=True):
    toolkit: Toolkit | None = None
    image: str | None = None
    image_present: bool | None = None
    run: ContainerRun | None = None


class Root(msgspec.Struct, frozen=True):
    written_s: float | None = None
    privileged: bool = True
    dockerd: Dockerd = Dockerd()
    containers: Containers | None = None


class Comparison(msgspec.Struct, frozen=True):
    detail: str = ""


class Gpu(msgspec.Struct, frozen=True):
    number: int
    name: str = ""


class Breaker(msgspec.Struct, frozen=True):
    retry_s: float | None = None


class Change(msgspec.Struct, frozen=True):
    kind: str = ""
    old: str | None = None
    new: str | None = None
    at_s: float = 0.0


class Expected(msgspec.Struct, frozen=True):
    """A GPU that CUDA offered before; ``gone_s`` is None while it does."""

    name: str = ""
    gone_s: float | None = None


class Device(msgspec.Struct, frozen=True):
    uuid: str = ""
    name: str = ""
    pci_bus_id: str = ""
    compute_capability: str = ""
    sm_count: int = 0
    l2_bytes: int = 0
    mig: str | None = None
    mps: bool | None = None


class Cuda(msgspec.Struct, frozen=True):
    devices: tuple[Device, ...] = ()
    cuda_version: str | None = None
    library: str | None = None
    failure: Failure | None = None


class Failure(msgspec.Struct, frozen=True):
    reason: str = ""
    detail: str = ""
    advice: str | None = None


class Missing(msgspec.Struct, frozen=True):
    mode: str = ""
    reason: str = ""
    detail: str = ""


class Sample(msgspec.Struct, frozen=True):
    """One mode of a run. Units: figures are in ``unit``."""

    mode: str
    unit: str = ""
    n: int = 0
    median: float = 0.0
    p10: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    minimum: float = 0.0
    maximum: float = 0.0
    peaks: tuple[Peak, ...] = ()

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
            return [human(self.median, self.unit)]
        return [f"{human(peak.value, self.unit)} ({peak.share:.0%})" for peak in self.peaks]


class Probe(msgspec.Struct, frozen=True):
    """The last run of one probe on one GPU: figures, or a failure and no figures."""

    probe: str
    gpu: int | None = None
    last_success_s: float | None = None
    failure: Failure | None = None
    missing: tuple[Missing, ...] = ()
    conditions: dict[str, Any] = {}
    flags: tuple[str, ...] = ()
    curve: tuple[Point, ...] = ()
    samples: tuple[Sample, ...] = ()

    @property
    def on_battery(self) -> bool:
        """Whether the run ended without mains."""
        return self.conditions.get("after.ac") is False


class Skipped(msgspec.Struct, frozen=True):
    """A probe that is put off, ``count`` times in a row."""

    probe: str
    gpu: int | None = None
    reason: str = ""
    count: int = 0
    starving: bool = False
    utilization_gpu_ratio: float | None = None


class Effect(msgspec.Struct, frozen=True):
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


class Alarm(msgspec.Struct, frozen=True):
    """A change for the worse that still holds. ``at_s``: when it was decided."""

    kind: str = ""
    effect: Effect = Effect()
    since_s: float = 0.0
    at_s: float | None = None
    new_driver: str = ""
    samples: int = 0


class Verdict(msgspec.Struct, frozen=True):
    """The verdict on the newest driver. ``limit``: of what can be seen, 0.03 for 3 %."""

    state: str
    since_s: float = 0.0
    old_driver: str = ""
    new_driver: str = ""
    samples: int = 0
    reference: int = 0
    effect: Effect | None = None
    limit: float | None = None
    why: str | None = None


class Stream(msgspec.Struct, frozen=True):
    """A GPU, probe and mode over time; ``uuid`` of the GPU, None for the CPU.

    ``usual`` and ``level`` are in ``unit``; ``slowdown`` is 1.25 for 25 % slower.
    """

    probe: str = ""
    mode: str = ""
    gpu: int | None = None
    uuid: str | None = None
    version: int = 1
    on_battery: bool = False
    unit: str | None = None
    usual: float | None = None
    level: float | None = None
    slowdown: float | None = None
    seen: int = 0
    judged: int = 0
    last_judged_s: float | None = None
    open: tuple[Alarm, ...] = ()
    verdict: Verdict | None = None


class Recent(msgspec.Struct, frozen=True):
    """The latest clean medians, the oldest first. ``after_s`` counts from ``from_s``."""

    probe: str
    mode: str
    uuid: str | None = None
    from_s: float = 0.0
    after_s: tuple[float, ...] = ()
    medians: tuple[float, ...] = ()


class Source(Trouble, frozen=True):
    """The last answer of a source of telemetry; ``failures`` are counts by reason."""

    up: bool = False
    taken_s: float | None = None
    duration_s: float | None = None
    last_success_s: float | None = None
    failures: dict[str, int] = {}


class Reading(msgspec.Struct, frozen=True):
    """One field of telemetry: a value, or the reason why there is none."""

    field: str
    gpu: int | None = None
    source: str = ""
    value: float | str | None = None
    absent: str | None = None
    detail: str | None = None


class Telemetry(msgspec.Struct, frozen=True):
    level: str = ""
    taken_s: float | None = None
    sources: dict[str, Source] = {}
    readings: tuple[Reading, ...] = ()


class Evidence(msgspec.Struct, frozen=True):
    """What one stream showed. Values in ``unit``; ``slowdown``, ``low``, ``high`` of the time."""

    stream: StreamKey
    unit: str = ""
    before: float = 0.0
    after: float = 0.0
    slowdown: float = 1.0
    low: float = 1.0
    high: float = 1.0
    samples: int = 0
    reference: int = 0
    since_s: float = 0.0


class Alert(msgspec.Struct, frozen=True):
    """An alert; ``ends_s`` is None while it fires."""

    name: str
    severity: str = ""
    summary: str = ""
    description: str = ""
    fingerprint: str = ""
    starts_s: float = 0.0
    ends_s: float | None = None
    firing: bool = True
    evidence: tuple[Evidence, ...] = ()
    causes: tuple[Cause, ...] = ()
    fix: str | None = None
    runbook: str | None = None
    acknowledged_s: float | None = None

    @property
    def began_s(self) -> float:
        """When what it tells of began; the alert comes later."""
        return min([self.starts_s, *(piece.since_s for piece in self.evidence)])


class Store(msgspec.Struct, frozen=True):
    n_bytes: int = 0
    runs: int = 0
    waiting: int = 0
    dropped: int = 0
    first_s: float | None = None


class Counters(msgspec.Struct, frozen=True):
    """Counts since the agent started; those of two things are by `PROBE:REASON`."""

    runs: dict[str, int] = {}
    failures: dict[str, int] = {}
    skips: dict[str, int] = {}
    clock_jumps: int = 0
    paused_s: float = 0.0
    children: int = 0
    gpu_seconds: float | None = None
    vram_peak_bytes: int | None = None
    pinned_peak_bytes: int | None = None


class Status(msgspec.Struct, frozen=True, dict=True):
    """The document. ``gpus`` and ``expected`` are by UUID, ``health`` by component."""

    version: str = ""
    state: str = ""
    written_s: float = 0.0
    started_s: float = 0.0
    url: str | None = None
    gpu_from_s: float | None = None
    platform: dict[str, str] = {}
    health: dict[str, Health] = {}
    root: Root | None = None
    containers: Comparison | None = None
    gpus: dict[str, Gpu] = {}
    breaker: Breaker | None = None
    changes: tuple[Change, ...] = ()
    expected: dict[str, Expected] = {}
    cuda: Cuda | None = None
    probes: tuple[Probe, ...] = ()
    put_off: tuple[Skipped, ...] = ()
    streams: tuple[Stream, ...] = ()
    recent: tuple[Recent, ...] = ()
    telemetry: Telemetry = Telemetry()
    alerts: tuple[Alert, ...] = ()
    sinks: dict[str, SinkState] = {}
    store: Store | None = None
    counters: Counters = Counters()

    @property
    def devices(self) -> dict[str, Device]:
        """The GPUs that CUDA lists now, by UUID."""
        return {} if self.cuda is None else {one.uuid: one for one in self.cuda.devices}

    def place(self, uuid: str | None) -> str:
        """Name a GPU by its number, and the CPU."""
        gpu = self.gpus.get(uuid or "")
        return "CPU" if uuid is None else f"GPU {gpu.number}" if gpu else uuid

    def stream(self, probe: Probe, mode: str) -> Stream | None:
        """Return the stream of a figure: of its newest method and the run's power source."""
        return self._newest.get((probe.gpu, probe.probe, mode, probe.on_battery))

    @cached_property
    def _newest(self) -> dict[tuple[int | None, str, str, bool], Stream]:
        ordered = sorted(self.streams, key=lambda one: (one.version, one.last_judged_s or 0.0))
        return {
            (one.gpu, one.probe, one.mode, one.on_battery): one
            for one in ordered
            if (one.uuid is None) is (one.gpu is None)  # else its GPU is gone
        }


def read(document: Mapping[str, Any]) -> Status:
    """Read a document. Errors: ``GpudError`` where this release cannot show it."""
    try:
        return msgspec.convert(document, Status)
    except msgspec.ValidationError as error:
        message = f"the agent's status is none that this gpud can show: {escaped(str(error))}"
        raise GpudError(message, fix="sudo gpud restart") from error
