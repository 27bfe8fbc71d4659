"""Arithmetic as programs use it: the FP32 matrix product, without tensor cores.

It is measured twice: as the driver's compiler makes it, and as machine code that is pinned. What
slows both is the GPU or its clocks; what slows the first alone is the compiler.
"""

from __future__ import annotations

from gpud.child import kernels
from gpud.child.device import Outcome
from gpud.child.products import PLAIN, product
from gpud.core.errors import ProbeError
from gpud.core.record import replace
from gpud.core.sample import Backend, Missing, Pace, ProbeSpec, Reason, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpud.child.cuda_gpu import Gpu
    from gpud.child.products import Method
    from gpud.child.progress import Budget

SPEC = ProbeSpec(
    name="matmul",
    backend=Backend.CUDA,
    pace=Pace.LARGE,
    unit=Unit.FLOPS_PER_SECOND,
    modes=("matmul", "pinned"),
    budget_s=20.0,
    summary="FP32 matrix product, n up to 4096, 2 n^3 flops",
    version=2,
)

COMPILED_SHARE, PINNED_SHARE = 0.9, 0.1
"""Of the GPU time that is left when each begins: the clocks are up when the pinned one does."""
OF_PINNED = frozenset(
    {Reason.PTX_REJECTED, Reason.BUDGET_EXCEEDED, Reason.OUT_OF_MEMORY, Reason.VRAM_SHORT}
)
"""Failures that cost the pinned figure alone: a newer assembler, too little time or memory."""


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Multiply float32[n, n] by float32[n, n]. Units: flop/s. Errors: ``ProbeError``."""
    compiled = _multiplied(gpu, budget, seed, PLAIN, COMPILED_SHARE)
    pinned = _pinned(gpu, budget, seed)
    return replace(
        compiled,
        samples=(*compiled.samples, *(replace(each, mode="pinned") for each in pinned.samples)),
        missing=pinned.missing,
        conditions={
            **compiled.conditions,
            **{f"pinned.{name}": value for name, value in pinned.conditions.items()},
        },
    )


def _pinned(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Multiply by the machine code that this GPU runs; or say why there is none."""
    capability = gpu.device.compute_capability
    file = kernels.pinned("matmul_128", capability)
    if file is None:
        why = f"no machine code is shipped for compute capability {capability}"
        return Outcome((), (Missing("pinned", Reason.UNSUPPORTED, why),), {})
    try:
        return _multiplied(gpu, budget, seed, replace(PLAIN, pinned=file), PINNED_SHARE)
    except ProbeError as error:
        if error.failure.reason not in OF_PINNED:
            raise
        missing = Missing("pinned", error.failure.reason, error.failure.detail)
        return Outcome((), (missing,), {})


def _multiplied(gpu: Gpu, budget: Budget, seed: int, method: Method, share: float) -> Outcome:
    series, n = product(gpu, budget, seed, method, vram_share=SPEC.vram_share, share=share)
    return series.outcome(SPEC, {"n": n})
