"""Every element of a product of matrices, checked on the GPU by random sums: Freivalds' method.

A row of random weights times the product is the same row times A, and that times B: three sums of
columns, in whole numbers of 64 bits that wrap round. A column with a wrong element agrees by chance
only, once in 2^33 times at most: the weights are new in every run, and a difference of two elements
is no multiple of 2^32.
"""

from __future__ import annotations

import struct

from gpud.child.device import verification_failed
from gpud.child.throughput import elapsed
from gpud.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import random

    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Buffer

PART = 64
"""Rows and columns that one block adds up; n is a multiple of it."""
WEIGHT = 8  # bytes
BYTES_A_ROW = 4 * WEIGHT
"""What a check takes of GPU memory for each row: the weights and three sums."""


class Stored(Record):
    """A matrix in GPU memory: its type, and elements from one row, or column, to the next."""

    buffer: Buffer
    type: str
    row: int
    column: int

    def transposed(self) -> Stored:
        """Give the matrix whose rows are the columns of this one."""
        return Stored(self.buffer, self.type, self.column, self.row)


def check(gpu: Gpu, a: Stored, b: Stored, c: Stored, chance: random.Random) -> None:
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
