"""Copies between two GPUs: straight to the other one's memory, and staged through the host."""

from __future__ import annotations

import random

from gpud.child.device import Outcome, out_of_memory
from gpud.child.pair import DIRECT, PIECE, STAGED, TO, facts, paired, second, without_access
from gpud.child.summary import summarised
from gpud.child.throughput import elapsed, measured
from gpud.core.sample import Backend, Pace, ProbeSpec, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpud.child.cuda_gpu import Gpu
    from gpud.child.pair import GpuPair
    from gpud.child.progress import Budget
    from gpud.child.throughput import TimedBatches

SPEC = ProbeSpec(
    name="peer_copy",
    backend=Backend.CUDA,
    pace=Pace.LARGE,
    unit=Unit.BYTES_PER_SECOND,
    modes=(*DIRECT, *(STAGED + mode for mode in DIRECT)),
    budget_s=20.0,
    summary="copies to and from the next GPU (64 MiB), with access to its memory and without",
    gpu_budget_s=0.8,
    every=4,
    peer=True,
)

LARGEST = 64 << 20
PAGE = 1 << 16
PILOTS = 3
COPY_S = 0.005
"""GPU time of one copy: all four modes have to fit."""
VERIFY_S, PASSES = 0.2, 5
"""GPU time of all that a run writes and reads from the host, and how often it does that."""


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Copy a buffer to the other GPU and back, first staged, then with access where there is any.

    Shapes: uint8[64 MiB] on each GPU, less where memory is short or a bus is slow. Units: bytes per
    second; GPU time is that of both. Errors: ``ProbeError``; a byte that does not arrive publishes
    nothing.
    """
    peer = second(gpu)
    with peer.current() as other:
        free_bytes = other.memory()[0]
    free_bytes = min(free_bytes, gpu.memory()[0])
    most = min(LARGEST, int(free_bytes * SPEC.vram_share)) // PAGE * PAGE
    if most < 2 * PAGE:
        raise out_of_memory(free_bytes, "a copy")
    rest = random.Random(seed).randbytes(PAGE - 8)  # noqa: S311  # test data, not a secret

    def content(place: int, size: int) -> bytes:
        """No two pages are alike."""
        places = range(place, place + size, PAGE)
        return b"".join(each.to_bytes(8, "little") + rest for each in places)

    pair = paired(gpu, peer, most)
    size = _fitting(pair.part(min(most, PIECE)), content, most)
    pair = pair.part(size)
    pair.write(content)
    series = _measured(pair, budget, STAGED)
    pair.verify(content, size)
    refusal = peer.refusal_of_access()
    if refusal is None:
        series |= _measured(pair, budget, "", len(series))
        pair.verify(content, size)
    return Outcome(
        samples=tuple(
            summarised(batches.rates, mode=mode, unit=SPEC.unit) for mode, batches in series.items()
        ),
        missing=without_access(DIRECT, refusal),
        conditions={
            **facts(peer, refusal),
            "copy_bytes": size,
            "settled": all(batches.settled for batches in series.values()),
            "runs": min(len(batches.rates) for batches in series.values()),
            "batch": min(batches.repeats for batches in series.values()),
        },
    )


def _fitting(pilot: GpuPair, content: Callable[[int, int], bytes], most: int) -> int:
    """Choose a size whose copy takes ``COPY_S`` at most, and whose way to the host ``VERIFY_S``."""
    gpu, size = pilot.gpu, pilot.here.size
    before_s = gpu.busy_s
    pilot.write(content)
    host_s = gpu.busy_s - before_s
    call = pilot.calls(size)[TO]
    copy_s = min(elapsed(gpu, call) for _ in range(PILOTS))  # an idle link is slow at first
    limit = size * min(COPY_S / copy_s, VERIFY_S / PASSES / max(host_s, 1e-6))
    while most > limit and most >= 4 * PAGE:  # by halves: runs of two sizes compare badly
        most = most // 2 // PAGE * PAGE
    return most


def _measured(pair: GpuPair, budget: Budget, prefix: str, done: int = 0) -> dict[str, TimedBatches]:
    """Measure both directions, each with its part of the GPU time left; both GPUs take it."""
    series = {}
    for place, (mode, call) in enumerate(pair.calls(pair.here.size).items(), done):
        share = 0.5 / (len(SPEC.modes) + 1 - place)
        work = float(pair.here.size)
        series[prefix + mode] = measured(pair.gpu, call, work, budget, share=share)
    return series
