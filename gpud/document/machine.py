"""GPUs, their telemetry, changes, containers and the agent's own counts in the status document."""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec

from gpud.core.health import words_of
from gpud.core.report import ProcessRef
from gpud.core.sample import SCHEMA_VERSION, Absent, Backend, Flag, Reason, Skip, Unit

UnitName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Unit)})]
BackendName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Backend)})]
FlagName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Flag)})]
ReasonName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Reason)})]
AbsentName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Absent)})]
SkipName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(Skip)})]
"""Names out of bounded sets; a document of another release may have others."""


class ListedGpu(msgspec.Struct, frozen=True):
    """A GPU that was listed at least once. ``cuda`` is False while only NVML has listed it."""

    number: int
    name: str = ""
    pci_bus_id: str = ""
    cuda: bool = True


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


class DeviceReport(msgspec.Struct, frozen=True):
    """A GPU as the CUDA driver describes it; ``index`` in PCI bus order."""

    index: int
    uuid: str
    name: str
    pci_bus_id: str
    compute_capability: str
    sm_count: int
    l2_bytes: int
    memory_total_bytes: int
    mig: str | None = None
    mps: bool | None = False


class CudaReport(msgspec.Struct, frozen=True):
    """GPUs that CUDA offers right now, or why none; ``refused`` are counted and not described."""

    devices: tuple[DeviceReport, ...] = ()
    cuda_version: str | None = None
    library: str | None = None
    failure: FailureReport | None = None
    driver_folder: str | None = None
    refused: tuple[FailureReport, ...] = ()
    schema_version: int = SCHEMA_VERSION


class ChangeReport(msgspec.Struct, frozen=True):
    """One fact that became another. ``old`` is None at the first sight ever: that is no change.

    ``level`` is that of its source of telemetry.
    """

    kind: str = ""
    old: str | None = None
    new: str | None = None
    at_s: float = 0.0
    boot_id: str = ""
    level: int = 0


class ComparisonReport(msgspec.Struct, frozen=True):
    """One container run beside one in-process run. ``ratio`` is container over in-process."""

    verdict: str = ""
    detail: str = ""
    ratio: float | None = None
    gpu: int | None = None
    run_mono_s: float = 0.0


class BreakerReport(msgspec.Struct, frozen=True):
    """State of the breaker: what hung, and when GPU work is tried again.

    Units: ``since_s`` and ``retry_s`` are Unix times. ``retry_s`` is None where no clock decides:
    closed, half-open, and stuck, which ends when ``process`` does.
    """

    state: str = ""
    since_s: float | None = None
    hangs: int = 0  # in a row
    retry_s: float | None = None
    process: ProcessRef | None = None  # the one that does not go away
    what: str | None = None  # what it was doing: "launch on GPU-..."
    detail: str | None = None  # in words: the evidence
    fix: str | None = None


class ContextsReport(msgspec.Struct, frozen=True):
    """GPU contexts made since the machine's boot; ``budget``: how many it may have, None for any.

    Units: ``interval_s`` in seconds, from one round with the GPU to the next.
    """

    used: int = 0
    budget: int | None = None
    interval_s: float = 0.0


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
