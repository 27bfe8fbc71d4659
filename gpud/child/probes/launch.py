"""What it costs to give the GPU work: an empty kernel, launched thousands of times, one by one.

Method: every launch is timed on its own and followed by a null call of the same prototype; what is
reported is the launch less the median null call. Interleaving call by call is what keeps the error
under 1 % on a machine whose cores change speed in the middle of a run.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpud.child.device import Outcome, perform
from gpud.child.latency import NS, one_by_one, sequences, verify_launches
from gpud.core.sample import Backend, Pace, ProbeSpec, Unit
from gpud.core.stats import summarised

if TYPE_CHECKING:
    from gpud.child.budget import Budget
    from gpud.child.device import Gpu

SPEC = ProbeSpec(
    name="launch",
    backend=Backend.CUDA,
    pace=Pace.SMALL,
    unit=Unit.SECONDS,
    modes=("submit", "roundtrip", "pipelined", "first_launch"),
    budget_s=10.0,
    summary="host time to submit an empty kernel, alone, waited for, and in a row",
)

WARM_UP = 200
SUBMISSIONS = 4000
ROUND_TRIPS = 300
ROWS, ROW = 5, 200


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Measure the four modes, then count launches to prove that they happen.

    Shapes: 4,000 submissions, 300 round trips, 5 rows of 200, one first launch.
    Units: seconds per launch.
    Errors: ``ProbeError``; a wrong count publishes nothing.
    """
    begun = time.perf_counter_ns()
    empty = gpu.launch(gpu.kernel("gpud_empty"), (1, 1), (1, 1))
    perform(gpu, empty)
    first_s = (time.perf_counter_ns() - begun) * NS
    perform(gpu, empty, WARM_UP)
    submit = one_by_one(gpu, empty, SUBMISSIONS, budget)
    trips = sequences(gpu, (empty, gpu.wait), ROUND_TRIPS, budget)
    rows = sequences(gpu, (*[empty] * ROW, gpu.wait), ROWS, budget, per=ROW)
    verify_launches(gpu, seed)
    unit = SPEC.unit
    return Outcome(
        samples=(
            summarised(submit.real, mode="submit", unit=unit, null=submit.null, with_buckets=True),
            summarised(trips.real, mode="roundtrip", unit=unit, null=trips.null, with_buckets=True),
            summarised(rows.real, mode="pipelined", unit=unit, null=rows.null, with_buckets=True),
            summarised([first_s], mode="first_launch", unit=unit, with_buckets=True),
        ),
        missing=(),
        conditions={"method": "ctypes-percall"},
    )
