"""Speed of one core: FP32 matrix product by numpy's BLAS, the reference beside the GPU."""

from __future__ import annotations

import random
from operator import mul

from gpud.child.device import Call, Outcome, verification_failed
from gpud.child.throughput import measured
from gpud.core.sample import Backend, Pace, ProbeSpec, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpud.child.cpu import Cpu
    from gpud.child.progress import Budget

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


def run(cpu: Cpu, budget: Budget, seed: int) -> Outcome:
    """Multiply two square matrices.

    Shapes: float32[512, 512] each. Units: flop/s, 2 n^3 a product. Errors: ``ProbeError``.
    """
    np, chance = cpu.numpy, random.Random(seed)  # noqa: S311  # test data, not a secret
    # Small integers: every partial sum is exact in FP32, so equality is the test.
    drawn = np.frombuffer(chance.randbytes(2 * N * N), np.uint8) % 17
    a, b = (drawn.astype(np.float32) - 8).reshape(2, N, N)
    product = np.zeros((N, N), np.float32)

    def multiply() -> int:
        np.matmul(a, b, out=product)
        return 0

    series = measured(cpu, Call("numpy.matmul", multiply, int), 2.0 * N**3, budget)
    product.fill(0)
    multiply()
    for _ in range(CHECKED):
        row, column = chance.randrange(N), chance.randrange(N)
        if product[row, column] != sum(map(mul, a[row].tolist(), b[:, column].tolist())):
            raise verification_failed(f"element ({row}, {column}) is wrong")
    return series.outcome(SPEC, {"n": N})
