"""Copies between host and device: page-locked memory, both ways at once, and ordinary memory.

Page-locked memory is scarce under WSL2. Where none is granted its modes are missing with that
reason; a figure of ordinary memory is never published under their names.
"""

from __future__ import annotations

import random
import time

from gpud.child.device import Buffer, HostBuffer, Outcome, out_of_memory, verification_failed
from gpud.child.summary import summarised
from gpud.child.throughput import chosen, elapsed, measured
from gpud.core.record import Record
from gpud.core.sample import Backend, Missing, Pace, ProbeSpec, Reason, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Call
    from gpud.child.progress import Budget
    from gpud.child.throughput import Timed, TimedBatches

INWARD, OUTWARD, BOTH = "host_to_device", "device_to_host", "both"
PINNED = (INWARD, OUTWARD, BOTH)
PAGEABLE = tuple(f"pageable_{mode}" for mode in (INWARD, OUTWARD))

SPEC = ProbeSpec(
    name="copy",
    backend=Backend.CUDA,
    pace=Pace.LARGE,
    unit=Unit.BYTES_PER_SECOND,
    modes=(*PINNED, *PAGEABLE),
    budget_s=20.0,
    summary="copies over the bus, page-locked (64 MiB) and ordinary memory (16 MiB)",
    version=2,
    every=4,
)

MIB = 1 << 20
LARGEST, SMALLEST_PINNED = 64 * MIB, 16 * MIB
LARGEST_PAGEABLE = 16 * MIB
"""The driver stages ordinary memory through its own; a longer copy is no different."""
PAGE = 1 << 16


class BufferPair(Record):
    """Host and device memory of one size, and how to copy between their beginnings."""

    gpu: Gpu
    host: HostBuffer
    buffer: Buffer

    def into(self, size: int) -> Call:
        """Prebuild a copy to the device."""
        return self.gpu.copy_in(self.buffer, self.host, size=size)

    def out(self, size: int, lane: int = 0) -> Call:
        """Prebuild a copy from the device."""
        return self.gpu.copy_out(self.host, self.buffer, size=size, lane=lane)

    def part(self, first: int, size: int) -> BufferPair:
        """Give the same memory from ``first`` on."""
        address, view = self.host.address + first, self.host.view[first : first + size]
        host = HostBuffer(address, view, self.host.pinned)
        return BufferPair(self.gpu, host, Buffer(self.buffer.address + first, size))


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Copy one buffer in, back out, and half of it each way at once.

    Shapes: uint8[64 MiB] page-locked, uint8[16 MiB] ordinary, less where memory is short or the
    bus is slow. Units: bytes per second, of both directions together where both are used.
    Errors: ``ProbeError``; a byte that does not come back publishes nothing.
    """
    free_bytes = gpu.memory()[0]
    size = min(LARGEST, int(free_bytes * SPEC.vram_share) // PAGE * PAGE)
    if size < 2 * PAGE:
        raise out_of_memory(free_bytes, "a copy")
    pinned = _page_locked(gpu, size)
    buffer = gpu.alloc(size if pinned is not None else min(size, LARGEST_PAGEABLE))
    page = random.Random(seed).randbytes(PAGE)  # noqa: S311  # test data, not a secret
    # Every mode may use the same part of the GPU time left, and so may the verification.
    shares = len(SPEC.modes) + 1
    series: dict[str, TimedBatches] = {}
    sizes: dict[str, int] = {}
    for host in (pinned, gpu.host(min(size, LARGEST_PAGEABLE), pinned=False)):
        if host is None:
            continue
        pair = BufferPair(gpu, host, buffer)
        _write(host, page)  # memory that nobody wrote is one page of zeros, and read from a cache
        most = chosen(gpu, _sizes(len(host.view)), pair.into, float, budget)
        pair = pair.part(0, most)
        modes = PINNED if host.pinned else PAGEABLE
        for mode in modes:
            series[mode] = _measured(pair, mode, budget, 1 / (shares - len(series)))
        _verify(pair, page)
        if host.pinned:
            _verify_both(pair, page)
        sizes["copy_bytes" if host.pinned else "pageable_bytes"] = most
    return Outcome(
        samples=tuple(
            summarised(measured_series.rates, mode=mode, unit=SPEC.unit)
            for mode, measured_series in series.items()
        ),
        missing=tuple(
            Missing(mode, Reason.OUT_OF_MEMORY, f"pinned memory refused: {SMALLEST_PINNED} bytes")
            for mode in PINNED
            if pinned is None
        ),
        conditions={
            **sizes,
            "pinned": pinned is not None,
            # The bus is awake. Both ways at once, and copies of ordinary memory, vary with what
            # else uses the host's memory: on some machines their batches never agree.
            "settled": all(series[mode].settled for mode in (INWARD, OUTWARD) if mode in series),
            "runs": min(len(measured_series.rates) for measured_series in series.values()),
            "batch": min(measured_series.repeats for measured_series in series.values()),
        },
    )


def _page_locked(gpu: Gpu, size: int) -> HostBuffer | None:
    """Take page-locked memory, by halves where the driver refuses; None where it has too little."""
    least = min(SMALLEST_PINNED, size)
    while size >= least:
        host = gpu.host(size)
        if host.pinned:
            return host
        size = size // 2 // PAGE * PAGE
    return None


def _sizes(most: int) -> list[int]:
    return sorted({max(most // part // PAGE, 2) * PAGE for part in (64, 32, 16, 8, 4, 2, 1)})


def _measured(pair: BufferPair, mode: str, budget: Budget, share: float) -> TimedBatches:
    gpu, size = pair.gpu, pair.buffer.size
    if mode == BOTH:
        left, right = _halves(pair)
        call, other = left.into(left.buffer.size), right.out(right.buffer.size, lane=1)
        moved = float(left.buffer.size + right.buffer.size)
        together: Timed = lambda repeats: gpu.together(call, other, repeats)  # noqa: E731
        return measured(gpu, call, moved, budget, share=share, timed=together)
    call = pair.into(size) if mode.endswith(INWARD) else pair.out(size)
    timed = None if pair.host.pinned else _by_the_wall(gpu, call)
    return measured(gpu, call, float(size), budget, share=share, timed=timed)


def _by_the_wall(gpu: Gpu, call: Call) -> Timed:
    """Time copies of ordinary memory, in which the host has a part that no event need see.

    The driver copies the first piece into memory of its own before anything is submitted; where it
    gathers submissions, the event before the copy waits with them and starts late. A guest's clock
    may lose time in its turn, so it is not believed where it says less than the events.
    """

    def timed(repeats: int) -> float:
        begun = time.perf_counter()
        on_gpu_s = gpu.timed(call, repeats)
        return max(time.perf_counter() - begun, on_gpu_s)

    return timed


def _halves(pair: BufferPair) -> tuple[BufferPair, BufferPair]:
    half = pair.buffer.size // 2 // PAGE * PAGE
    return pair.part(0, half), pair.part(half, half)


def _write(host: HostBuffer, page: bytes) -> None:
    for place in range(0, len(host.view), PAGE):
        host.view[place : place + PAGE] = _page(place, page)


def _page(place: int, page: bytes) -> bytes:
    return place.to_bytes(8, "little") + page[8:]  # no two pages alike


def _compare(host: HostBuffer, page: bytes) -> None:
    for place in range(0, len(host.view), PAGE):
        # As bytes: a memoryview compares element by element, which takes 30 times as long.
        if host.view[place : place + PAGE].tobytes() != _page(place, page):
            raise verification_failed(f"bytes near {place} did not come back")


def _verify(pair: BufferPair, page: bytes) -> None:
    """Go in and out once more, with both sides cleared in between, and compare every byte.

    The pattern is written anew: a copy out that spoils a byte has spoilt it here already, and the
    next one may put it right again.
    """
    gpu, host, size = pair.gpu, pair.host, pair.buffer.size
    _write(host, page)
    gpu.fill(pair.buffer, 0)
    elapsed(gpu, pair.into(size))
    host.view[:] = bytes(size)
    elapsed(gpu, pair.out(size))
    _compare(host, page)


def _verify_both(pair: BufferPair, page: bytes) -> None:
    """Go in with one half while the other comes out, after ``_verify`` has left its pattern."""
    gpu, (left, right) = pair.gpu, _halves(pair)
    other = bytes(byte ^ 0xFF for byte in page)
    size = left.buffer.size
    _write(left.host, other)
    _write(right.host, other)
    elapsed(gpu, right.into(size))
    right.host.view[:] = bytes(size)
    gpu.together(left.into(size), right.out(size, lane=1))
    _compare(right.host, other)
    left.host.view[:] = bytes(size)
    elapsed(gpu, left.out(size))
    _compare(left.host, other)
