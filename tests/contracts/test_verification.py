"""A device that stops working when it is checked: what it did before must not be taken for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud import discovery
from gpud.child import probes
from gpud.child.budget import Budget
from gpud.child.cpu import CpuGpu
from gpud.core.errors import ProbeError
from gpud.core.sample import Reason

if TYPE_CHECKING:
    from gpud.child.device import Argument, Buffer, Call, HostBuffer, Kernel

PROBES = discovery.modules(probes, ("SPEC", "run"))[0]


class Tired(CpuGpu):
    """Counts time, works, and after ``fills`` fills only says that it has done ``stopped``."""

    def __init__(self, stopped: str, fills: int) -> None:
        super().__init__()
        self.stopped = stopped
        self.left = fills

    def memory(self) -> tuple[int, int]:
        return 48 << 20, 1 << 30

    def host(self, size: int, *, pinned: bool = True) -> HostBuffer:
        return replace(super().host(size), pinned=pinned)

    def timed(self, call: Call, repeats: int = 1) -> float:
        self.check(call.real(), call)
        return 0.015 * repeats

    def together(self, left: Call, right: Call, repeats: int = 1) -> float:
        return self.timed(left, repeats) + self.timed(right, 0)

    def fill(self, buffer: Buffer, word: int) -> None:
        super().fill(buffer, word)
        self.left -= 1

    def launch(
        self, kernel: Kernel, grid: tuple[int, int], block: tuple[int, int], *arguments: Argument
    ) -> Call:
        return self._tiring("launch", super().launch(kernel, grid, block, *arguments))

    def copy_in(
        self, buffer: Buffer, host: HostBuffer, *, size: int | None = None, lane: int = 0
    ) -> Call:
        return self._tiring("copy_in", super().copy_in(buffer, host, size=size, lane=lane))

    def copy_out(
        self, host: HostBuffer, buffer: Buffer, *, size: int | None = None, lane: int = 0
    ) -> Call:
        kind = "copy_out" if lane == 0 else "second lane"
        return self._tiring(kind, super().copy_out(host, buffer, size=size, lane=lane))

    def copy_device(self, to: Buffer, source: Buffer) -> Call:
        return self._tiring("copy_device", super().copy_device(to, source))

    def _tiring(self, kind: str, call: Call) -> Call:
        def real() -> int:
            return 0 if kind == self.stopped and self.left <= 0 else call.real()

        return replace(call, real=real)


NEVER = 1 << 30
CASES = [  # how often a probe fills memory until it checks what comes then
    ("nbody", "launch", 1),
    ("triad", "launch", 3),
    ("matmul", "launch", 1),
    ("tensor", "launch", 1),
    ("device_copy", "copy_device", 2),
    ("copy", "copy_in", 1),
    ("copy", "copy_out", 1),
    ("copy", "second lane", 1),
    ("small_copy", "copy_in", 6),  # two loads of the warm-up, the first size and two loads for it
    ("small_copy", "copy_out", 6),
]


@pytest.mark.parametrize(("probe", "stopped", "fills"), CASES)
def test_what_was_right_before_it_was_checked_is_not_believed(
    probe: str, stopped: str, fills: int
) -> None:
    assert PROBES[probe].run(Tired(stopped, NEVER), Budget(60), 7).samples
    with pytest.raises(ProbeError) as caught:
        PROBES[probe].run(Tired(stopped, fills), Budget(60), 7)
    assert caught.value.failure.reason is Reason.VERIFICATION_FAILED
