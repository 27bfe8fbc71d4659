"""Speed of one core: FP32 matrix product by numpy's BLAS, the reference beside the GPU."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

from gpud.child.device import Outcome, perform
from gpud.child.throughput import measured
from gpud.core.errors import ProbeError
from gpud.core.sample import Backend, Failure, Pace, ProbeSpec, Reason, Unit
from gpud.core.stats import summarised

if TYPE_CHECKING:
    from gpud.child.budget import Budget
    from gpud.child.device import Gpu

SPEC = ProbeSpec(
    name="cpu_matmul",
    backend=Backend.CPU,
    pace=Pace.LARGE,
    unit=Unit.FLOPS_PER_SECOND,
    modes=("matmul",),
    budget_s=10.0,
    summary="FP32 matrix product on one core, 512 x 512, by numpy's BLAS",
    version=2,
    every=4,
)

N = 512
CHECKED = 16


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Multiply two square matrices.

    Shapes: float32[512, 512] each. Units: flop/s, 2 n^3 a product. Errors: ``ProbeError``.
    """
    chance = random.Random(seed)  # noqa: S311  # test data, not a secret
    # Small integers: every partial sum is exact in FP32, so equality is the test.
    left = [chance.randrange(-8, 9) for _ in range(N * N)]
    right = [chance.randrange(-8, 9) for _ in range(N * N)]
    a, b, c = (gpu.alloc(4 * N * N) for _ in range(3))
    gpu.upload(a, struct.pack(f"<{N * N}f", *left))
    gpu.upload(b, struct.pack(f"<{N * N}f", *right))
    call = gpu.launch(gpu.kernel("gpud_matmul"), (N // 64, N // 64), (16, 16), a, b, c, N)
    series = measured(gpu, call, 2.0 * N**3, budget)
    gpu.fill(c, 0)
    perform(gpu, call)
    for _ in range(CHECKED):
        row, column = chance.randrange(N), chance.randrange(N)
        got = struct.unpack("<f", gpu.download(c, 4, 4 * (row * N + column)))[0]
        if got != sum(left[row * N + k] * right[k * N + column] for k in range(N)):
            raise ProbeError(
                Failure(Reason.VERIFICATION_FAILED, f"element ({row}, {column}) is wrong")
            )
    sample = summarised(series.rates, mode="matmul", unit=SPEC.unit)
    return Outcome((sample,), (), {"n": N, **series.conditions})
