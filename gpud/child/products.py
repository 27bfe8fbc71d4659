"""Products of square matrices: small random integers in, every sum exact, so equality is the test.

A matrix is n x n, of integers from -8 to 8: exact in every type, and 4,096 products of two of them
add up to less than FP32's 24 bits. It consists of bands, each a stretch of one random pool
from a place of its own; the GPU copies them there, so that filling takes milliseconds.

Every element is checked on the GPU by random sums, Freivalds' method. A row of random weights times
the product is the same row times A, and that times B: three sums of columns, in whole numbers of 64
bits that wrap round. A column with a wrong element agrees by chance only, once in 2^33 times at
most: the weights are new in every run, and a difference of two elements is no multiple of 2^32.
"""

from __future__ import annotations

import random
import struct
from itertools import chain
from operator import mul

from gpud.child.device import Buffer, out_of_memory, verification_failed
from gpud.child.throughput import chosen, elapsed, measured
from gpud.core.record import Record
from gpud.core.sample import Missing, Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Call
    from gpud.child.progress import Budget
    from gpud.child.throughput import TimedBatches
    from gpud.core.sample import Condition

LIMITS = (512, 1024, 2048, 4096)
"""Of n: the largest that a GPU multiplies within a batch. Few, so that n stays what it was."""
BAND = 64
POOL = 1 << 19  # elements
CHECKED = 8
POISON = 0x7FFFFFFF  # NaN in FP32 and FP64, and no sum in whole numbers
VALUES = tuple(byte % 17 - 8 for byte in range(256))
"""What a random byte stands for."""
PART = 64
"""Rows and columns that one block adds up; n is a multiple of it."""
WEIGHT = 8  # bytes
BYTES_A_ROW = 4 * WEIGHT
"""What a check takes of GPU memory for each row: the weights and three sums."""


class NumberType(Record):
    """A type of matrix elements: its name in kernels, and its ``struct`` code, little-endian.

    ``dropped``: so many of the first bytes it lacks; bf16 is the upper half of a float.
    """

    name: str
    code: str
    dropped: int = 0

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return struct.calcsize(self.code) - self.dropped

    def encoded(self, raw: bytes) -> bytes:
        """Write the values of random bytes as a kernel takes them."""
        written = [struct.pack(f"<{self.code}", value)[self.dropped :] for value in VALUES]
        content = bytearray(len(raw) * self.size)
        for place, written_bytes in enumerate(map(bytes, zip(*written, strict=True))):
            if any(written_bytes):  # whole numbers leave most bytes of a fraction at zero
                content[place :: self.size] = raw.translate(written_bytes)
        return bytes(content)

    def decoded(self, content: bytes) -> float:
        """Read one element."""
        value: float = struct.unpack(f"<{self.code}", bytes(self.dropped) + content)[0]
        return value


FP16, FP32, FP64 = NumberType("fp16", "e"), NumberType("fp32", "f"), NumberType("fp64", "d")
BF16, INT8, INT32 = NumberType("bf16", "f", 2), NumberType("int8", "b"), NumberType("int32", "i")


class Method(Record):
    """A kernel that multiplies: its block, types of operands and result, and what n suits it.

    ``tile``: rows and columns of the product that a block computes. ``resident``: blocks that a
    multiprocessor holds at once, by their registers; 1 where one keeps it busy. ``column_major``:
    how it takes B. ``pinned``: the file of machine code that has the kernel; else it is compiled
    from PTX.
    """

    kernel: str
    block: tuple[int, int]
    operand: NumberType
    result: NumberType
    tile: int = 128
    resident: int = 2
    limits: tuple[int, ...] = LIMITS
    column_major: bool = False
    pinned: str | None = None


OLDEST = (8, 0)
"""Ampere, for tensor cores: mma with 32 bytes of a row, and copies past the registers."""
OTHER_INSTRUCTIONS = (9, 0), (12, 0)
"""From and up to: Hopper and data centres' Blackwell, whose peak needs wgmma and tcgen05."""
NO_WGMMA = (
    "tensor kernels use mma and not wgmma or tcgen05, by which alone this GPU reaches its peak: "
    "the share of the peak is known to be lower"
)
PLAIN = Method("gpud_matmul_128", (16, 16), FP32, FP32)
TENSOR = Method("gpud_matmul_tensor", (256, 1), FP16, FP32)


class Matrix(Record):
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
    gpu: Gpu, budget: Budget, seed: int, method: Method, *, vram_share: float, share: float = 1.0
) -> tuple[TimedBatches, int]:
    """Multiply two matrices in batches, and check the whole product; the batches, and n.

    Shapes: A, B n x n of the method's operands, C n x n of its results; n a multiple of its tile.
    Units: operations per second, 2 n^3 a product. ``share`` is as ``measured`` has it.
    Errors: ``ProbeError``; a wrong element publishes nothing.
    """
    operand, result = method.operand, method.result
    most_bytes = int(gpu.memory()[0] * vram_share) - POOL * operand.size
    each_bytes = 2 * operand.size + result.size
    sizes = [
        n for n in sides(gpu.sm_count, method) if n * n * each_bytes + BYTES_A_ROW * n <= most_bytes
    ]
    if not sizes:
        raise out_of_memory(gpu.memory()[0], "three matrices")
    area = sizes[-1] ** 2
    kernel = gpu.kernel(method.kernel, method.pinned)
    a, b, c = buffers = [gpu.alloc(area * each.size) for each in (operand, operand, result)]

    def multiply(n: int) -> Call:
        return gpu.launch(kernel, (n // method.tile, n // method.tile), method.block, a, b, c, n)

    n = chosen(gpu, sizes, multiply, _flops, budget)
    chance = random.Random(seed)  # noqa: S311  # test data, not a secret
    raw = chance.randbytes(POOL)
    pool = gpu.alloc(POOL * operand.size)
    gpu.upload(pool, operand.encoded(raw))
    left, right = (_filled(gpu, each, pool, chance, Matrix(raw, n, ())) for each in (a, b))
    budget.check()
    call = multiply(n)
    series = measured(gpu, call, _flops(n), budget, share=share)
    gpu.fill(c, POISON)
    elapsed(gpu, call)
    stored_b = Stored(b, operand.name, n, 1)
    _verify_whole(
        gpu,
        Stored(a, operand.name, n, 1),
        stored_b.transposed() if method.column_major else stored_b,
        Stored(c, result.name, n, 1),
        chance,
    )
    places = [(0, 0), (n - 1, n - 1)]
    places += [(chance.randrange(n), chance.randrange(n)) for _ in range(CHECKED)]
    column_of = right.row if method.column_major else right.column
    for row, column in places:
        got = result.decoded(gpu.download(c, result.size, result.size * (row * n + column)))
        _verify(row, column, got, sum(map(mul, left.row(row), column_of(column))))
        budget.check()
    for buffer in (*buffers, pool):
        gpu.free(buffer)
    return series, n


def lacking(mode: str, who: str, capability: str) -> Missing | None:
    """Say that a GPU of this compute capability, "7.5", has no such tensor cores; None: it has."""
    if _version(capability) >= OLDEST:
        return None
    detail = f"compute capability {capability}; {who} needs 8.0"
    return Missing(mode, Reason.UNSUPPORTED, detail)


def shares(capability: str) -> dict[str, Condition]:
    """Say in ``note`` where these instructions are known to reach less of the peak than others."""
    first, end = OTHER_INSTRUCTIONS
    return {"note": NO_WGMMA} if first <= _version(capability) < end else {}


def sides(sm_count: int, method: Method) -> list[int]:
    """Give the n to choose from, ascending: for each limit the one that keeps every SM busy best.

    Blocks come in waves of what the GPU holds at once, and the last wave is as long as the others,
    however few blocks are left for it.
    """
    tile, wave = method.tile, method.resident * sm_count

    def busy(tiles: int) -> tuple[float, int]:
        blocks = tiles * tiles
        return blocks / (-(-blocks // wave) * wave), tiles

    return [
        tile * max(range(limit // tile * 3 // 4, limit // tile + 1), key=busy)
        for limit in method.limits
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
    gpu.busy_s += gpu.between()
    return Matrix(empty.pool, empty.n, tuple(starts))


def _version(capability: str) -> tuple[int, ...]:
    return tuple(map(int, capability.split(".")))


def _flops(n: int) -> float:
    return 2.0 * n**3


def _verify(row: int, column: int, got: float, expected: int) -> None:
    if got != expected:
        raise verification_failed(
            f"element ({row}, {column}) of the product is {got:.9g} and not {expected}"
        )


class Stored(Record):
    """A matrix in GPU memory: its type, and elements from one row, or column, to the next."""

    buffer: Buffer
    type: str
    row: int
    column: int

    def transposed(self) -> Stored:
        """Give the matrix whose rows are the columns of this one."""
        return Stored(self.buffer, self.type, self.column, self.row)


def _verify_whole(gpu: Gpu, a: Stored, b: Stored, c: Stored, chance: random.Random) -> None:
    """Hold C against A * B, all n x n; one of them at least is row-major.

    Errors: ``ProbeError`` (verification_failed) that names the rows and columns that are wrong.
    """
    n = max(c.row, c.column)
    weights = gpu.alloc(n * WEIGHT)
    gpu.upload(weights, chance.randbytes(n * WEIGHT))
    columns = _wrong_columns(gpu, (a, b, c), weights, n)
    if columns:
        # The rows of a product are the columns of the transposed one.
        turned = (b.transposed(), a.transposed(), c.transposed())
        rows = _wrong_columns(gpu, turned, weights, n)
        detail = f"rows {_stretch(rows)}, columns {_stretch(columns)} of the product are wrong"
        raise verification_failed(detail)
    gpu.free(weights)


def _wrong_columns(
    gpu: Gpu, matrices: tuple[Stored, Stored, Stored], weights: Buffer, n: int
) -> list[int]:
    """Give the columns of the third matrix that are not those of the product of the others."""
    a, b, c = matrices
    through_a = _sums(gpu, a, weights, n)
    expected, got = _sums(gpu, b, through_a, n), _sums(gpu, c, weights, n)
    left, right = (struct.unpack(f"<{n}Q", gpu.download(each)) for each in (expected, got))
    columns = [column for column in range(n) if left[column] != right[column]]
    for buffer in (through_a, expected, got):
        gpu.free(buffer)
    return columns


def _sums(gpu: Gpu, matrix: Stored, weights: Buffer, n: int) -> Buffer:
    """Add up the rows of a matrix, each with its weight. Shapes: uint64[n] in and out."""
    sums = gpu.alloc(n * WEIGHT)
    gpu.fill(sums, 0)
    kernel, grid = gpu.kernel(f"gpud_sums_{matrix.type}"), (n // PART, n // PART)
    arguments = matrix.buffer, weights, sums, matrix.column, matrix.row
    elapsed(gpu, gpu.launch(kernel, grid, (PART, 1), *arguments))
    return sums


def _stretch(places: list[int]) -> str:
    """Write the first and the last of some places: "128 to 255"."""
    return f"{places[0]} to {places[-1]}" if places else "unknown"
