"""Device memory copied onto itself by the driver: what a framework's clone of a tensor gets."""

from __future__ import annotations

import random

from gpud.child.device import Buffer, Outcome, out_of_memory, verification_failed
from gpud.child.throughput import beyond_caches, chosen, elapsed, measured, parts
from gpud.core.sample import Backend, Pace, ProbeSpec, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Call
    from gpud.child.progress import Budget

SPEC = ProbeSpec(
    name="device_copy",
    backend=Backend.CUDA,
    pace=Pace.LARGE,
    unit=Unit.BYTES_PER_SECOND,
    modes=("device_copy",),
    budget_s=20.0,
    summary="copies within device memory, the read and the write counted",
    every=4,
)

PAGE = 1 << 16
PAGES = 16


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Copy one buffer onto another.

    Shapes: two uint8[n]; each at least 4 times the L2 cache where memory allows.
    Units: bytes per second, the read and the write counted. Errors: ``ProbeError``.
    """
    most = buffer_bytes(gpu.l2_bytes, gpu.memory()[0])
    whole, clone = gpu.alloc(most), gpu.alloc(most)

    def copying(size: int) -> Call:
        return gpu.copy_device(Buffer(clone.address, size), Buffer(whole.address, size))

    # A GPU so slow that all of it takes too long copies a part.
    size = chosen(gpu, parts(most, unit=PAGE, least=PAGES), copying, float, budget)
    source, copied = Buffer(whole.address, size), Buffer(clone.address, size)
    chance = random.Random(seed)  # noqa: S311  # test data, not a secret
    word = chance.randrange(1, 1 << 32)
    gpu.fill(source, word)
    pages = {chance.randrange(size // PAGE) * PAGE: chance.randbytes(PAGE) for _ in range(PAGES)}
    for place, content in pages.items():
        gpu.upload(source, content, place)
    series = measured(gpu, copying(size), 2.0 * size, budget)
    gpu.fill(copied, word ^ 0xFFFFFFFF)
    elapsed(gpu, copying(size))
    filled = word.to_bytes(4, "little") * (PAGE // 4)
    for place in {*pages, 0, size // 2 // PAGE * PAGE, size - PAGE}:
        if gpu.download(copied, PAGE, place) != pages.get(place, filled):
            raise verification_failed(f"bytes near {place} were not copied")
    return series.outcome(SPEC, {"buffer_bytes": size})


def buffer_bytes(l2_bytes: int, free_bytes: int) -> int:
    """Choose the size of one buffer: far beyond the cache, and its share of free memory at most."""
    allowed = int(free_bytes * SPEC.vram_share) // 2
    size = min(beyond_caches(l2_bytes), allowed) // PAGE * PAGE
    if size < PAGE * PAGES:
        raise out_of_memory(free_bytes, "two buffers")
    return size
