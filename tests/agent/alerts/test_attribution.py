"""Which part of a slowdown is the clock's and which the compiler's, on scripted GPUs."""

from __future__ import annotations

import ctypes
import os
import random
from typing import TYPE_CHECKING

import pytest

from gpud.agent.alerts import causes
from gpud.child import kernels
from gpud.child.progress import Budget
from gpud.child.throughput import measured
from gpud.core.alerts import Cause
from gpud.core.sample import Job
from tests.child.running import GPU, opened
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.core.sample import Condition

    Run = dict[str, Condition]

RUNS = 5
N = 128
FLOPS = 2.0 * N**3
CLOCK_HZ, CYCLE_FLOPS = 1.8e9, 1.2
UPDATE = Cause("driver_version", "572.16", "576.02")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_MODULE_LOADING", "CUDA_DEVICE_ORDER"):
        monkeypatch.setenv(name, "")


def run(folder: Path, clock: float, slower: float, registers: int) -> Run:
    """Measure one product on a GPU of that clock, whose compiler's code is so much slower."""
    script = (
        f"sm_clock_hertz {clock}\nflops_per_second {clock * CYCLE_FLOPS}\n"
        f"compiler_factor {slower}\ncompiled gpud_matmul_128 {registers}\n"
    )
    library = build_libcuda(folder, script)
    conditions: Run = {}
    with opened(Job(gpu=GPU, cuda_library=str(library)), spin=True) as gpu:
        buffers = [gpu.alloc(4 * N * N) for _ in range(3)]
        for prefix, file in (("", None), ("pinned.", kernels.pinned("matmul_128", "8.9"))):
            kernel = gpu.kernel("gpud_matmul_128", file)
            call = gpu.launch(kernel, (1, 1), (16, 16), *buffers, N)
            series = measured(gpu, call, FLOPS, Budget(30), share=0.4)
            conditions |= {prefix + name: value for name, value in series.clock.items()}
    unload(library)
    return conditions


def unload(library: Path) -> None:
    loader = ctypes.CDLL(None)
    loader.dlopen.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(loader.dlopen(os.fsencode(library), os.RTLD_NOW | os.RTLD_NOLOAD))
    for _ in range(2):  # this reference, and that of the code under test
        loader.dlclose(handle)


@pytest.mark.parametrize(
    ("kind", "clock", "slower", "registers"),
    [(causes.SM_CLOCK, 0.88, 1.0, 128), (causes.COMPILER, 1.0, 1.12, 120)],
)
def test_the_clock_and_the_compiler_are_told_apart(  # a change and a probe
    tmp_path: Path,
    kind: str,
    clock: float,
    slower: float,
    registers: int,
) -> None:
    """A change of 12 % between runs on clocks that wander by a percent."""
    chance = random.Random(kind)
    before, after = (
        [
            run(tmp_path / f"{share}{number}", CLOCK_HZ * share * chance.gauss(1, 0.01), *code)
            for number in range(RUNS)
        ]
        for share, code in ((1.0, (1.0, 128)), (clock, (slower, registers)))
    )
    for changed in ((), (UPDATE,)):
        first, *_ = causes.likely(before, after, changed)
        assert first.kind == kind
