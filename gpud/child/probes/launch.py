"""Cost of submitting work to the GPU: an empty kernel, launched thousands of times.

``gpud.child.latency`` has the method. What is measured first is a GPU that nobody has used since
the last round: the modes that end in ``_cold`` are what an interactive program feels.
"""

from __future__ import annotations

import time

from gpud.child.device import Outcome
from gpud.child.latency import (
    BURST,
    NS,
    behind_load,
    bounded,
    sequences,
    single_calls,
    verify_launches,
)
from gpud.child.summary import summarised
from gpud.child.warmup import warm
from gpud.core.errors import ProbeError
from gpud.core.record import replace
from gpud.core.sample import Backend, Missing, Pace, ProbeSpec, Reason, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Call
    from gpud.child.latency import Timed
    from gpud.child.progress import Budget
    from gpud.core.sample import Condition, Sample

SPEC = ProbeSpec(
    name="launch",
    backend=Backend.CUDA,
    pace=Pace.SMALL,
    unit=Unit.SECONDS,
    modes=(
        "submit",
        "roundtrip",
        "pipelined",
        "graph",
        "first_launch",
        "submit_cold",
        "roundtrip_cold",
        "pipelined_cold",
    ),
    budget_s=10.0,
    summary="host time to launch an empty kernel: alone, waited for, in a row, in a graph, first",
    version=3,
    gpu_budget_s=0.04,
)

COLD_SUBMISSIONS, COLD_ROUND_TRIPS, COLD_ROWS = 250, 50, 5
SUBMISSIONS, ROUND_TRIPS, ROWS = 1000, 250, 5
ROW = 200
FIRST = tuple(mode for mode in SPEC.modes if mode == "first_launch" or mode.endswith("_cold"))
NOT_FRESH = "measured only where nothing has run before in the same process"
WARM_UP = 200
GRAPHS = 5
BEHIND = 20
SHORT_S = 10e-6
WARM_RUN_S, WARM_GPU_S = 0.002, 0.016


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Measure the first launch, the modes right after idle, then all of them after a warm-up.

    The first and those right after idle only in a context in which nothing has run before.

    Shapes: 1,000 submissions, 250 round trips, 5 rows and 5 graphs of 200; fewer right after idle.
    Units: seconds per launch.
    Errors: ``ProbeError``; a wrong count publishes nothing.
    """
    empty, first = _first_launch(gpu)
    cold: dict[str, Timed] = {}
    if gpu.fresh:
        cold, _ = _modes(gpu, empty, budget, (COLD_SUBMISSIONS, COLD_ROUND_TRIPS, COLD_ROWS))
    warmth = warm(gpu, budget, run_s=WARM_RUN_S, most_gpu_s=WARM_GPU_S)
    gpu.perform(empty, WARM_UP)
    usual, each_s = _modes(gpu, empty, budget, (SUBMISSIONS, ROUND_TRIPS, ROWS))
    samples = [_sample(mode, timed) for mode, timed in usual.items()]
    missing = []
    conditions: dict[str, Condition] = {
        "method": "ctypes-percall",
        **warmth.conditions,
        "bound.pipelined": usual["pipelined"].bound,
    }
    if gpu.fresh:
        took_s = [sum(first.values())]
        samples += [
            summarised(took_s, mode="first_launch", unit=SPEC.unit, with_buckets=True),
            *(_sample(f"{mode}_cold", timed) for mode, timed in cold.items()),
        ]
        conditions |= {"bound.pipelined_cold": cold["pipelined"].bound, **first}
    else:
        missing += [Missing(mode, Reason.NOT_COLD, NOT_FRESH) for mode in FIRST]
    verify_launches(gpu, seed)
    graphs = 0
    if reason := gpu.left_out.get("graph"):
        missing.append(Missing("graph", Reason.LEFT_OUT, reason))
    else:
        try:  # last: what is verified by now stays, whatever becomes of the graphs
            samples.append(_sample("graph", _graphs(gpu, empty, budget)))
            graphs = GRAPHS + 1
        except ProbeError as error:
            missing.append(Missing("graph", error.failure.reason, error.failure.detail))
    _account(gpu, each_s, graphs=graphs)
    return Outcome(tuple(samples), tuple(missing), conditions)


def _first_launch(gpu: Gpu) -> tuple[Call, dict[str, float]]:
    """Launch for the first time in this run, and say what each part of that has taken.

    What was made before, the context, is as the device tells; nothing here is timed twice.
    """
    begun = time.perf_counter_ns()
    empty = gpu.launch(gpu.kernel("gpud_empty"), (1, 1), (1, 1))
    gpu.perform(empty)
    took_s = (time.perf_counter_ns() - begun) * NS
    conditions = gpu.conditions()
    before = {name: float(conditions.get(name) or 0) for name in ("context_s", "module_load_s")}
    return empty, {**before, "first_call_s": took_s - before["module_load_s"]}


def _modes(
    gpu: Gpu, empty: Call, budget: Budget, counts: tuple[int, int, int]
) -> tuple[dict[str, Timed], float]:
    """Measure the modes, and the GPU's own seconds for one launch of a row."""
    submissions, round_trips, rows = counts
    submit = single_calls(gpu, empty, submissions, budget)
    round_trip = sequences(gpu, (empty, gpu.wait), round_trips, budget)
    row = sequences(gpu, (*[empty] * ROW, gpu.wait), rows, budget, per=ROW)
    (each_s,) = behind_load(gpu, budget, (empty,))  # and an interval of two events
    if each_s > row.net_s:
        (several_s,) = behind_load(gpu, budget, [empty] * BEHIND)
        each_s = (several_s - each_s) / (BEHIND - 1)
    least_s = (round_trip.net_s + (ROW - 1) * each_s) / ROW
    row = bounded(row, ROW, least_s)
    return {"submit": submit, "roundtrip": round_trip, "pipelined": row}, each_s


def _graphs(gpu: Gpu, empty: Call, budget: Budget) -> Timed:
    graph = gpu.graph(empty, ROW)
    gpu.perform(graph)  # the first launch of a graph also sends it to the GPU
    return sequences(gpu, (graph, gpu.wait), GRAPHS, budget, per=ROW)


def _sample(mode: str, timed: Timed) -> Sample:
    """Reduce a mode to its figures; the tail too of a submission that is short.

    What interrupts the interpreter interrupts the null calls as often, and makes their p99 exceed
    their median. Taken out of a short launch, whose own tail is shorter than that, it leaves what a
    C program sees; in a long one the two have nothing to do with each other.
    """
    sample = timed.sample(mode, SPEC.unit, with_buckets=True)
    if sample.p99 is None or sample.median >= SHORT_S or not mode.startswith("submit"):
        return sample
    excess_s = (sample.null_p99 or 0) - (sample.null_median or 0)
    return replace(sample, p99_net=max(sample.p99 - excess_s, sample.median))


def _account(gpu: Gpu, each_s: float, *, graphs: int) -> None:
    """Tell how much GPU time the launches have used, of which no event saw more than a few."""
    single = SUBMISSIONS + ROUND_TRIPS + WARM_UP + BURST
    rows = ROWS + graphs
    if gpu.fresh:
        single, rows = single + COLD_SUBMISSIONS + COLD_ROUND_TRIPS, rows + COLD_ROWS
    gpu.busy_s += each_s * (1 + single + ROW * rows)
