"""Arithmetic: all-pairs gravity, 20 flops an interaction as NVIDIA's sample counts them.

The instruction mix reaches 77 % of the FMA peak at best, so this is "n-body flop/s" and never a
share of anything.
"""

from __future__ import annotations

import math
import random
import struct
from array import array
from typing import TYPE_CHECKING

from gpud.child.device import BLOCK, Outcome, perform
from gpud.child.throughput import BATCH_S, elapsed, rates
from gpud.core.errors import ProbeError
from gpud.core.sample import Backend, Failure, Pace, ProbeSpec, Reason, Unit
from gpud.core.stats import summarised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.child.budget import Budget
    from gpud.child.device import Call, Gpu

SPEC = ProbeSpec(
    name="nbody",
    backend=Backend.CUDA,
    pace=Pace.LARGE,
    unit=Unit.FLOPS_PER_SECOND,
    modes=("nbody",),
    budget_s=20.0,
    summary="FP32 arithmetic: all-pairs n-body, 20 flops an interaction",
)

FLOPS = 20
MOST_BODIES = 65536
"""Two milliseconds on the fastest GPU of today, and 8 bodies are still recomputed quickly."""
CHECKED = 8
TOLERANCE = 1e-3
EPS2 = 0.01
BODY = 16  # bytes of a float4


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Evaluate the forces of n bodies on each other.

    Shapes: pos float4[n] in, acc float4[n] out; n a multiple of 256 times the SM count.
    Units: flop/s. Errors: ``ProbeError``; wrong accelerations publish nothing.
    """
    step = BLOCK * gpu.sm_count
    most = max(step, MOST_BODIES // step * step)
    chance = random.Random(seed)  # noqa: S311  # test data, not a secret
    positions = array("f", [chance.random() for _ in range(4 * most)])
    pos, acc = gpu.alloc(most * BODY), gpu.alloc(most * BODY)
    gpu.upload(pos, positions.tobytes())
    kernel = gpu.kernel("gpud_nbody")

    def forces(count: int) -> Call:
        return gpu.launch(kernel, (count // BLOCK, 1), (BLOCK, 1), pos, acc, count, EPS2)

    n = bodies(step, most, elapsed(gpu, forces(step)))
    del positions[4 * n :]
    call = forces(n)
    found = rates(gpu, call, FLOPS * float(n) * n, budget)
    gpu.fill(acc, 0)
    perform(gpu, call)
    for body in chance.sample(range(n), CHECKED):
        got = struct.unpack("<4f", gpu.download(acc, BODY, body * BODY))
        _verify(body, got[:3], acceleration(positions, body))
        budget.check()
    sample = summarised(found, mode="nbody", unit=SPEC.unit)
    return Outcome((sample,), (), {"bodies": n})


def bodies(step: int, most: int, pilot_s: float) -> int:
    """Choose how many: full SMs, few enough to verify, and no kernel longer than a batch.

    ``pilot_s`` is the time of ``step`` bodies; the work grows with the square.
    """
    steps = int(math.sqrt(BATCH_S / pilot_s))
    return max(step, min(steps * step, most))


def acceleration(positions: Sequence[float], body: int) -> tuple[float, float, float]:
    """Recompute one body's acceleration in double precision."""
    x, y, z = positions[4 * body : 4 * body + 3]
    total = [0.0, 0.0, 0.0]
    quads = zip(*[iter(positions)] * 4, strict=True)
    for other_x, other_y, other_z, mass in quads:
        dx, dy, dz = other_x - x, other_y - y, other_z - z
        squared = dx * dx + dy * dy + dz * dz + EPS2
        weight = mass / (squared * math.sqrt(squared))
        total[0] += weight * dx
        total[1] += weight * dy
        total[2] += weight * dz
    return total[0], total[1], total[2]


def _verify(body: int, got: Sequence[float], expected: Sequence[float]) -> None:
    """Compare as vectors: a component near zero has no relative error worth the name."""
    error = math.dist(got, expected) / max(math.hypot(*expected), 1e-30)
    if not error < TOLERANCE:  # a NaN fails too
        raise ProbeError(
            Failure(
                Reason.VERIFICATION_FAILED,
                f"the acceleration of body {body} is off by {error:.2g} of its size",
            )
        )
