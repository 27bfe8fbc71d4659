"""The large probes' work through PyTorch or CuPy: one JSON object of rates on stdout.

    python3 -P frameworks.py torch|cupy '{"triad_bytes": ..., "copy_bytes": ..., ...}'

A process of its own, because either takes seconds to import and holds GPU memory. Batches between
events, about 20 ms each, 9 of them after a warm-up; results are compared before a rate is printed.
"""

from __future__ import annotations

import importlib
import json
import sys
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH_MS = 20.0
WARM_UP_MS = 400.0
BATCHES = 9
MOST_REPEATS = 1000
SCALE = 3.0


def main() -> int:
    """Measure with the framework that is named."""
    name, sizes = sys.argv[1], json.loads(sys.argv[2])
    module: Any = importlib.import_module(name)
    figures = with_torch(module, sizes) if name == "torch" else with_cupy(module, sizes)
    print(json.dumps(figures))
    return 0


def with_torch(torch: Any, sizes: dict[str, int]) -> dict[str, float]:  # noqa: ANN401  # a module
    """Measure with PyTorch: float32 products without TF32, half ones as its matmul does them."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(1)

    def event() -> Any:  # noqa: ANN401
        return torch.cuda.Event(enable_timing=True)

    def rate(work: Callable[[], object], amount: float) -> float:
        return timed(work, amount, event, lambda e: e.record(), lambda a, b: a.elapsed_time(b))

    figures: dict[str, float] = {}
    count = sizes["triad_bytes"] // 4
    b, c = (torch.randint(-1000, 1000, (count,), device="cuda").float() for _ in range(2))
    a = torch.full_like(b, float("nan"))
    figures["triad"] = rate(lambda: torch.add(b, c, alpha=SCALE, out=a), 12.0 * count)
    ensure(bool((a == b + SCALE * c).all()), "torch.add")
    figures["device_copy"] = rate(lambda: a.copy_(b), 8.0 * count)
    ensure(bool((a == b).all()), "copy_")
    size = sizes["copy_bytes"]
    host = torch.randint(0, 256, (size,), dtype=torch.uint8).pin_memory()
    back, device = (
        torch.zeros_like(host).pin_memory(),
        torch.zeros(size, dtype=torch.uint8, device="cuda"),
    )
    figures["host_to_device"] = rate(lambda: device.copy_(host, non_blocking=True), size)
    figures["device_to_host"] = rate(lambda: back.copy_(device, non_blocking=True), size)
    torch.cuda.synchronize()
    ensure(bool((back == host).all()), "copies over the bus")
    for name, n, kind in products(sizes, torch.float32, torch.float16):
        left, right = (torch.randint(-8, 9, (n, n), device="cuda").to(kind) for _ in range(2))
        out = torch.full_like(left, float("nan"))
        figures[name] = rate(lambda x=left, y=right, o=out: torch.matmul(x, y, out=o), 2.0 * n**3)
        exact = left[:8].double() @ right.double()
        off = ((out[:8].double() - exact).norm() / exact.norm()).item()
        ensure(off < 1e-2, f"matmul, which is off by {off}")  # noqa: PLR2004  # FP16 results
    return figures


def with_cupy(cupy: Any, sizes: dict[str, int]) -> dict[str, float]:  # noqa: ANN401  # a module
    """Measure with CuPy: a fused kernel for the triad, its BLAS for the products."""
    import ctypes

    chance = cupy.random.RandomState(1)

    def rate(work: Callable[[], object], amount: float) -> float:
        return timed(
            work, amount, cupy.cuda.Event, lambda e: e.record(), cupy.cuda.get_elapsed_time
        )

    figures: dict[str, float] = {}
    count = sizes["triad_bytes"] // 4
    kernel = cupy.ElementwiseKernel(
        "float32 b, float32 c, float32 s", "float32 a", "a = b + s * c", "triad"
    )
    b, c = (chance.randint(-1000, 1000, count).astype(cupy.float32) for _ in range(2))
    a = cupy.full_like(b, cupy.nan)
    figures["triad"] = rate(lambda: kernel(b, c, cupy.float32(SCALE), a), 12.0 * count)
    ensure(bool((a == b + cupy.float32(SCALE) * c).all()), "ElementwiseKernel")
    figures["device_copy"] = rate(lambda: cupy.copyto(a, b), 8.0 * count)
    ensure(bool((a == b).all()), "copyto")
    size = sizes["copy_bytes"]
    host, back = cupy.cuda.alloc_pinned_memory(size), cupy.cuda.alloc_pinned_memory(size)
    content = bytes(range(251)) * (size // 251 + 1)
    ctypes.memmove(host.ptr, content, size)
    ctypes.memset(back.ptr, 0, size)
    device = cupy.empty(size, dtype=cupy.uint8)
    stream = cupy.cuda.get_current_stream()
    figures["host_to_device"] = rate(
        lambda: device.data.copy_from_host_async(ctypes.c_void_p(host.ptr), size, stream), size
    )
    figures["device_to_host"] = rate(
        lambda: device.data.copy_to_host_async(ctypes.c_void_p(back.ptr), size, stream), size
    )
    stream.synchronize()
    ensure(ctypes.string_at(back.ptr, size) == content[:size], "copies over the bus")
    for name, n, kind in products(sizes, cupy.float32, cupy.float16):
        left, right = (chance.randint(-8, 9, (n, n)).astype(kind) for _ in range(2))
        out = cupy.full_like(left, cupy.nan)
        figures[name] = rate(lambda x=left, y=right, o=out: cupy.matmul(x, y, out=o), 2.0 * n**3)
        exact = left[:8].astype(cupy.float64) @ right.astype(cupy.float64)
        off = float(
            cupy.linalg.norm(out[:8].astype(cupy.float64) - exact) / cupy.linalg.norm(exact)
        )
        ensure(off < 1e-2, f"matmul, which is off by {off}")  # noqa: PLR2004  # FP16 results
    return figures


def products(sizes: dict[str, int], single: object, half: object) -> list[tuple[str, int, object]]:
    """The matrix products: row, size, type of the factors."""
    return [("matmul", sizes["matmul"], single), ("tensor", sizes["tensor"], half)]


def timed(
    work: Callable[[], object],
    amount: float,
    event: Callable[[], Any],
    record: Callable[[Any], object],
    elapsed_ms: Callable[[Any, Any], float],
) -> float:
    """Give the median of ``BATCHES`` rates. Units: ``amount`` per second."""

    def batch(repeats: int) -> float:
        first, last = event(), event()
        record(first)
        for _ in range(repeats):
            work()
        record(last)
        last.synchronize()
        return float(elapsed_ms(first, last))

    batch(2)
    repeats = max(1, min(int(BATCH_MS / max(batch(2) / 2, 1e-3)), MOST_REPEATS))
    warm = 0.0
    while warm < WARM_UP_MS:
        warm += batch(repeats)
    return median(repeats * amount / (batch(repeats) / 1e3) for _ in range(BATCHES))


def ensure(right: bool, what: str) -> None:  # noqa: FBT001  # a condition
    """End without a figure where a result is wrong."""
    if not right:
        sys.exit(f"wrong result of {what}")


if __name__ == "__main__":
    sys.exit(main())
