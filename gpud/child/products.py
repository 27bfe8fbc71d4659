"""Products of square matrices: small random integers in, every sum exact, so equality is the test.

A matrix is row-major, n x n, of integers from -8 to 8: exact in FP16, and 4,096 products of two of
them add up to less than FP32's 24 bits. It consists of bands, each a stretch of one random pool
from a place of its own; the GPU copies them there, so that filling takes milliseconds.
"""

from __future__ import annotations

import random
import struct
from itertools import chain
from operator import mul
from typing import TYPE_CHECKING

from gpud.child.device import Buffer, Outcome, short_of, wrong
from gpud.child.throughput import chosen, elapsed, measured
from gpud.core.record import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Call
    from gpud.child.progress import Budget
    from gpud.core.sample import ProbeSpec

TILE = 128
"""Rows and columns of the product that one block computes."""
RESIDENT = 2
"""Blocks that a multiprocessor holds at once, by their registers."""
LIMITS = (512, 1024, 2048, 4096)
"""Of n: the largest that a GPU multiplies within a batch. Few, so that n stays what it was."""
BAND = 64
POOL = 1 << 20  # elements
CHECKED = 64
POISON = 0xFFFFFFFF  # a NaN, which equals nothing
VALUES = tuple(byte % 17 - 8 for byte in range(256))
"""What a random byte stands for."""


@record
class Method:
    """A kernel that multiplies, its block, and the ``struct`` code of what it takes.

    ``pinned``: the file of machine code that has the kernel; else it is compiled from PTX.
    """

    kernel: str
    block: tuple[int, int]
    element: str
    pinned: str | None = None

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return struct.calcsize(self.element)

    def encoded(self, raw: bytes) -> bytes:
        """Write the values of random bytes as the kernel takes them, little-endian."""
        written = [struct.pack(f"<{self.element}", value) for value in VALUES]
        content = bytearray(len(raw) * self.size)
        for place in range(self.size):
            content[place :: self.size] = raw.translate(bytes(each[place] for each in written))
        return bytes(content)


FP32 = Method("gpud_matmul_128", (16, 16), "f")
TENSOR = Method("gpud_matmul_tensor", (256, 1), "e")


@record
class Matrix:
    """Which stretch of the pool every band of a matrix is."""

    pool: bytes
    n: int
    starts: tuple[int, ...]

    def row(self, index: int) -> Iterator[int]:
        """Give the elements of one row."""
        first = self.starts[index // BAND] + index % BAND * self.n
        return map(VALUES.__getitem__, self.pool[first : first + self.n])

    def column(self, index: int) -> Iterator[int]:
        """Give the elements of one column."""
        band = BAND * self.n
        stretches = (self.pool[first + index : first + band : self.n] for first in self.starts)
        return map(VALUES.__getitem__, chain.from_iterable(stretches))


def product(  # noqa: PLR0913  # the last one has one use
    gpu: Gpu,
    budget: Budget,
    seed: int,
    spec: ProbeSpec,
    method: Method,
    *,
    share: float = 1.0,
) -> Outcome:
    """Multiply two matrices for a probe of one mode.

    Shapes: A, B n x n of the method's elements, C float32[n, n]; n a multiple of 128.
    Units: flop/s, 2 n^3 a product. ``share`` is as ``measured`` has it.
    Errors: ``ProbeError``; a wrong element publishes nothing.
    """
    most_bytes = int(gpu.memory()[0] * spec.vram_share) - POOL * method.size
    each_bytes = 2 * method.size + 4
    sizes = [n for n in sides(gpu.sm_count) if n * n * each_bytes <= most_bytes]
    if not sizes:
        raise short_of(gpu.memory()[0], "three matrices")
    area = sizes[-1] ** 2
    kernel = gpu.kernel(method.kernel, method.pinned)
    a, b, c = buffers = [gpu.alloc(area * size) for size in (method.size, method.size, 4)]

    def multiply(n: int) -> Call:
        return gpu.launch(kernel, (n // TILE, n // TILE), method.block, a, b, c, n)

    n = chosen(gpu, sizes, multiply, _flops, budget)
    chance = random.Random(seed)  # noqa: S311  # test data, not a secret
    raw = chance.randbytes(POOL)
    pool = gpu.alloc(POOL * method.size)
    gpu.upload(pool, method.encoded(raw))
    left, right = (_filled(gpu, each, pool, chance, Matrix(raw, n, ())) for each in (a, b))
    budget.check()
    call = multiply(n)
    series = measured(gpu, call, _flops(n), budget, share=share)
    gpu.fill(c, POISON)
    elapsed(gpu, call)
    places = [(0, 0), (n - 1, n - 1)]
    places += [(chance.randrange(n), chance.randrange(n)) for _ in range(CHECKED)]
    for row, column in places:
        got = struct.unpack("<f", gpu.download(c, 4, 4 * (row * n + column)))[0]
        _verify(row, column, got, sum(map(mul, left.row(row), right.column(column))))
        budget.check()
    for buffer in (*buffers, pool):
        gpu.free(buffer)
    return series.outcome(spec, {"n": n})


def sides(sm_count: int) -> list[int]:
    """Give the n to choose from, ascending: for each limit the one that keeps every SM busy best.

    Blocks come in waves of what the GPU holds at once, and the last wave is as long as the others,
    however few blocks are left for it.
    """
    wave = RESIDENT * sm_count

    def busy(tiles: int) -> tuple[float, int]:
        blocks = tiles * tiles
        return blocks / (-(-blocks // wave) * wave), tiles

    return [
        TILE * max(range(limit // TILE * 3 // 4, limit // TILE + 1), key=busy) for limit in LIMITS
    ]


def _filled(gpu: Gpu, buffer: Buffer, pool: Buffer, chance: random.Random, empty: Matrix) -> Matrix:
    """Copy a stretch of the pool into every band of a matrix; which ones they are."""
    size, band = pool.size // POOL, BAND * empty.n
    starts, copies = [], []
    for first in range(0, empty.n * empty.n, band):
        starts.append(chance.randrange(POOL - band))
        stretch = Buffer(pool.address + starts[-1] * size, band * size)
        place = Buffer(buffer.address + first * size, band * size)
        copies.append(gpu.copy_device(place, stretch))
    queued = (gpu.first, *copies, gpu.last)
    gpu.about(*queued)
    for call in queued:
        gpu.check(call.real(), call)
    gpu.account(gpu.between())
    return Matrix(empty.pool, empty.n, tuple(starts))


def _flops(n: int) -> float:
    return 2.0 * n**3


def _verify(row: int, column: int, got: float, expected: int) -> None:
    if got != expected:
        raise wrong(f"element ({row}, {column}) of the product is {got:.9g} and not {expected}")
