"""CUDA events, the clock of every throughput figure: what a pair of them adds, and what one costs.

A driver whose events have become slow makes all rates worse by a little; here it shows by itself.
"""

from __future__ import annotations

from gpud.child.device import Outcome
from gpud.child.latency import BURST, gpu_time, occupying, single_calls, verify_launches
from gpud.child.summary import summarised
from gpud.child.warmup import warm
from gpud.core.sample import Backend, Missing, Pace, ProbeSpec, Reason, Unit
from gpud.core.stats import median

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpud.child.cuda_gpu import Gpu
    from gpud.child.progress import Budget
    from gpud.core.sample import Sample

SPEC = ProbeSpec(
    name="event",
    backend=Backend.CUDA,
    pace=Pace.SMALL,
    unit=Unit.SECONDS,
    modes=("pair", "kernel", "record"),
    budget_s=10.0,
    summary="GPU time between two events, with nothing and an empty kernel in it; recording one",
    gpu_budget_s=0.008,
    every=5,
)

RECORDS = 1000
MOST, LEAST = 25, 7
MEASURING_S = 0.004
"""Of GPU time for both modes: the wider the gap that is to be covered, the fewer the pairs."""


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Measure pairs of events behind other work, then record a thousand of them.

    Shapes: 7 to 25 pairs and as many around an empty kernel, 1,000 records.
    Units: seconds; of the GPU for ``pair`` and ``kernel``, of the host for ``record``.
    Errors: ``ProbeError``; a wrong count of launches publishes nothing.
    """
    empty = gpu.launch(gpu.kernel("gpud_empty"), (1, 1), (1, 1))
    first, last = gpu.first, gpu.last
    warmth = warm(gpu, budget)
    ahead = occupying(gpu, (first, empty, last), budget)
    count = max(LEAST, min(int(MEASURING_S / 2 / ahead.seconds), MOST))
    timings = {
        "pair": gpu_time(gpu, (), ahead, count),
        "kernel": gpu_time(gpu, (empty,), ahead, count),
    }
    budget.check()
    covered_s = ahead.seconds
    ahead.close()
    recorded = single_calls(gpu, last, RECORDS, budget)
    verify_launches(gpu, seed)
    gpu.busy_s += BURST * median(timings["kernel"])
    samples: list[Sample] = []
    missing: list[Missing] = []
    for mode, values in timings.items():
        sample = summarised(values, mode=mode, unit=SPEC.unit)
        if sample.median > 0:
            samples.append(sample)
        else:  # no time is a clock that does not see it, and not a figure
            detail = "less than the events of this driver resolve"
            missing.append(Missing(mode, Reason.UNSUPPORTED, detail))
    samples.append(recorded.sample("record", SPEC.unit))
    conditions = {**warmth.conditions, "ahead_s": covered_s}
    return Outcome(tuple(samples), tuple(missing), conditions)
