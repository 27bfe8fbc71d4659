"""Ways to wait for the GPU, and to hurry it: a blocking wait, a query, a small graph.

Programs that share a core wait blocked, and are woken by an interrupt: under WSL2 it comes by way
of the host. A query makes a driver send what it has gathered.
"""

from __future__ import annotations

from gpud.child.device import Outcome
from gpud.child.latency import (
    BURST,
    behind_load,
    bounded,
    sequences,
    single_calls,
    verify_launches,
)
from gpud.child.warmup import warm
from gpud.core.errors import ProbeError
from gpud.core.sample import Backend, Missing, Pace, ProbeSpec, Reason, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Call
    from gpud.child.latency import Timed
    from gpud.child.progress import Budget

BLOCKING, QUERY, GRAPH = "blocking", "query", "graph_10"

SPEC = ProbeSpec(
    name="sync",
    backend=Backend.CUDA,
    pace=Pace.SMALL,
    unit=Unit.SECONDS,
    modes=(BLOCKING, QUERY, GRAPH),
    budget_s=10.0,
    summary="launch and blocking wait, launch and query, a graph of 10 empty kernels and its wait",
    gpu_budget_s=0.012,
    every=5,
)

COUNT, RECORDS = 150, 50
NODES = 10
WARM_UP = 20


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Measure the blocking wait, the query, and last the graph.

    Shapes: 150 of each. Units: seconds of host time for a whole sequence.
    Errors: ``ProbeError``; a wrong count of launches publishes nothing.
    """
    empty = gpu.launch(gpu.kernel("gpud_empty"), (1, 1), (1, 1))
    warmth = warm(gpu, budget)
    gpu.perform(empty, WARM_UP)
    (each_s,) = behind_load(gpu, budget, (empty,))
    timed = {
        BLOCKING: _blocking(gpu, empty, each_s, budget),
        QUERY: sequences(gpu, (empty, gpu.query()), COUNT, budget, visible=2, behind=gpu.wait),
    }
    verify_launches(gpu, seed)
    gpu.busy_s += each_s * (WARM_UP + 2 * COUNT + BURST)
    missing = []
    if reason := gpu.left_out.get(GRAPH):
        missing.append(Missing(GRAPH, Reason.LEFT_OUT, reason))
    else:
        try:  # last: what is verified by now stays, whatever becomes of the graph
            timed[GRAPH] = _graph(gpu, empty, each_s, budget)
        except ProbeError as error:
            missing.append(Missing(GRAPH, error.failure.reason, error.failure.detail))
    samples = tuple(each.sample(mode, SPEC.unit) for mode, each in timed.items())
    return Outcome(samples, tuple(missing), warmth.conditions)


def _blocking(gpu: Gpu, empty: Call, each_s: float, budget: Budget) -> Timed:
    """Time a launch, a record and a wait; a kernel that outlasts the record hides a null call."""
    record, wait = gpu.blocking_wait()
    timed = sequences(gpu, (empty, record, wait), COUNT, budget)
    hidden_s = each_s - single_calls(gpu, record, RECORDS, budget).net_s
    return bounded(timed, 2, timed.net_s + hidden_s)


def _graph(gpu: Gpu, empty: Call, each_s: float, budget: Budget) -> Timed:
    graph = gpu.graph(empty, NODES)
    gpu.busy_s += each_s * NODES * (COUNT + 1)
    gpu.perform(graph)  # the first launch of a graph also sends it to the GPU
    return sequences(gpu, (graph, gpu.wait), COUNT, budget)
