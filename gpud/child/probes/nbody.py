"""Arithmetic: all-pairs gravity, 20 flops an interaction as NVIDIA's sample counts them.

The instruction mix reaches 77 % of the FMA peak at best, so this is "n-body flop/s" and never a
share of anything.
"""

from __future__ import annotations

import math
import random
import struct
from array import array

from gpud.child.device import BLOCK, Outcome, out_of_memory, verification_failed
from gpud.child.throughput import chosen, elapsed, measured
from gpud.core.sample import Backend, Pace, ProbeSpec, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Call
    from gpud.child.progress import Budget

SPEC = ProbeSpec(
    name="nbody",
    backend=Backend.CUDA,
    pace=Pace.LARGE,
    unit=Unit.FLOPS_PER_SECOND,
    modes=("nbody",),
    budget_s=20.0,
    summary="FP32 arithmetic: all-pairs n-body, 20 flops an interaction",
    version=4,
)

FLOPS = 20
RESIDENT = 4
"""Blocks that every multiprocessor holds at once, as the kernel has it: they hide what an
instruction waits for.
"""
MOST_BODIES = 65536
"""Milliseconds of work; a GPU that needs more bodies for its every block to be busy gets them."""
DISTINCT = 4099
"""Bodies that differ; then come these again. A prime number: no two blocks read the same ones."""
CHECKED = 8
TOLERANCE = 1e-3
EPS2 = 0.01
BODY = 16  # bytes of a float4


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Evaluate the forces of n bodies on each other.

    Shapes: pos float4[n] in, acc float4[n] out; n a multiple of 256 times the SM count.
    Units: flop/s. Errors: ``ProbeError``; wrong accelerations publish nothing.
    """
    sizes = bodies(gpu.sm_count, gpu.memory()[0])
    chance = random.Random(seed)  # noqa: S311  # test data, not a secret
    positions = array("f", [chance.random() for _ in range(4 * DISTINCT)])
    pos, acc = gpu.alloc(sizes[-1] * BODY), gpu.alloc(sizes[-1] * BODY)
    gpu.upload(pos, (positions.tobytes() * -(-sizes[-1] // DISTINCT))[: pos.size])
    kernel = gpu.kernel("gpud_nbody")

    def forces(count: int) -> Call:
        return gpu.launch(kernel, (count // BLOCK, 1), (BLOCK, 1), pos, acc, count, EPS2)

    n = chosen(gpu, sizes, forces, lambda count: float(count) * count, budget)
    call = forces(n)
    series = measured(gpu, call, FLOPS * float(n) * n, budget)
    gpu.fill(acc, 0)
    elapsed(gpu, call)
    for body in chance.sample(range(n), CHECKED):
        got = struct.unpack("<4f", gpu.download(acc, BODY, body * BODY))
        _verify(body, got[:3], acceleration(positions, n, body))
        budget.check()
    return series.outcome(SPEC, {"bodies": n})


def bodies(sm_count: int, free_bytes: int) -> list[int]:
    """Give the numbers of bodies to choose from, ascending: the same work for every SM.

    A last, partial wave of blocks would leave most of the GPU idle; so whole waves, or less than
    one where a slow GPU must. Errors: ``ProbeError`` (out_of_memory).
    """
    step = BLOCK * sm_count
    wave = RESIDENT * step
    most = int(free_bytes * SPEC.vram_share) // (2 * BODY)
    sizes = [step, 2 * step, *range(wave, max(wave, MOST_BODIES) + 1, wave)]
    if step > most:
        raise out_of_memory(free_bytes, f"{step} bodies")
    return [size for size in sizes if size <= most]


def acceleration(positions: Sequence[float], n: int, body: int) -> tuple[float, float, float]:
    """Recompute in double precision how ``n`` bodies, ``positions`` again and again, draw one."""
    quads = list(zip(*[iter(positions)] * 4, strict=True))
    x, y, z, _ = quads[body % len(quads)]
    total = [0.0, 0.0, 0.0]
    for place, (other_x, other_y, other_z, mass) in enumerate(quads):
        times = -(-(n - place) // len(quads))
        dx, dy, dz = other_x - x, other_y - y, other_z - z
        squared = dx * dx + dy * dy + dz * dz + EPS2
        weight = times * mass / (squared * math.sqrt(squared))
        total[0] += weight * dx
        total[1] += weight * dy
        total[2] += weight * dz
    return total[0], total[1], total[2]


def _verify(body: int, got: Sequence[float], expected: Sequence[float]) -> None:
    """Compare as vectors: a component near zero has no relative error worth the name."""
    error = math.dist(got, expected) / max(math.hypot(*expected), 1e-30)
    if not error < TOLERANCE:  # a NaN fails too
        raise verification_failed(
            f"the acceleration of body {body} is off by {error:.2g} of its size"
        )
