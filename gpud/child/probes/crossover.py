"""Size from which a matrix product is worth sending to the GPU, copies and waits included.

Both sides work as a program would that has its matrices in ordinary memory: numpy with all the
cores its BLAS takes, against copying two matrices in, one launch, and copying the product out. A
few sizes are measured, ascending, until the GPU is clearly ahead.
"""

from __future__ import annotations

import time

from gpud.child.cpu import load_numpy
from gpud.child.device import Buffer, Outcome, out_of_memory, verification_failed
from gpud.child.summary import summarised
from gpud.child.throughput import chosen
from gpud.child.warmup import warm
from gpud.core.record import Record
from gpud.core.sample import Backend, Missing, Pace, Point, ProbeSpec, Reason, Unit
from gpud.core.stats import median

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Call
    from gpud.child.progress import Budget
    from gpud.core.sample import Condition

Cost: TypeAlias = "Callable[[int], float]"
"""Do the work of one size once; seconds."""

SPEC = ProbeSpec(
    name="crossover",
    backend=Backend.CUDA,
    pace=Pace.LARGE,
    unit=Unit.ELEMENTS,
    modes=("crossover",),
    budget_s=20.0,
    summary="smallest matrix on whose product the GPU, copies included, beats numpy's BLAS",
    version=2,
    every=4,
)

SIZES = (16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
"""Edges of the square matrices that may be measured."""
REPEATS, LEAST_REPEATS = 7, 3
ENOUGH_S = 0.05
"""Of repeating one size: beyond it the fewest repeats will do, long work is steady work."""
CLEARLY = 2.0
"""Two sizes won in a row, the last by this factor, end the climb."""
TOTAL_S, GPU_S = 2.0, 0.5
"""Of all measuring, and of what is measured on the GPU."""
MATRICES = 3
FLOAT = 4  # bytes
TILE, SMALL_TILE = 64, 16
"""Of ``gpud_matmul``, and of ``gpud_matmul_16``, which serves what is smaller than the other."""
WARM_RUN_S, WARM_GPU_S = 0.01, 0.1
NOT_A_NUMBER = 0xFFFFFFFF


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Search for the crossing of both costs.

    Shapes: float32[n, n], n from 16 to 2048. Units: elements of one matrix; seconds of wall time
    in the curve. Errors: ``ProbeError``; products that differ publish nothing.
    """
    numpy = load_numpy()
    warmth = warm(gpu, budget, run_s=WARM_RUN_S, most_gpu_s=WARM_GPU_S)
    both = Products(gpu, budget, numpy, seed)
    result = crossing(both.cpu_s, both.gpu_s, both.sizes)
    facts: dict[str, Condition] = {"numpy": numpy.__version__, "settled": warmth.settled}
    return outcome(result, facts)


class Crossing(Record):
    """What was measured.

    ``n`` is the smallest measured size from which on the GPU won at every measured size; None
    where the CPU won at the largest. ``below`` is the largest size under ``n``, a defeat, None
    where ``n`` is the smallest there is. ``curve`` has every measured size, ascending.
    ``cut_short`` says that the time ended the climb: larger sizes may be won.
    """

    n: int | None
    below: int | None
    curve: tuple[Point, ...]
    cut_short: bool = False


def crossing(cpu_s: Cost, gpu_s: Cost, sizes: Sequence[int] = SIZES) -> Crossing:
    """Measure ``sizes``, which ascend, until the GPU is clearly ahead or the time is up.

    Errors: whatever a cost raises.
    """
    curve: list[Point] = []
    on_cpu_s = on_gpu_s = 0.0
    cut_short = False
    for n in sizes:
        if _clear(curve):
            break
        cut_short = on_gpu_s > GPU_S or on_cpu_s + on_gpu_s > TOTAL_S
        if cut_short:
            break
        cpu, gpu = _taken(cpu_s, gpu_s, n)
        on_cpu_s += sum(cpu)
        on_gpu_s += sum(gpu)
        curve.append(Point(n, median(cpu), median(gpu)))
    won = None
    for point in reversed(curve):
        if not point.gpu_s < point.cpu_s:
            return Crossing(won, point.n, tuple(curve), cut_short)
        won = point.n
    return Crossing(won, None, tuple(curve), cut_short)


def _taken(cpu_s: Cost, gpu_s: Cost, n: int) -> tuple[list[float], list[float]]:
    """Measure one size, CPU and GPU in turn so that drift strikes both alike."""
    cpu: list[float] = []
    gpu: list[float] = []
    while len(cpu) < REPEATS and (len(cpu) < LEAST_REPEATS or sum(cpu + gpu) <= ENOUGH_S):
        cpu.append(cpu_s(n))
        gpu.append(gpu_s(n))
    return cpu, gpu


def _clear(curve: list[Point]) -> bool:
    won = all(point.gpu_s < point.cpu_s for point in curve[-2:])
    return won and len(curve) > 1 and curve[-1].cpu_s > CLEARLY * curve[-1].gpu_s


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
            detail += f", and for larger ones {TOTAL_S:g} s were not enough"
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
        tiled = [n for n in SIZES if TILE <= n <= most]
        top = chosen(gpu, tiled, self._product, lambda n: float(n) ** 3, budget)
        gpu.fill(self._device[2], NOT_A_NUMBER)  # nothing of a pilot is left to be believed
        self.sizes = tuple(n for n in SIZES if n <= top)
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
        self._gpu.busy_s += self._busy_s[n]
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
    fits = [n for n in SIZES if n >= TILE and MATRICES * FLOAT * n * n <= allowed]
    if not fits:
        raise out_of_memory(free_bytes, "three small matrices")
    return fits[-1]
