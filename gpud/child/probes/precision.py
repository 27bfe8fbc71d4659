"""Matrix products in other number types: FP64, and on tensor cores TF32, BF16 and INT8."""

from __future__ import annotations

from gpud.child.device import Outcome
from gpud.child.products import (
    BF16,
    FP32,
    FP64,
    INT8,
    INT32,
    Method,
    lacking,
    product,
    shares,
)
from gpud.child.summary import summarised
from gpud.core.sample import Backend, Pace, ProbeSpec, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpud.child.cuda_gpu import Gpu
    from gpud.child.progress import Budget
    from gpud.child.throughput import TimedBatches
    from gpud.core.sample import Condition, Missing

METHODS = {
    # A GeForce does a 64th of its FP32 rate: small matrices, and one block keeps its units busy.
    "fp64": Method(
        "gpud_matmul_fp64",
        (8, 8),
        FP64,
        FP64,
        tile=64,
        resident=1,
        limits=(128, 256, 512, 1024, 2048),
    ),
    "tf32": Method("gpud_matmul_tf32", (256, 1), FP32, FP32, column_major=True),
    "bf16": Method("gpud_matmul_bf16", (256, 1), BF16, FP32, column_major=True),
    "int8": Method("gpud_matmul_int8", (256, 1), INT8, INT32, column_major=True),
}
SPEC = ProbeSpec(
    name="precision",
    backend=Backend.CUDA,
    pace=Pace.LARGE,
    unit=Unit.FLOPS_PER_SECOND,
    modes=tuple(METHODS),
    budget_s=20.0,
    summary="matrix products in FP64, and in TF32, BF16 and INT8 on tensor cores, 2 n^3 operations",
    every=4,
)


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Multiply two matrices in each type that this GPU has.

    Units: operations per second. Errors: ``ProbeError``; a wrong element in any type publishes
    nothing.
    """
    capability = gpu.device.compute_capability
    series: dict[str, TimedBatches] = {}
    missing: list[Missing] = []
    conditions: dict[str, Condition] = {}
    for place, (mode, method) in enumerate(METHODS.items()):
        if mode != "fp64" and (lack := lacking(mode, mode, capability)):
            missing.append(lack)
            continue
        share = 1 / (len(METHODS) - place)
        series[mode], n = product(
            gpu, budget, seed, method, vram_share=SPEC.vram_share, share=share
        )
        own = {"n": n, **series[mode].clock}
        conditions |= {f"{name}.{mode}": value for name, value in own.items()}
    return Outcome(
        tuple(summarised(each.rates, mode=mode, unit=SPEC.unit) for mode, each in series.items()),
        tuple(missing),
        {
            **conditions,
            **shares(capability),
            "settled": all(each.settled for each in series.values()),
            "runs": min(len(each.rates) for each in series.values()),
        },
    )
