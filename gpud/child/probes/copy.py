"""Copies between host and device: page-locked where WSL grants it, ordinary memory elsewhere."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gpud.child.device import Outcome, perform
from gpud.child.throughput import elapsed
from gpud.core.errors import ProbeError
from gpud.core.sample import Backend, Failure, Pace, ProbeSpec, Reason, Unit
from gpud.core.stats import summarised

if TYPE_CHECKING:
    from gpud.child.budget import Budget
    from gpud.child.device import Buffer, Call, Gpu, HostBuffer

SPEC = ProbeSpec(
    name="copy",
    backend=Backend.CUDA,
    pace=Pace.LARGE,
    unit=Unit.BYTES_PER_SECOND,
    modes=("host_to_device", "device_to_host"),
    budget_s=20.0,
    summary="copies over the bus, 64 MiB, page-locked if the driver grants it",
)

SIZE = 64 << 20
SHARE = 4  # of free memory: a quarter at most
PAGE = 1 << 16
RUNS = 9
WARM_UPS = 2


def run(gpu: Gpu, budget: Budget, seed: int) -> Outcome:
    """Copy one buffer in, and back out.

    Shapes: uint8[64 MiB] each way, less where memory is short. Units: bytes per second.
    Errors: ``ProbeError``; a byte that does not come back publishes nothing.
    """
    size = min(SIZE, gpu.memory()[0] // SHARE // PAGE * PAGE)
    if size < PAGE:
        raise ProbeError(Failure(Reason.OUT_OF_MEMORY, "no GPU memory is free for a copy"))
    host, buffer = gpu.host(size), gpu.alloc(size)
    page = random.Random(seed).randbytes(PAGE)  # noqa: S311  # test data, not a secret
    _write(host, page)
    gpu.fill(buffer, 0)
    into, out = gpu.copy_in(buffer, host), gpu.copy_out(host, buffer)
    inward = _rates(gpu, into, size, budget)
    outward = _rates(gpu, out, size, budget)
    _verify(gpu, host, buffer, (into, out), page)
    return Outcome(
        samples=(
            summarised(inward, mode="host_to_device", unit=SPEC.unit),
            summarised(outward, mode="device_to_host", unit=SPEC.unit),
        ),
        missing=(),
        conditions={"pinned": host.pinned, "copy_bytes": size},
    )


def _rates(gpu: Gpu, call: Call, size: int, budget: Budget) -> list[float]:
    for _ in range(WARM_UPS):
        gpu.timed(call)
    found = []
    for _ in range(RUNS):
        found.append(size / elapsed(gpu, call))
        budget.check()
    return found


def _write(host: HostBuffer, page: bytes) -> None:
    for place in range(0, len(host.view), PAGE):
        host.view[place : place + PAGE] = _page(place, page)


def _page(place: int, page: bytes) -> bytes:
    return place.to_bytes(8, "little") + page[8:]  # no two pages alike


def _verify(
    gpu: Gpu, host: HostBuffer, buffer: Buffer, calls: tuple[Call, Call], page: bytes
) -> None:
    """Go in and out once more, with both sides cleared in between, and compare every byte.

    The pattern is written anew: a copy out that spoils a byte has spoilt it here already, and the
    next one may put it right again.
    """
    into, out = calls
    _write(host, page)
    gpu.fill(buffer, 0)
    perform(gpu, into)
    host.view[:] = bytes(len(host.view))
    perform(gpu, out)
    for place in range(0, len(host.view), PAGE):
        if host.view[place : place + PAGE] != _page(place, page):
            raise ProbeError(
                Failure(Reason.VERIFICATION_FAILED, f"bytes near {place} did not come back")
            )
