"""Types that cross between processes: a probe, its run, its samples, and reasons for their absence.

Standard library only: the child imports this module, ``record``, ``advice``, ``stats``, ``errors``
and ``progress``, no more of core.
"""

from __future__ import annotations

from enum import StrEnum

from gpud.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

SCHEMA_VERSION = 1
"""Of every JSON document that crosses a process boundary."""

START_LIMIT_S = 100.0
"""How long the driver may take to start: after a boot or an update nothing of it has been read from
the disk yet, and its kernels are compiled anew.
"""

Condition: TypeAlias = str | int | float | bool | None
"""One fact about the circumstances of a run, stored beside its figures."""


class Unit(StrEnum):
    """Base units of a probe's figures, as Prometheus names them."""

    SECONDS = "seconds"
    BYTES_PER_SECOND = "bytes_per_second"
    FLOPS_PER_SECOND = "flops_per_second"
    ELEMENTS = "elements"  # of a matrix: where the GPU begins to win


class Flag(StrEnum):
    """What speaks against taking a run's figures for the usual ones. It is kept and shown."""

    BUSY = "busy"  # somebody else used the GPU
    LOW = "low"  # the GPU was slower than it usually lets itself be
    RESUME = "resume"  # the machine had just come back from a pause
    COLD = "cold"  # the warm-up ended before the clocks had settled
    JUMPED = "jumped"  # the clocks parted during the run: its durations mean nothing


class Backend(StrEnum):
    """What a probe runs on. CPU figures are never published as a GPU's."""

    CUDA = "cuda"
    CPU = "cpu"


class Pace(StrEnum):
    """Which schedule a probe belongs to: small every minute, large every quarter of an hour."""

    SMALL = "small"
    LARGE = "large"


class Reason(StrEnum):
    """Why a run brought no number: a bounded set, because it becomes a metric label."""

    LIBRARY_MISSING = "library_missing"
    SYMBOL_MISSING = "symbol_missing"
    NO_DEVICE = "no_device"
    INIT_FAILED = "init_failed"
    DRIVER_MISMATCH = "driver_mismatch"
    PTX_REJECTED = "ptx_rejected"
    OUT_OF_MEMORY = "out_of_memory"
    LAUNCH_TIMEOUT = "launch_timeout"
    LAUNCH_FAILED = "launch_failed"
    DEVICE_LOST = "device_lost"
    DEVICE_BUSY = "device_busy"
    ECC_ERROR = "ecc_error"
    NOT_READY = "not_ready"
    NOT_PERMITTED = "not_permitted"
    MPS_FAILED = "mps_failed"
    GRAPH_FAILED = "graph_failed"
    INVALID_CALL = "invalid_call"
    CUDA_ERROR = "cuda_error"
    VERIFICATION_FAILED = "verification_failed"
    CPU_ALWAYS_FASTER = "cpu_always_faster"
    UNSUPPORTED = "unsupported"
    VRAM_SHORT = "vram_short"  # less would stay free than has to
    PEER_BUSY = "peer_busy"  # the same of the second GPU of a run
    LEFT_OUT = "left_out"  # of a mode: on a machine like this one it does harm
    NOT_COLD = "not_cold"  # of a mode that is only measured before anything else is
    DEPENDENCY_MISSING = "dependency_missing"
    BUDGET_EXCEEDED = "budget_exceeded"
    HUNG = "hung"
    SLOW_START = "slow_start"  # the driver had not started by its own limit
    KILLED = "killed"
    CRASHED = "crashed"
    BAD_OUTPUT = "bad_output"
    SPAWN_FAILED = "spawn_failed"
    TOOLKIT_MISSING = "toolkit_missing"
    TOOLKIT_FAILED = "toolkit_failed"
    RUNTIME_UNKNOWN = "runtime_unknown"
    REQUIREMENT_UNMET = "requirement_unmet"
    MOUNT_FAILED = "mount_failed"
    CDI_UNRESOLVED = "cdi_unresolved"
    CDI_FAILED = "cdi_failed"
    CONTAINER_FAILED = "container_failed"
    PULL_FAILED = "pull_failed"
    DOCKER_ERROR = "docker_error"
    DOCKERD_LOST = "dockerd_lost"
    INTERNAL = "internal"


class Skip(StrEnum):
    """Why a due run was not started at all."""

    NO_GPU = "no_gpu"
    STUCK = "stuck"  # a child that hung in the driver has not ended
    BREAKER_OPEN = "breaker_open"  # a call hung a while ago
    CHILD_RUNNING = "child_running"
    CLOCK_JUMPED = "clock_jumped"
    CONTAINER_RUNNING = "container_running"
    IMAGE_ABSENT = "image_absent"
    DOCKERD_DOWN = "dockerd_down"
    QUIET_HOURS = "quiet_hours"
    ON_BATTERY = "on_battery"
    RESUMED = "resumed"
    BOOT_GRACE = "boot_grace"  # the virtual machine has just started
    CONTEXTS_SPENT = "contexts_spent"  # gpud has made as many as one boot may have
    CONTEXT_LOST = "context_lost"  # twice in this round
    GPU_HOT = "gpu_hot"
    VRAM_SHORT = "vram_short"
    GPU_BUSY = "gpu_busy"
    PEER_BUSY = "peer_busy"  # the second GPU of a run: busy, hot or short of memory


class Failure(Record):
    """One failed run, in terms a person can act on."""

    reason: Reason
    detail: str
    function: str | None = None  # the driver function that refused, "cuInit"
    code: int | None = None  # its CUresult
    advice: str | None = None


class ProbeSpec(Record):
    """What a probe measures, as ``gpud.child --list`` prints it."""

    name: str
    backend: Backend
    pace: Pace
    unit: Unit
    modes: tuple[str, ...]
    budget_s: float  # wall time after which the child ends itself
    summary: str
    version: int = 1  # raised when the method changes: figures of two versions never compare
    gpu_budget_s: float = 1.0  # GPU time of one run, warm-up and verification included
    vram_share: float = 0.5  # the most it takes of the GPU memory that is free
    every: int = 1  # takes part in every n-th round of its pace, the first one included
    peer: bool = False  # a run copies between its GPU and a second one


MOST_GPUS = 64
"""More than any machine has had: a bound for a driver that gives new UUIDs all the time."""


class Device(Record):
    """A GPU as the CUDA driver describes it; ``index`` in PCI bus order."""

    index: int
    uuid: str  # "GPU-8-4-4-4-12", as NVML writes it
    name: str
    pci_bus_id: str
    compute_capability: str  # "8.9"
    sm_count: int
    l2_bytes: int
    memory_total_bytes: int
    mig: str | None = None  # the profile of a MIG instance, "1g.10gb"; its UUID is "MIG-..."
    mps: bool | None = False  # contexts go through the Multi-Process Service; None: it is not known


class Inventory(Record):
    """Which GPUs CUDA offers right now, or why none."""

    devices: tuple[Device, ...] = ()
    cuda_version: str | None = None  # of the driver, "12.8"
    library: str | None = None  # the file the loader really opened
    failure: Failure | None = None
    driver_folder: str | None = None  # of Windows' driver store, that the driver was loaded from
    refused: tuple[Failure, ...] = ()  # GPUs that CUDA counts and does not describe
    schema_version: int = SCHEMA_VERSION


class Buckets(Record):
    """A latency distribution over ``stats.LATENCY_BOUNDS_S``.

    Shapes: ``counts`` has one more entry than there are bounds (the last is +Inf); not cumulative.
    Units: ``total`` in seconds.
    """

    counts: tuple[int, ...]
    total: float


class Peak(Record):
    """One of several humps of a distribution. ``value`` is its median, ``share`` in 0..1."""

    value: float
    share: float


class Point(Record):
    """What one size cost on either side. Units: seconds; ``n`` is the side of a square matrix."""

    n: int
    cpu_s: float
    gpu_s: float


class Sample(Record):
    """One mode of one verified run, reduced to robust figures in the unit of its probe."""

    mode: str
    unit: Unit
    n: int
    median: float
    minimum: float
    maximum: float
    p10: float | None = None  # a percentile that no value lies beyond is none
    p90: float | None = None
    p99: float | None = None
    null_median: float | None = None  # the empty call of the same prototype, already subtracted
    null_p99: float | None = None
    buckets: Buckets | None = None
    peaks: tuple[Peak, ...] = ()  # ascending; empty where the median says it all
    p99_net: float | None = None  # less what the null calls' p99 exceeds their median by, as well


class Missing(Record):
    """A mode that this machine cannot offer; the rest of the run is still good."""

    mode: str
    reason: Reason
    detail: str


class Job(Record):
    """One thing that a child is asked for: a line of JSON on its stdin.

    ``left_out`` has the modes not to measure, each with the reason in words.
    """

    probe: str = ""  # empty: the list of GPUs
    gpu: str | None = None  # UUID; None for CPU probes and for the inventory
    cuda_library: str = ""  # absolute path; empty: the search order of ``cuda.candidates``
    sysroot: str = "/"
    cache_dir: str | None = None  # for CUDA's JIT cache; a service may have no HOME
    budget_s: float = 10.0  # without start-up
    seed: int = 1
    start_limit_s: float = START_LIMIT_S  # of loading the driver, cuInit, context and kernels
    progress_fd: int | None = None  # inherited memory, laid out as ``gpud.core.progress``
    alarm: bool = True  # the kernel ends a child whose driver call does not return
    left_out: dict[str, str] = {}  # noqa: RUF012  # copied
    vram_free_min_bytes: int = 0  # of each GPU's memory, as ``to_leave_free`` takes it
    peer: str | None = None  # UUID of the second GPU, of a probe that copies between two


HEADROOM_BYTES = 2 << 30
HEADROOM_RATIO = 0.15


def to_leave_free(vram_free_min_bytes: int, memory_bytes: int) -> tuple[float, float]:
    """Return how much of a GPU's memory must be free before a run, and beside what it takes.

    What is set counts the run's own memory in. Where nothing is, -1, it is of ``memory_bytes`` in
    all, 0 where not known: 15 %, but at least 2 GiB, and no more than half of a small card. Under
    WSL2 a GPU that is filled can take Windows down, and memory was refused with 2 GB of 24 free.
    """
    if vram_free_min_bytes >= 0:
        return vram_free_min_bytes, 0
    least = min(HEADROOM_BYTES, memory_bytes / 2) if memory_bytes else HEADROOM_BYTES
    free_bytes = max(HEADROOM_RATIO * memory_bytes, least)
    return free_bytes, free_bytes


class RunReport(Record):
    """What a child prints for a job that names a probe.

    Either ``failure`` is None and ``samples`` hold verified figures, or there is a failure and no
    samples: a run whose results were wrong publishes nothing. What it cost is None where it is not
    known.
    """

    probe: str
    backend: Backend
    device: Device | None = None
    samples: tuple[Sample, ...] = ()
    missing: tuple[Missing, ...] = ()
    failure: Failure | None = None
    conditions: dict[str, Condition] = {}  # noqa: RUF012  # copied
    duration_s: float = 0.0  # wall, monotonic, inside the child; of the whole child if it died
    gpu_seconds: float | None = None  # as CUDA events saw it; gpud's own cost, as are the next two
    vram_peak_bytes: int | None = None
    pinned_peak_bytes: int | None = None
    curve: tuple[Point, ...] = ()  # in ascending n, of a probe that looks for a crossing
    schema_version: int = SCHEMA_VERSION

    @property
    def version(self) -> int:
        """That of the probe's method; who does not tell, such as a container, has one only."""
        version = self.conditions.get("probe_version")
        return version if type(version) is int else 1


class Absent(StrEnum):
    """Why there is no number: a reason is data, whereas 0, NaN and None are guesses."""

    UNSUPPORTED = "unsupported"
    NOT_PERMITTED = "not_permitted"
    FAILED = "failed"
    SENTINEL = "sentinel"
    STALE = "stale"
    NOT_ASKED = "not_asked"  # the settings say not to


class Reading(Record):
    """One telemetry field at one moment; the suffix of the field name is its unit.

    ``gpu`` is None where the field is of the machine, such as the driver's version.
    """

    gpu: int | None
    field: str  # "power_watts", "temperature_celsius"
    value: float | str | Absent
    source: str  # which telemetry source answered
    detail: str | None = None  # the source's own words when absent


def plain(reading: Reading) -> dict[str, Any]:
    """Give a reading as JSON data, in which text and reason, both strings there, are kept apart."""
    absent = reading.value if isinstance(reading.value, Absent) else None
    return {
        "gpu": reading.gpu,
        "field": reading.field,
        "source": reading.source,
        "value": None if absent else reading.value,
        "absent": absent,
        "detail": reading.detail,
    }
