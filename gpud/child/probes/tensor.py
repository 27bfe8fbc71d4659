"""The tensor cores: an FP16 matrix product with FP32 sums, on GPUs that have the instructions."""

from __future__ import annotations

from gpud.child.device import Outcome
from gpud.child.products import TENSOR, lacking, product, shares
from gpud.core.sample import Backend, Pace, ProbeSpec, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpud.child.cuda_gpu import Gpu
    from gpud.child.progress import Budget

SPEC = ProbeSpec(
    name="tensor",
    backend=Backend.CUDA,
    pace=Pace.LARGE,
    unit=Unit.FLOPS_PER_SECOND,
    modes=("tensor",),
    budget_s=20.0,
    summary="tensor cores: FP16 matrix product with FP32 sums, n up to 4096, 2 n^3 flops",
    version=2,
)


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Multiply float16[n, n] by float16[n, n] into float32[n, n], or say that this GPU cannot.

    Units: flop/s. Errors: ``ProbeError``.
    """
    capability = gpu.device.compute_capability
    if missing := lacking("tensor", "tensor probe", capability):
        return Outcome((), (missing,), {})
    series, n = product(gpu, budget, seed, TENSOR, vram_share=SPEC.vram_share)
    return series.outcome(SPEC, {"n": n, **shares(capability)})
