"""Root's status document: one file, written whole and renamed into place.

Root listens to nobody; this document is the only thing that leaves it. The agent folds it into the
snapshot and treats a report older than ``STALE_AFTER_S`` as silence.
"""

from enum import StrEnum
from typing import Final, Self

import msgspec
from msgspec import structs

from gpud.core.sample import SCHEMA_VERSION, Failure, Reason

STALE_AFTER_S = 15.0
"""Root writes on every change and at least every 5 s; three missed beats mean it is gone."""

FIX: Final = "; fix: "
"""Between reason and fix in the agent's last line; root's report has them apart."""

RECENT_S: Final = 600.0
"""How long trouble in the kernel's log is news: gpud asks the GPU every minute, so what lasts is
written again.
"""


class Owner(StrEnum):
    """Whose the dockerd is that answers on the socket, or that would be the next to."""

    GPUD = "gpud"
    SYSTEMD = "systemd"  # one of its services, or its socket unit
    DOCKER_DESKTOP = "docker_desktop"
    OTHER_USER = "other_user"  # not root's and not ours: rootless
    OTHER_DISTRIBUTION = "other_distribution"  # of the same WSL2 virtual machine
    OTHER = "other"  # root's, started by something else
    NONE = "none"


class ProcessRef(msgspec.Struct, frozen=True):
    """A process that cannot be mistaken for a later one: pids are recycled, start times are not.

    Units: ``start_ticks`` is field 22 of ``/proc/PID/stat``, in clock ticks since boot.
    """

    pid: int
    start_ticks: int


class DockerdReport(msgspec.Struct, frozen=True):
    """dockerd as root sees it. ``up`` is None while nobody looks (policy ``off``)."""

    state: str  # core.dockerd.State
    policy: str
    up: bool | None
    owner: str = Owner.NONE  # an ``Owner``
    process: ProcessRef | None = None
    reason: str | None = None  # a slug when not well
    detail: str | None = None  # the evidence: dockerd's own words
    fix: str | None = None
    version: str | None = None
    ping_s: float | None = None
    last_start_s: float | None = None  # fork to first good ping
    restarts: dict[str, int] = {}  # by reason, since this supervisor began
    live_restore: bool | None = None
    containers_running: int | None = None  # as dockerd counted them a moment ago
    suspect_sockets: int = 0  # listeners by its socket's name, out of sight, that are not root's


class AgentReport(msgspec.Struct, frozen=True):
    """The agent process as its parent sees it."""

    state: str  # "running", "backoff", "stopped"
    process: ProcessRef | None = None
    user: str | None = None
    restarts: int = 0
    detail: str | None = None  # how the last one ended
    fix: str | None = None


class ToolkitState(StrEnum):
    """By which way Docker can hand GPUs to a container."""

    RUNTIME = "runtime"  # `--gpus`, through NVIDIA's runtime hook
    CDI = "cdi"  # `--device nvidia.com/gpu=all`
    BOTH = "both"
    NONE = "none"  # not installed
    BROKEN = "broken"  # there, and cannot work as it is
    UNKNOWN = "unknown"  # somebody else's files decide: Docker Desktop's


class ToolkitReport(msgspec.Struct, frozen=True):
    """The NVIDIA Container Toolkit as dockerd and the files tell of it."""

    state: str  # a ``ToolkitState``
    reason: str | None = None  # a slug when it is neither way
    detail: str | None = None
    fix: str | None = None


class ContainerFigure(msgspec.Struct, frozen=True):
    """What NVIDIA's n-body sample printed, parsed strictly and checked against itself."""

    flops_per_second: float
    interactions_per_second: float
    bodies: int
    iterations: int
    gpu_index: int  # PCI bus order, as everywhere in gpud
    gpu_name: str
    compute_capability: str


class ContainerFailure(msgspec.Struct, frozen=True):
    """A failed run of a container, in terms a person can act on."""

    reason: Reason
    detail: str
    function: str | None = None
    code: int | None = None
    advice: str | None = None

    @classmethod
    def of(cls, failure: Failure | None) -> Self | None:
        """Return the failure of a probe as root reports it."""
        return None if failure is None else msgspec.convert(failure, cls, from_attributes=True)


class ContainerRun(msgspec.Struct, frozen=True):
    """One run of the sample in a container: either a figure or a failure.

    Units: ``finished_s`` is Unix time, ``finished_mono_s`` CLOCK_MONOTONIC of this boot.
    """

    finished_s: float
    finished_mono_s: float
    duration_s: float
    figure: ContainerFigure | None = None
    failure: ContainerFailure | None = None


class ProbeStage(StrEnum):
    """What root does with the container probe right now."""

    OFF = "off"  # switched off, or nobody looks at dockerd
    WAITING = "waiting"
    ANNOUNCED = "announced"  # soon: who else uses the GPU may step aside
    RUNNING = "running"


class ContainersReport(msgspec.Struct, frozen=True):
    """GPU containers as root knows them. Counts are those since this supervisor began."""

    stage: str  # a ``ProbeStage``
    image: str
    image_present: bool | None = None  # None until dockerd was asked
    toolkit: ToolkitReport | None = None
    run: ContainerRun | None = None  # the last one
    last_success_s: float | None = None
    gpu_index: int | None = None  # of the last success
    runs: int = 0
    failures: dict[str, int] = {}  # by sample.Reason
    skips: dict[str, int] = {}  # by sample.Skip


class DxgKind(StrEnum):
    """What a line of dxgkrnl is, as a metric's label."""

    NOISE = "noise"
    MESSAGE_LOST = "message_lost"
    NOT_RESIDENT = "not_resident"
    FIELD_SPANNING = "field_spanning"  # a warning about the source text: the copy is made
    UNKNOWN = "unknown"


class KernelTrouble(msgspec.Struct, frozen=True):
    """The last line of the kernel's log that tells of real trouble with the GPU's bus.

    Units: ``at_s`` is Unix time, None where the machine may have slept since.
    """

    reason: str  # a ``DxgKind``
    words: str  # the kernel's own, escaped
    at_s: float | None


class FaultTrace(msgspec.Struct, frozen=True):
    """Lines and frames of the kernel's log that match an entry of the catalogue of known faults.

    Units: ``at_s`` is Unix time, None where the machine may have slept since.
    """

    count: int
    words: str  # the kernel's own of the last one, escaped
    at_s: float | None  # of the last one


class KernelLogReport(msgspec.Struct, frozen=True):
    """What dxgkrnl wrote to the kernel's log since this boot; counts of lines, not of faults.

    ``unreadable`` and ``counts`` exclude each other: what was not read was not counted. ``traces``
    are also those that were read before.
    """

    unreadable: str | None = None  # why nothing can be said: absent, refused, failed, unread
    detail: str | None = None
    counts: dict[str, int] = {}  # by ``DxgKind``
    overruns: int = 0  # lines were overwritten before they were read: counts are too low
    last: KernelTrouble | None = None
    recent: dict[str, int] = {}  # troubles of the last while, by reason
    traces: dict[str, FaultTrace] = {}  # by id of the catalogue's entry


class RootReport(msgspec.Struct, frozen=True):
    """The whole of ``root.json``.

    Units: ``written_s`` and ``started_s`` are Unix times; ``beat_s`` is CLOCK_BOOTTIME-free
    monotonic time of this boot, comparable across processes of one boot and immune to clock jumps.
    """

    gpud_version: str
    process: ProcessRef
    privileged: bool  # False in a development run without root: nothing is managed
    boot_id: str
    started_s: float
    written_s: float
    beat_s: float
    dockerd: DockerdReport
    agent: AgentReport
    containers: ContainersReport | None = None
    kernel_log: KernelLogReport | None = None
    schema_version: int = SCHEMA_VERSION

    def equals_but_times(self, other: "RootReport") -> bool:
        """Return whether ``other`` differs in its moment and the time of a ping alone."""
        dockerd = structs.replace(self.dockerd, ping_s=other.dockerd.ping_s)
        written_s, beat_s = other.written_s, other.beat_s
        same = structs.replace(self, dockerd=dockerd, written_s=written_s, beat_s=beat_s)
        return same == other
