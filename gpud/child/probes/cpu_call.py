"""Cost of a foreign call on this CPU: the floor under every submission from Python."""

from __future__ import annotations

import time

from gpud.child.cuda_api import FUNCTIONS, null_call
from gpud.child.device import Outcome
from gpud.child.summary import summarised
from gpud.core.sample import Backend, Pace, ProbeSpec, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpud.child.cpu import Cpu
    from gpud.child.progress import Budget

SPEC = ProbeSpec(
    name="cpu_call",
    backend=Backend.CPU,
    pace=Pace.SMALL,
    unit=Unit.SECONDS,
    modes=("call",),
    budget_s=5.0,
    summary="a foreign call with a launch's prototype that does nothing",
)

CALLS = 1000
NS = 1e-9


def run(cpu: Cpu, budget: Budget, seed: int) -> Outcome:
    """Time calls of libc's ``abs`` behind the prototype of cuLaunchKernel, less the clock itself.

    Shapes: 1,000 calls. Units: seconds per call.
    """
    del cpu, seed  # nothing is computed, so there is nothing to verify or to vary
    prototype = FUNCTIONS["cuLaunchKernel"]
    call, clock = null_call(prototype, [kind() for kind in prototype]), _clock
    taken, nothing = [], []
    for _ in range(CALLS):
        before = clock()
        call()
        between = clock()
        after = clock()
        taken.append((between - before) * NS)
        nothing.append((after - between) * NS)
    budget.check()
    sample = summarised(taken, mode="call", unit=SPEC.unit, null=nothing)
    return Outcome((sample,), (), {"method": "ctypes-percall"})


_clock = time.perf_counter_ns
