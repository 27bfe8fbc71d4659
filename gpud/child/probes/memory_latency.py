"""Memory latency: a chain of loads, each with the address of the next, in DRAM and in the L2 cache.

Throughput hides latency behind thousands of threads; one thread that waits for each load does not.
"""

from __future__ import annotations

from gpud.child.device import BLOCK, Buffer, Outcome, out_of_memory, verification_failed
from gpud.child.latency import gpu_time, occupying
from gpud.child.summary import summarised
from gpud.child.warmup import warm
from gpud.core.record import Record
from gpud.core.sample import Backend, Missing, Pace, ProbeSpec, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Call
    from gpud.child.progress import Budget

DRAM, L2 = "dram", "l2"

SPEC = ProbeSpec(
    name="memory_latency",
    backend=Backend.CUDA,
    pace=Pace.SMALL,
    unit=Unit.SECONDS,
    modes=(DRAM, L2),
    budget_s=10.0,
    summary="a load of GPU memory whose address the load before it gave: from DRAM, from the L2",
    gpu_budget_s=0.1,
    every=15,
)

LINE = 128
MIB = 1 << 20
LEAST_BYTES, MOST_L2_BYTES = 16 * MIB, MIB
LOADS, LAUNCHES = 1024, 15
FACTOR = 0x19660D
"""Of a generator that goes through all of a power of two with any odd step: 4 divides it less 1."""


class Ring(Record):
    """``n`` lines of 128 bytes, each with the address of the next one. ``place`` is in one."""

    memory: Buffer
    place: Buffer
    n: int
    step: int
    chase: Call

    def line(self, start: int, links: int) -> int:
        """Return the line that so many links lead to."""
        for _ in range(links):
            start = (start * FACTOR + self.step) % self.n
        return start


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Follow a ring that is too large for the cache, and one that fits into it.

    Shapes: 15 launches of 1,024 loads each. Units: seconds of GPU time per load.
    A ring for which too little memory is free is ``missing``. Errors: ``ProbeError``; a chain that
    ends in the wrong place publishes nothing.
    """
    sizes = {DRAM: _outgrowing(gpu.l2_bytes), L2: _fitting(gpu.l2_bytes)}
    free_bytes = gpu.memory()[0]
    missing: tuple[Missing, ...] = ()
    if sizes[DRAM] + 2 * gpu.l2_bytes > free_bytes * SPEC.vram_share:
        short = out_of_memory(free_bytes, "a ring that the cache does not hold").failure
        missing = (Missing(DRAM, short.reason, short.detail),)
        del sizes[DRAM]
    if sizes[L2] > free_bytes * SPEC.vram_share:
        raise out_of_memory(free_bytes, "a ring that the cache holds")
    empty = gpu.launch(gpu.kernel("gpud_empty"), (1, 1), (1, 1))  # as long to queue as a chase
    warmth = warm(gpu, budget)
    samples = []
    conditions = warmth.conditions
    for mode, size in sizes.items():
        ring = _ring(gpu, size, seed)
        if mode == DRAM:
            _evict(gpu)
        ahead = occupying(gpu, (gpu.first, empty, gpu.last), budget)
        start = _place(gpu, ring)
        taken_s = gpu_time(gpu, (ring.chase,), ahead, LAUNCHES)
        ahead.close()
        if _place(gpu, ring) != ring.line(start, LOADS * LAUNCHES):
            raise verification_failed(f"{mode}: the loads did not end where their addresses lead")
        budget.check()
        per_load_s = [each / LOADS for each in taken_s]
        samples.append(summarised(per_load_s, mode=mode, unit=SPEC.unit))
        conditions[f"{mode}_bytes"] = size
        gpu.free(ring.memory)
    return Outcome(tuple(samples), missing, conditions)


def _outgrowing(cache_bytes: int) -> int:
    """Return the smallest power of two that is four times the cache, and 16 MiB at least."""
    return 1 << (max(4 * cache_bytes, LEAST_BYTES) - 1).bit_length()


def _fitting(cache_bytes: int) -> int:
    """Return the largest power of two that a quarter of the cache holds, a MiB at most."""
    return 1 << (min(max(cache_bytes // 4, LINE), MOST_L2_BYTES).bit_length() - 1)


def _ring(gpu: Gpu, size: int, seed: int) -> Ring:
    """Link a ring, and put the place at its beginning."""
    memory, place, n = gpu.alloc(size), gpu.alloc(8), size // LINE
    step = 2 * (seed % n) + 1
    shape = (16 * gpu.sm_count, 1), (BLOCK, 1)
    gpu.timed(gpu.launch(gpu.kernel("gpud_ring"), *shape, memory, n, FACTOR, step))
    gpu.upload(place, memory.address.to_bytes(8, "little"))
    chase = gpu.launch(gpu.kernel("gpud_chase"), (1, 1), (1, 1), place, LOADS)
    return Ring(memory, place, n, step, chase)


def _evict(gpu: Gpu) -> None:
    """Fill the cache with other memory: the ring's last lines are in it as they were written."""
    other = gpu.alloc(max(2 * gpu.l2_bytes, LINE))
    gpu.fill(other, 0)
    gpu.free(other)


def _place(gpu: Gpu, ring: Ring) -> int:
    """Read which line the chain has come to."""
    address = int.from_bytes(gpu.download(ring.place), "little")
    return (address - ring.memory.address) // LINE
