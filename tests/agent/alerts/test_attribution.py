"""Which part of a slowdown is the clock's and which the compiler's, on scripted GPUs."""

from __future__ import annotations

import ctypes
import os
import random
from typing import TYPE_CHECKING

import pytest

from gpud.agent.alerts.causes import likely
from gpud.agent.regression import causes as kinds
from gpud.child import kernels
from gpud.child.probes import precision
from gpud.child.progress import Budget
from gpud.child.throughput import measured
from gpud.core.alerts import Cause
from gpud.core.sample import Job
from tests.child.running import GPU, opened
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gpud.core.sample import Condition

    Run = dict[str, Condition]
    Measure = Callable[[Path, float, float, int], Run]

CASES = 20
RUNS = 5
N = 128
FLOPS = 2.0 * N**3
OTHER = (120, 112, 96)
CLOCK_HZ, CYCLE_FLOPS, WIDTH = 1.8e9, 1.2, 16
SMALL_GPU = "device.0.sm_count 1\ndevice.0.free_mem 20000000\n"
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


def precise(folder: Path, clock: float, slower: float, registers: int) -> Run:
    """Run the probe ``precision`` on a small GPU of that clock and compiler."""
    rates = {**dict.fromkeys(("fp64", "tf32", "bf16"), "flops"), "int8": "operations"}
    script = f"{SMALL_GPU}sm_clock_hertz {clock}\ncompiler_factor {slower}\n"
    for mode, name in rates.items():
        script += f"{mode}_{name}_per_second {WIDTH * clock * CYCLE_FLOPS}\n"
        script += f"compiled gpud_matmul_{mode} {registers}\n"
    library = build_libcuda(folder, script)
    with opened(Job(gpu=GPU, cuda_library=str(library)), spin=True) as gpu:
        conditions = precision.run(gpu, Budget(30), 1).conditions
    unload(library)
    return conditions


def unload(library: Path) -> None:
    loader = ctypes.CDLL(None)
    loader.dlopen.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(loader.dlopen(os.fsencode(library), os.RTLD_NOW | os.RTLD_NOLOAD))
    for _ in range(2):  # this reference, and that of the code under test
        loader.dlclose(handle)


def sides(
    folder: Path, kind: str, seed: int, run: Measure = run, other: Sequence[int] = (128, *OTHER)
) -> tuple[list[Run], list[Run]]:
    """Measure the runs before and after one change of 5 to 30 %, of clocks that wander.

    ``other``: of what numbers of registers a compiler's slower code may have one.
    """
    chance = random.Random(f"{kind} {seed}")
    less = 1 - chance.uniform(0.05, 0.3)
    of_clock = less if kind == kinds.SM_CLOCK else 1.0
    slower = 1 / less if kind == kinds.COMPILER else 1.0
    registers = chance.choice(other) if kind == kinds.COMPILER else 128

    def measure(name: str, share: float, factor: float, count: int) -> list[Run]:
        wandering = (CLOCK_HZ * share * chance.gauss(1, 0.01) for _ in range(RUNS))
        return [
            run(folder / f"{name}{number}", clock, factor, count)
            for number, clock in enumerate(wandering)
        ]

    return measure("before", 1, 1, 128), measure("after", of_clock, slower, registers)


@pytest.mark.parametrize("updated", [True, False])
@pytest.mark.parametrize("kind", [kinds.SM_CLOCK, kinds.COMPILER])
def test_the_clock_and_the_compiler_are_told_apart(
    tmp_path: Path, kind: str, *, updated: bool
) -> None:
    right = 0
    for seed in range(CASES):
        before, after = sides(tmp_path / str(seed), kind, seed)
        first, *_ = likely(before, after, [UPDATE] if updated else ())
        right += first.kind == kind
    assert right >= 0.95 * CASES


@pytest.mark.parametrize("kind", [kinds.SM_CLOCK, kinds.COMPILER])
def test_they_are_told_apart_in_every_number_type(tmp_path: Path, kind: str) -> None:
    """A case is a stream. Without pinned code a compiler is named by its other code alone."""
    right = {(): 0, (UPDATE,): 0}
    modes = tuple(precision.METHODS)
    for seed in range(CASES // len(modes)):
        before, after = sides(tmp_path / str(seed), kind, seed, precise, OTHER)
        for mode in modes:
            for changed in right:
                first, *_ = likely(before, after, changed, mode=mode)
                right[changed] += first.kind == kind
    assert min(right.values()) >= 0.95 * CASES
