"""Size from which a matrix product is worth sending to the GPU, copies and waits included.

Both sides work as a program would that has its matrices in ordinary memory: numpy with all the
cores its BLAS takes, against copying two matrices in, one launch, and copying the product out.
"""

from __future__ import annotations

import time

from gpud.child.cpu import load_numpy
from gpud.child.crossover import LADDER, Allowance, crossing
from gpud.child.device import Buffer, Outcome, out_of_memory, verification_failed
from gpud.child.summary import summarised
from gpud.child.throughput import chosen
from gpud.child.warmup import warm
from gpud.core.sample import Backend, Missing, Pace, ProbeSpec, Reason, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpud.child.crossover import Crossing
    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Call
    from gpud.child.progress import Budget
    from gpud.core.sample import Condition

SPEC = ProbeSpec(
    name="crossover",
    backend=Backend.CUDA,
    pace=Pace.LARGE,
    unit=Unit.ELEMENTS,
    modes=("crossover",),
    budget_s=20.0,
    summary="smallest matrix on whose product the GPU, copies included, beats numpy's BLAS",
    every=4,
)

MATRICES = 3
FLOAT = 4  # bytes
TILE, SMALL_TILE = 64, 16
"""Of ``gpud_matmul``, and of ``gpud_matmul_16``, which serves what is smaller than the other."""
ALLOWANCE = Allowance(total_s=2.0, gpu_s=0.5)
WARM_UP_S = 0.1
NOT_A_NUMBER = 0xFFFFFFFF


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Search for the crossing of both costs.

    Shapes: float32[n, n], n from 16 to 2048. Units: elements of one matrix; seconds of wall time
    in the curve. Errors: ``ProbeError``; products that differ publish nothing.
    """
    numpy = load_numpy()
    warmth = warm(gpu, budget, most_gpu_s=WARM_UP_S)
    both = Products(gpu, budget, numpy, seed)
    result = crossing(both.cpu_s, both.gpu_s, both.ladder, ALLOWANCE)
    facts: dict[str, Condition] = {"numpy": numpy.__version__, "settled": warmth.settled}
    return outcome(result, facts)


def outcome(result: Crossing, facts: dict[str, Condition]) -> Outcome:
    """Put what the search found into figures, or into the reason why there is no crossing."""
    always = result.n is not None and result.below is None
    conditions = {
        **facts,
        "n": result.n,
        "below": result.below,
        "note": "gpu_always_faster" if always else None,
    }
    if result.n is None:
        largest = result.curve[-1].n
        detail = f"the CPU is faster at every size up to {largest} x {largest}"
        reason = Reason.CPU_ALWAYS_FASTER
        if result.cut_short:
            reason = Reason.BUDGET_EXCEEDED
            detail += f", and for larger ones {ALLOWANCE.total_s:g} s were not enough"
        missing = Missing("crossover", reason, detail)
        return Outcome((), (missing,), conditions, result.curve)
    sample = summarised([float(result.n**2)], mode="crossover", unit=SPEC.unit)
    return Outcome((sample,), (), conditions, result.curve)


class Products:
    """The two costs of a product. Every size is done once on both sides before it is timed."""

    def __init__(self, gpu: Gpu, budget: Budget, numpy: Any, seed: int) -> None:  # noqa: ANN401
        """Take the matrices and choose the largest size. ``Errors: ProbeError``."""
        self._gpu, self._budget, self._numpy = gpu, budget, numpy
        most = _fitting(gpu.memory()[0])
        self._device = [gpu.alloc(FLOAT * most * most) for _ in range(MATRICES)]
        tiled = [n for n in LADDER if TILE <= n <= most]
        top = chosen(gpu, tiled, self._product, lambda n: float(n) ** 3, budget)
        gpu.fill(self._device[2], NOT_A_NUMBER)  # nothing of a pilot is left to be believed
        self.ladder = tuple(n for n in LADDER if n <= top)
        self._host = [gpu.host(FLOAT * top * top, pinned=False) for _ in range(MATRICES)]
        self._arrays = [numpy.frombuffer(host.view, numpy.float32) for host in self._host]
        chance = numpy.random.default_rng(seed)
        for array in self._arrays[:2]:
            # Small integers: every partial sum is exact in FP32, so equality is the test.
            array[:] = chance.integers(-8, 9, array.size, numpy.int8)
        self._calls: dict[int, list[Call]] = {}
        self._busy_s: dict[int, float] = {}

    def cpu_s(self, n: int) -> float:
        """Multiply by numpy once. Units: seconds of wall time."""
        self._prepare(n)
        multiply = self._numpy.matmul
        left, right, product = self._views(n)
        begun = time.perf_counter()
        multiply(left, right, out=product)
        return time.perf_counter() - begun

    def gpu_s(self, n: int) -> float:
        """Copy in, multiply, copy out and wait, once. Units: seconds of wall time."""
        self._prepare(n)
        calls = [*self._calls[n], self._gpu.wait]
        steps = [call.real for call in calls]
        self._gpu.about(*calls)
        begun = time.perf_counter()
        codes = [step() for step in steps]
        taken_s = time.perf_counter() - begun
        for code, call in zip(codes, calls, strict=True):
            self._gpu.check(code, call)
        self._gpu.account(self._busy_s[n])
        self._budget.check()
        return taken_s

    def _prepare(self, n: int) -> None:
        """Build the calls of a size, warm both sides up with it, and compare what they say."""
        if n in self._calls:
            return
        gpu, numpy, size = self._gpu, self._numpy, FLOAT * n * n
        (a, b, c), (left, right, product) = self._device, self._host
        calls = [
            gpu.copy_in(a, left, size=size),
            gpu.copy_in(b, right, size=size),
            self._product(n),
            gpu.copy_out(product, c, size=size),
        ]
        products = self._views(n)[2]
        gpu.fill(Buffer(c.address, size), NOT_A_NUMBER)
        products[:] = numpy.nan
        self._busy_s[n] = sum(gpu.timed(call) for call in calls)
        expected = numpy.matmul(*self._views(n)[:2])
        if not numpy.array_equal(products, expected):
            raise verification_failed(f"the {n} x {n} products of GPU and CPU differ")
        self._calls[n] = calls
        self._budget.check()

    def _product(self, n: int) -> Call:
        kernel, tile = ("gpud_matmul", TILE) if n >= TILE else ("gpud_matmul_16", SMALL_TILE)
        grid = (n // tile, n // tile)
        return self._gpu.launch(self._gpu.kernel(kernel), grid, (16, 16), *self._device, n)

    def _views(self, n: int) -> list[Any]:
        return [array[: n * n].reshape(n, n) for array in self._arrays]


def _fitting(free_bytes: int) -> int:
    """Give the largest size whose three matrices fit. ``Errors: ProbeError`` (out_of_memory)."""
    allowed = free_bytes * SPEC.vram_share
    fits = [n for n in LADDER if n >= TILE and MATRICES * FLOAT * n * n <= allowed]
    if not fits:
        raise out_of_memory(free_bytes, "three small matrices")
    return fits[-1]
