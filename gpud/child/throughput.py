"""How large probes measure: a pilot sizes the batch, load lifts the clocks, then timed batches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpud.core.errors import ProbeError
from gpud.core.sample import Failure, Reason
from gpud.core.stats import settled

if TYPE_CHECKING:
    from gpud.child.budget import Budget
    from gpud.child.device import Call, Gpu

BATCH_S = 0.02
"""Each timed batch: long beside an event's resolution, short beside what a person notices."""
RUNS = 9
WARM_UP_S = 0.4
"""Of GPU time; with the timed batches a whole run stays under 1 s."""
MOST_REPEATS = 1000


def rates(gpu: Gpu, call: Call, work: float, budget: Budget) -> tuple[float, ...]:
    """Repeat ``call`` in batches between events.

    Shapes: float[9]. Units: ``work`` per second, in the unit of ``work``.
    Errors: ``ProbeError``.
    """
    pilot_s = elapsed(gpu, call)
    repeats = max(1, min(int(BATCH_S / pilot_s), MOST_REPEATS))
    warm: list[float] = []
    used_s, until = 0.0, time.monotonic() + 2 * WARM_UP_S
    while not settled(warm) and used_s < WARM_UP_S and time.monotonic() < until:
        warm.append(gpu.timed(call, repeats))
        used_s += warm[-1]
        budget.check()
    found = []
    for _ in range(RUNS):
        found.append(repeats * work / elapsed(gpu, call, repeats))
        budget.check()
    return tuple(found)


def elapsed(gpu: Gpu, call: Call, repeats: int = 1) -> float:
    """Time a batch. ``Errors: ProbeError`` when the driver says that no time has passed."""
    taken_s = gpu.timed(call, repeats)
    if not taken_s > 0:  # a NaN is refused too
        detail = f"the driver says that {call.name} took {taken_s:g} s"
        raise ProbeError(Failure(Reason.CUDA_ERROR, detail, function="cuEventElapsedTime"))
    return taken_s
