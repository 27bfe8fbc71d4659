"""Device memory: the STREAM triad a = b + s*c on float4, too large for any cache."""

from __future__ import annotations

import random
import struct

from gpud.child.device import BLOCK, Buffer, Outcome, out_of_memory, verification_failed
from gpud.child.throughput import beyond_caches, chosen, elapsed, measured, parts
from gpud.core.sample import Backend, Pace, ProbeSpec, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Call
    from gpud.child.progress import Budget

SPEC = ProbeSpec(
    name="triad",
    backend=Backend.CUDA,
    pace=Pace.LARGE,
    unit=Unit.BYTES_PER_SECOND,
    modes=("triad",),
    budget_s=20.0,
    summary="device memory: STREAM triad on float4, two reads and one write counted",
    version=4,
)

ARRAYS = 3
CHUNK = 4096  # bytes: what one block adds, an element a thread
CHUNKS = 16
ELEMENT = 16  # bytes of a float4


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Stream three arrays.

    Shapes: a, b, c float4[n]; each at least 4 times the L2 cache where memory allows.
    Units: bytes per second, two reads and one write. Errors: ``ProbeError``.
    """
    most = array_bytes(gpu.l2_bytes, gpu.memory()[0])
    whole = tuple(gpu.alloc(most) for _ in range(ARRAYS))
    chance = random.Random(seed)  # noqa: S311  # test data, not a secret
    scale = chance.randrange(2, 8)
    kernel = gpu.kernel("gpud_triad")

    def stream(size: int) -> Call:
        # Blocks that begin in the order of the addresses: on an H100 5 % quicker than a few that
        # stay, stride over the arrays and drift apart.
        grid = (size // CHUNK, 1)
        return gpu.launch(kernel, grid, (BLOCK, 1), *whole, float(scale), size // ELEMENT)

    # A GPU so slow that all of them take too long streams a part.
    size = chosen(gpu, parts(most, unit=CHUNK, least=CHUNKS), stream, float, budget)
    a, b, c = (Buffer(array.address, size) for array in whole)
    for array in (b, c):
        gpu.fill(array, _bits(chance.randrange(1, 1000)))
    checked = [chance.randrange(size // CHUNK) * CHUNK for _ in range(CHUNKS)]
    for offset in checked:
        for array in (b, c):
            gpu.upload(array, _integers(chance), offset)
    call = stream(size)
    series = measured(gpu, call, float(ARRAYS * size), budget)
    gpu.fill(a, _bits(-1))
    elapsed(gpu, call)
    for offset in (*checked, 0, size - CHUNK):
        _verify(gpu, (a, b, c), offset, scale)
    return series.outcome(SPEC, {"array_bytes": size})


def array_bytes(l2_bytes: int, free_bytes: int) -> int:
    """Choose the size of one array: far beyond the cache, and at most its share of free memory.

    Beyond VRAM, WDDM spills silently and gets much slower.
    """
    allowed = int(free_bytes * SPEC.vram_share) // ARRAYS
    size = min(beyond_caches(l2_bytes), allowed) // CHUNK * CHUNK
    if size < CHUNK * CHUNKS:
        raise out_of_memory(free_bytes, "three arrays")
    return size


def _verify(gpu: Gpu, arrays: tuple[Buffer, Buffer, Buffer], offset: int, scale: int) -> None:
    """Small integers, so that FP32 is exact and equality is the test."""
    got, left, right = (
        struct.unpack(f"<{CHUNK // 4}f", gpu.download(buffer, CHUNK, offset)) for buffer in arrays
    )
    if any(a != b + scale * c for a, b, c in zip(got, left, right, strict=True)):
        raise verification_failed(f"a triad result near byte {offset} is wrong")


def _integers(chance: random.Random) -> bytes:
    count = CHUNK // 4
    return struct.pack(f"<{count}f", *(chance.randrange(1000) for _ in range(count)))


def _bits(value: float) -> int:
    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return bits
