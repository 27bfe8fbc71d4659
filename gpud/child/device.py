"""Interface between a probe and the device it runs on: the CUDA driver, or the CPU reference.

A ``Call`` is made once and then repeated without building anything: arguments are prebuilt, so a
clock around ``real`` sees the driver and one fixed overhead, and ``null`` has that same overhead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from gpud.core.advice import Situation
from gpud.core.errors import ProbeError
from gpud.core.sample import Failure, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpud.core.sample import Condition, Device, Missing, Point, Sample

BLOCK = 256
"""Threads of a block of the one-dimensional kernels."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Device memory. ``address`` means something to the backend that gave it."""

    address: int
    size: int


@dataclass(frozen=True, slots=True)
class HostBuffer:
    """Host memory for copies: page-locked where the driver grants it, else ordinary."""

    address: int
    view: memoryview  # uint8[size]
    pinned: bool


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel by name, with the backend's own handle."""

    name: str
    handle: object


@dataclass(frozen=True, slots=True)
class Call:
    """One prebuilt operation on the stream, and a call of the same prototype that does nothing.

    ``real`` gives the driver's code, 0 for accepted, to be handed to ``Gpu.check`` outside the
    timed region. ``keep`` holds what the arguments point at.
    """

    name: str
    real: Callable[[], int]
    null: Callable[[], int]
    keep: object = None


Argument: TypeAlias = Buffer | int | float
"""A kernel argument: a pointer, a uint32 or a float32."""


class Gpu(Protocol):
    """One device with a stream of its own. Everything taken from it is given back by its owner.

    Errors: every method raises ``ProbeError`` with the function and code that refused.
    """

    @property
    def device(self) -> Device | None:
        """The GPU as the driver describes it; None for the CPU reference."""

    @property
    def sm_count(self) -> int:
        """How many blocks run at once, in multiprocessors."""

    @property
    def l2_bytes(self) -> int:
        """Size of the last cache before memory."""

    @property
    def busy_s(self) -> float:
        """Seconds of device time that timed work has used so far."""

    @property
    def vram_peak_bytes(self) -> int:
        """The most device memory that was held at once."""

    @property
    def pinned_peak_bytes(self) -> int:
        """The most page-locked memory that was held at once."""

    @property
    def release_errors(self) -> dict[str, str]:
        """What was refused while everything was given back, by function."""

    @property
    def wait(self) -> Call:
        """Wait for the first lane, as a prebuilt call."""

    def memory(self) -> tuple[int, int]:
        """Give free and total device memory in bytes."""

    def alloc(self, size: int) -> Buffer:
        """Take ``size`` bytes of device memory, contents undefined."""

    def free(self, buffer: Buffer) -> None:
        """Give memory back early; what is left is given back at the end."""

    def host(self, size: int, *, pinned: bool = True) -> HostBuffer:
        """Take host memory for copies, pinned if that is wanted and the driver grants it."""

    def upload(self, buffer: Buffer, data: bytes | bytearray | memoryview, offset: int = 0) -> None:
        """Copy bytes to the device and wait."""

    def download(self, buffer: Buffer, size: int | None = None, offset: int = 0) -> bytes:
        """Copy bytes from the device after all queued work; ``size`` None is the rest."""

    def fill(self, buffer: Buffer, word: int) -> None:
        """Set every 32-bit word of a buffer and wait."""

    def kernel(self, name: str) -> Kernel:
        """Load a kernel of ``gpud.child.kernels``."""

    def launch(
        self, kernel: Kernel, grid: tuple[int, int], block: tuple[int, int], *arguments: Argument
    ) -> Call:
        """Prebuild one launch."""

    def graph(self, call: Call, count: int) -> Call:
        """Chain ``count`` launches of a kernel and prebuild a launch of them all.

        Errors: ``ProbeError`` (unsupported) where the driver knows no graphs.
        """

    def copy_in(
        self, buffer: Buffer, host: HostBuffer, *, size: int | None = None, lane: int = 0
    ) -> Call:
        """Prebuild a copy to the device, of all of the host memory unless told how much.

        ``lane``: 0 is the stream everything else is on, 1 a second one for ``together``.
        """

    def copy_out(
        self, host: HostBuffer, buffer: Buffer, *, size: int | None = None, lane: int = 0
    ) -> Call:
        """Prebuild a copy from the device, as much as the host memory holds unless told."""

    def copy_device(self, to: Buffer, source: Buffer) -> Call:
        """Prebuild a copy of the whole source within device memory."""

    def record(self, *, first: bool) -> Call:
        """Prebuild the recording of the event before, or of the one after, a region."""

    def between(self) -> float:
        """Wait for the event after the region; seconds of device time since the one before."""

    def check(self, code: int, call: Call) -> None:
        """Raise what a non-zero code of ``call`` means."""

    def about(self, *calls: Call) -> None:
        """Note which calls come next, for an end in the middle of one; never in a timed region."""

    def timed(self, call: Call, repeats: int = 1) -> float:
        """Do ``call`` ``repeats`` times between two events; seconds of device time for all."""

    def together(self, left: Call, right: Call, repeats: int = 1) -> float:
        """Do a call of lane 0 and one of lane 1 at once; seconds of device time for all."""

    def account(self, seconds: float) -> None:
        """Add device time that was estimated, not timed, to ``busy_s``."""

    def conditions(self) -> dict[str, Condition]:
        """Give the circumstances the backend knows: library, loading mode, memory."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one probe brings home: verified figures, the modes it could not do, circumstances."""

    samples: tuple[Sample, ...]
    missing: tuple[Missing, ...]
    conditions: dict[str, Condition]
    curve: tuple[Point, ...] = ()


def inside(buffer: Buffer, offset: int, size: int) -> None:
    """Refuse to touch what is not ``buffer``'s. Errors: ``ValueError``, a mistake in a probe."""
    if offset < 0 or size < 0 or offset + size > buffer.size:
        raise ValueError(f"{size} bytes at {offset} are not inside a buffer of {buffer.size}")


def shared(buffer: Buffer, host: HostBuffer, size: int | None) -> int:
    """Give how much to copy, all of the host memory unless told; both sides must have it."""
    size = len(host.view) if size is None else size
    inside(buffer, 0, size)
    if size > len(host.view):
        raise ValueError(f"{size} bytes are not in host memory of {len(host.view)}")
    return size


def short_of(free_bytes: int, what: str) -> ProbeError:
    """Say that too little GPU memory is free for what a probe needs."""
    detail = f"{free_bytes} bytes of GPU memory are free, too few for {what}"
    return ProbeError(Failure(Reason.OUT_OF_MEMORY, detail, advice=Situation.FULL))


def plausible(taken_s: float, what: str) -> float:
    """Give what the driver says a piece of work took. Errors: ``ProbeError`` for no time at all."""
    if not taken_s > 0:  # a NaN is refused too
        detail = f"the driver says that {what} took {taken_s:g} s"
        raise ProbeError(Failure(Reason.CUDA_ERROR, detail, function="cuEventElapsedTime"))
    return taken_s


def perform(gpu: Gpu, call: Call, repeats: int = 1) -> None:
    """Do a call, and wait for the stream."""
    gpu.about(call)
    for _ in range(repeats):
        gpu.check(call.real(), call)
    gpu.about(gpu.wait)
    gpu.check(gpu.wait.real(), gpu.wait)
