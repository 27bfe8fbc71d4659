"""What it costs to give the GPU work: an empty kernel, launched thousands of times, one by one.

Method: every launch is timed on its own and followed by a null call of the same prototype; what is
reported is the launch less the median null call. Interleaving call by call is what keeps the error
under 1 % on a machine whose cores change speed in the middle of a run.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpud.child.device import Outcome, perform
from gpud.core.errors import ProbeError
from gpud.core.sample import Backend, Failure, Pace, ProbeSpec, Reason, Unit
from gpud.core.stats import summarised

if TYPE_CHECKING:
    from gpud.child.budget import Budget
    from gpud.child.device import Call, Gpu

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
BLOCKS, BLOCK = 16, 250
"""The driver's queue is finite; an untimed wait after each block keeps it from filling."""
ROUND_TRIPS = 300
ROWS, ROW = 5, 200
NS = 1e-9

Pairs = tuple[list[float], list[float]]
"""Seconds of real calls, and of the null calls between them."""


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
    budget.check()
    submit, submit_null = _submissions(gpu, empty, budget)
    trips, trips_null = _round_trips(gpu, empty, budget)
    rows, rows_null = _rows(gpu, empty, budget)
    _verify(gpu, seed)
    unit = SPEC.unit
    return Outcome(
        samples=(
            summarised(submit, mode="submit", unit=unit, null=submit_null, with_buckets=True),
            summarised(trips, mode="roundtrip", unit=unit, null=trips_null, with_buckets=True),
            summarised(rows, mode="pipelined", unit=unit, null=rows_null, with_buckets=True),
            summarised([first_s], mode="first_launch", unit=unit, with_buckets=True),
        ),
        missing=(),
        conditions={"method": "ctypes-percall"},
    )


def _submissions(gpu: Gpu, call: Call, budget: Budget) -> Pairs:
    real, null, clock = call.real, call.null, time.perf_counter_ns
    taken: list[float] = []
    nothing: list[float] = []
    for _ in range(BLOCKS):
        code = 0
        for _ in range(BLOCK):
            before = clock()
            code = real() or code
            between = clock()
            null()
            after = clock()
            taken.append((between - before) * NS)
            nothing.append((after - between) * NS)
        gpu.check(code, call)
        gpu.check(gpu.wait.real(), gpu.wait)
        budget.check()
    return taken, nothing


def _round_trips(gpu: Gpu, call: Call, budget: Budget) -> Pairs:
    real, null, clock = call.real, call.null, time.perf_counter_ns
    wait, wait_null = gpu.wait.real, gpu.wait.null
    taken: list[float] = []
    nothing: list[float] = []
    for _ in range(ROUND_TRIPS):
        before = clock()
        code = real()
        waited = wait()
        between = clock()
        null()
        wait_null()
        after = clock()
        gpu.check(code, call)
        gpu.check(waited, gpu.wait)
        taken.append((between - before) * NS)
        nothing.append((after - between) * NS)
    budget.check()
    return taken, nothing


def _rows(gpu: Gpu, call: Call, budget: Budget) -> Pairs:
    real, null, clock = call.real, call.null, time.perf_counter_ns
    taken: list[float] = []
    nothing: list[float] = []
    for _ in range(ROWS):
        code = 0
        before = clock()
        for _ in range(ROW):
            code = real() or code
        waited = gpu.wait.real()
        between = clock()
        for _ in range(ROW):
            null()
        gpu.wait.null()
        after = clock()
        gpu.check(code, call)
        gpu.check(waited, gpu.wait)
        taken.append((between - before) * NS / ROW)
        nothing.append((after - between) * NS / ROW)
        budget.check()
    return taken, nothing


def _verify(gpu: Gpu, seed: int) -> None:
    """Launch a counting kernel and look whether it ran as often as it was launched."""
    counter = gpu.alloc(4)
    start = seed % 1_000_000
    gpu.fill(counter, start)
    perform(gpu, gpu.launch(gpu.kernel("gpud_count"), (1, 1), (1, 1), counter), BLOCK)
    counted = int.from_bytes(gpu.download(counter), "little") - start
    if counted != BLOCK:
        raise ProbeError(
            Failure(Reason.VERIFICATION_FAILED, f"{BLOCK} launches were made and {counted} counted")
        )
