"""Cost of a small transfer: a result of four bytes, a page of parameters, there and back.

The bytes are next to nothing; what is measured is the way through driver, bus and host.
"""

from __future__ import annotations

import random

from gpud.child.device import Outcome, verification_failed
from gpud.child.latency import behind_load, bounded, sequences
from gpud.child.warmup import warm
from gpud.core.sample import Backend, Pace, ProbeSpec, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Buffer, Call, HostBuffer
    from gpud.child.progress import Budget

INTO, OUT, BOTH = WAYS = ("host_to_device", "device_to_host", "round_trip")
SIZES = {"4b": 4, "4kib": 4096}

SPEC = ProbeSpec(
    name="small_copy",
    backend=Backend.CUDA,
    pace=Pace.SMALL,
    unit=Unit.SECONDS,
    modes=tuple(f"{way}_{name}" for way in WAYS for name in SIZES),
    budget_s=10.0,
    summary="copies of 4 bytes and of 4 KiB, each waited for: in, out, and in and out",
    version=2,
    gpu_budget_s=0.008,
    every=5,
)

COPIES = 250
WARM_UP = 20


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Copy in, out, and in and out again, and wait each time.

    Shapes: uint8[4] and uint8[4096], 250 of each mode. Units: seconds of host time.
    Errors: ``ProbeError``; a byte that does not come back publishes nothing.
    """
    largest = max(SIZES.values())
    there, back, buffer = gpu.host(largest), gpu.host(largest), gpu.alloc(largest)
    warmth = warm(gpu, budget)
    pinned = there.pinned and back.pinned
    conditions = {**warmth.conditions, "pinned": pinned}
    samples = []
    for name, size in SIZES.items():
        into = gpu.copy_in(buffer, there, size=size)
        out = gpu.copy_out(back, buffer, size=size)
        timed = {}
        for way, calls in zip(WAYS, ((into,), (out,), (into, out)), strict=True):
            sequences(gpu, (*calls, gpu.wait), WARM_UP, budget)
            timed[way] = sequences(gpu, (*calls, gpu.wait), COPIES, budget)
        both_s, into_s = behind_load(gpu, budget, (into, out), (into,))
        gpu.busy_s += 2 * (COPIES + WARM_UP) * both_s  # each copy was done in two modes
        least_s = 0.0  # the host does a part of copies of ordinary memory: no event sees the GPU's
        if pinned:
            least_s = timed[INTO].net_s + both_s - into_s
        timed[BOTH] = bounded(timed[BOTH], 2, least_s)
        conditions[f"bound.{BOTH}_{name}"] = timed[BOTH].bound
        samples += [timed[way].sample(f"{way}_{name}", SPEC.unit) for way in WAYS]
        _verify(gpu, (into, out), (there, back, buffer), size, seed)
    return Outcome(tuple(samples), (), conditions)


def _verify(
    gpu: Gpu,
    calls: tuple[Call, Call],
    memory: tuple[HostBuffer, HostBuffer, Buffer],
    size: int,
    seed: int,
) -> None:
    """Send a new pattern there and back through cleared memory: these bytes, and no others."""
    into, out = calls
    there, back, buffer = memory
    pattern = random.Random(seed).randbytes(len(there.view))  # noqa: S311  # test data, not a secret
    there.view[:] = pattern
    gpu.fill(buffer, 0)
    gpu.perform(into)
    back.view[:] = bytes(len(back.view))
    gpu.perform(out)
    if bytes(back.view) != pattern[:size] + bytes(len(pattern) - size):
        detail = f"{size} bytes did not come back as they were sent"
        raise verification_failed(detail)
