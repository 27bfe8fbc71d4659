"""Cost of a small copy between two GPUs: a flag set in the other one's memory, or read there.

The bytes are next to nothing; what is measured is the way through driver and bus.
"""

from __future__ import annotations

import random

from gpud.child.device import Outcome
from gpud.child.latency import behind_load, sequences
from gpud.child.pair import DIRECT, STAGED, facts, paired, second, without_access
from gpud.child.warmup import warm
from gpud.core.sample import Backend, Pace, ProbeSpec, Unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpud.child.cuda_gpu import Gpu
    from gpud.child.pair import GpuPair
    from gpud.child.progress import Budget
    from gpud.core.sample import Sample

SIZE, BUFFER = 4, 4096  # bytes
MODES = tuple(f"{mode}_4b" for mode in DIRECT)

SPEC = ProbeSpec(
    name="small_peer_copy",
    backend=Backend.CUDA,
    pace=Pace.SMALL,
    unit=Unit.SECONDS,
    modes=(*MODES, *(STAGED + mode for mode in MODES)),
    budget_s=10.0,
    summary="copies of 4 bytes to and from the next GPU, each waited for: with access and without",
    gpu_budget_s=0.03,
    every=60,
    peer=True,
)

COPIES = 150
WARM_UP = 20


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Copy to the other GPU and from it, and wait each time.

    Shapes: uint8[4], 150 of each mode. Units: seconds of host time; GPU time is that of both GPUs.
    Errors: ``ProbeError``; a byte that does not arrive publishes nothing.
    """
    peer = second(gpu)
    pair = paired(gpu, peer, BUFFER)
    warmth = warm(gpu, budget)
    pattern = random.Random(seed).randbytes(BUFFER)  # noqa: S311  # test data, not a secret

    def content(place: int, size: int) -> bytes:
        return pattern[place : place + size]

    pair.write(content)
    samples = _measured(pair, budget, STAGED)
    pair.verify(content, SIZE)
    refusal = peer.refusal_of_access()
    if refusal is None:
        samples += _measured(pair, budget, "")
        pair.verify(content, SIZE)
    missing = without_access(MODES, refusal)
    return Outcome(tuple(samples), missing, {**facts(peer, refusal), **warmth.conditions})


def _measured(pair: GpuPair, budget: Budget, prefix: str) -> list[Sample]:
    """Time both directions, and account for what both GPUs have worked."""
    gpu, calls = pair.gpu, pair.calls(SIZE)
    samples = []
    for mode, call in calls.items():
        sequences(gpu, (call, gpu.wait), WARM_UP, budget)
        timed = sequences(gpu, (call, gpu.wait), COPIES, budget)
        samples.append(timed.sample(f"{prefix}{mode}_4b", SPEC.unit))
    taken_s = behind_load(gpu, budget, *((call,) for call in calls.values()))
    gpu.busy_s += 2 * (COPIES + WARM_UP) * sum(taken_s)
    return samples
