"""Prebuilt calls, memory, and the outcome of a run, which probes and devices share.

A ``Call`` is made once and then repeated without building anything: arguments are prebuilt, so a
clock around ``real`` sees the driver and one fixed overhead, and ``null`` has that same overhead.
"""

from __future__ import annotations

from gpud.core.advice import Situation
from gpud.core.errors import ProbeError
from gpud.core.record import Record
from gpud.core.sample import Failure, Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from gpud.core.sample import Condition, Missing, Point, Sample

BLOCK = 256
"""Threads of a block of the one-dimensional kernels."""


class Buffer(Record):
    """Device memory."""

    address: int
    size: int


class HostBuffer(Record):
    """Host memory for copies: page-locked where the driver grants it, else ordinary."""

    address: int
    view: memoryview  # uint8[size]
    pinned: bool


class Kernel(Record):
    """A kernel by name, with the driver's handles of it and of its module."""

    name: str
    handle: object
    module: object = None


class Call(Record):
    """One prebuilt operation on the stream, and a call of the same prototype that does nothing.

    ``real`` gives the driver's code, 0 for accepted, to be handed to ``Gpu.check`` outside the
    timed region. ``keep`` holds what the arguments point at; ``gpus`` is how many it keeps busy.
    """

    name: str
    real: Callable[[], int]
    null: Callable[[], int]
    keep: object = None
    kernel: Kernel | None = None  # of a launch
    gpus: int = 1


Argument: TypeAlias = Buffer | int | float
"""A kernel argument: a pointer, a uint32 or a float32."""


class Outcome(Record):
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


def verification_failed(detail: str) -> ProbeError:
    """Return the error of a run whose results are not what they must be."""
    return ProbeError(Failure(Reason.VERIFICATION_FAILED, detail))


def out_of_memory(free_bytes: int, what: str) -> ProbeError:
    """Say that too little GPU memory is free for what a probe needs."""
    detail = f"{free_bytes} bytes of GPU memory are free, too few for {what}"
    return ProbeError(Failure(Reason.OUT_OF_MEMORY, detail, advice=Situation.FULL))


def vram_short(free_bytes: float, least_bytes: float) -> ProbeError:
    """Say that a run would leave too little GPU memory to others: under WSL2 also to Windows."""
    words = "bytes of GPU memory would be free, and"
    detail = f"{free_bytes:.0f} {words} {least_bytes:.0f} have to stay free"
    return ProbeError(Failure(Reason.VRAM_SHORT, detail, advice=Situation.FULL))


def plausible(taken_s: float, what: str) -> float:
    """Give what the driver says a piece of work took. Errors: ``ProbeError`` for no time at all."""
    if not taken_s > 0:  # a NaN is refused too
        detail = f"the driver says that {what} took {taken_s:g} s"
        raise ProbeError(Failure(Reason.CUDA_ERROR, detail, function="cuEventElapsedTime"))
    return taken_s
