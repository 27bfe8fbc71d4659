"""Arithmetic as programs use it: the FP32 matrix product, without tensor cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.child.products import FP32, product
from gpud.core.sample import Backend, Pace, ProbeSpec, Unit

if TYPE_CHECKING:
    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Outcome
    from gpud.child.progress import Budget

SPEC = ProbeSpec(
    name="matmul",
    backend=Backend.CUDA,
    pace=Pace.LARGE,
    unit=Unit.FLOPS_PER_SECOND,
    modes=("matmul",),
    budget_s=20.0,
    summary="FP32 matrix product, n up to 4096, 2 n^3 flops",
)


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Multiply float32[n, n] by float32[n, n]. Units: flop/s. Errors: ``ProbeError``."""
    return product(gpu, budget, seed, SPEC, FP32)
