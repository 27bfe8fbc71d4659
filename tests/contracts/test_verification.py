"""A device that stops working when it is checked: what it did before must not be taken for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud import discovery
from gpud.child import cuda_gpu, probes
from gpud.child.cuda_gpu import Gpu
from gpud.child.progress import Budget
from gpud.child.warmup import UNIT_FLOAT
from gpud.core.errors import ProbeError
from gpud.core.sample import Job, Reason
from tests.child.running import GPU, gpus_of, opened
from tests.child.sweep import A_SMALL_GPU
from tests.contracts.test_device import _unload
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.child.device import Argument, Buffer, Call, HostBuffer, Kernel

PROBES = discovery.modules(probes, ("SPEC", "run"))[0]
NEVER = 1 << 30


class Tired(Gpu):
    """Works, and after ``left`` fills only says that it has done what is in ``stopped``."""

    stopped, left = "", NEVER

    def timed(self, call: Call, repeats: int = 1) -> float:
        return super().timed(call, repeats) or 1e-3  # what it does not do takes its time too

    def fill(self, buffer: Buffer, word: int) -> None:
        super().fill(buffer, word)
        self.left -= word != UNIT_FLOAT  # that one is the load of a warm-up

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

    def copy_across(self, to: Buffer, target: Gpu, source: Buffer, origin: Gpu) -> Call:
        return self._tiring("copy_across", super().copy_across(to, target, source, origin))

    def _tiring(self, kind: str, call: Call) -> Call:
        def real() -> int:
            return 0 if kind == self.stopped and self.left <= 0 else call.real()

        return replace(call, real=real)


CASES = [  # how often a probe fills memory until it checks what comes then
    ("nbody", "launch", 1),
    ("triad", "launch", 3),
    ("matmul", "launch", 1),
    ("tensor", "launch", 1),
    ("precision", "launch", 1),
    ("device_copy", "copy_device", 2),
    ("peer_copy", "copy_across", 1),
    ("small_peer_copy", "copy_across", 1),
    ("copy", "copy_in", 1),
    ("copy", "copy_out", 1),
    ("copy", "second lane", 1),
    ("small_copy", "copy_in", 1),
    ("small_copy", "copy_out", 1),
]


@pytest.mark.parametrize(("probe", "stopped", "fills"), CASES)
def test_what_was_right_before_it_was_checked_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probe: str, stopped: str, fills: int
) -> None:
    library = build_libcuda(tmp_path, f"devices 2\n{A_SMALL_GPU}")
    monkeypatch.setattr(cuda_gpu, "Gpu", Tired)
    monkeypatch.setattr(Tired, "stopped", stopped)
    try:
        peer = gpus_of(probe).get("peer")
        with opened(Job(gpu=GPU, peer=peer, cuda_library=str(library)), spin=False) as gpu:
            assert PROBES[probe].run(gpu, Budget(60), 7).samples
            monkeypatch.setattr(gpu, "left", fills)
            with pytest.raises(ProbeError) as caught:
                PROBES[probe].run(gpu, Budget(60, gpu_s=gpu.busy_s + 1), 7)
    finally:
        _unload(library)
    assert caught.value.failure.reason is Reason.VERIFICATION_FAILED
