"""What is named as a cause: only what became another with the figures, the likeliest first."""

from __future__ import annotations

import ctypes
import os
import random
from typing import TYPE_CHECKING

import pytest

from gpud.agent.alerts import causes
from gpud.agent.alerts.causes import PINNED, likely
from gpud.child import kernels
from gpud.child.progress import Budget
from gpud.child.throughput import measured
from gpud.core.alerts import Cause
from gpud.core.sample import Condition, Job
from gpud.words import cause_words
from tests.child.running import GPU, opened
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from pathlib import Path

    MeasuredRun = dict[str, Condition]


Run = dict[str, "Condition"]

USUAL: Run = {
    "after.power_limit_watts": 115.0,
    "after.pcie_generation": 4.0,
    "after.pcie_width": 16.0,
    "after.throttle_reasons": "none",
    "after.clock_sm_hertz": 2.4e9,
    "after.clock_memory_hertz": 8e9,
    "after.temperature_celsius": 61.0,
    "after.ac": True,
    "before.memory_free_bytes": 7e9,
    "before.memory_used_bytes": 1e9,
    "clocksource": "tsc",
    "python": "3.11.2",
    "load_1m": 0.3,
}


def runs(other: Run | None = None, *, count: int = 9) -> list[Run]:
    """Give the same run so often, the usual one but for ``other``."""
    return [USUAL | (other or {})] * count


@pytest.mark.parametrize(
    ("other", "words_"),
    [
        ({"after.power_limit_watts": 80.0}, "power limit 115 W -> 80 W"),
        ({"after.pcie_width": 8.0}, "PCIe link gen 4 x16 -> gen 4 x8"),
        ({"after.pcie_generation": 3.0}, "PCIe link gen 4 x16 -> gen 3 x16"),
        (
            {"after.throttle_reasons": "thermal,hw_thermal", "after.temperature_celsius": 87.0},
            "clocks held down by hw_thermal, thermal (61 -> 87 degrees C)",
        ),
        ({"after.clock_sm_hertz": 1.9e9}, "SM clock 2400 MHz -> 1900 MHz"),
        ({"after.clock_memory_hertz": 5e9}, "memory clock 8000 MHz -> 5000 MHz"),
        ({"after.ac": False}, "power mains -> battery"),
        ({"before.memory_free_bytes": 5e7}, "free GPU memory 88% -> 5%"),
        ({"before.memory_free_bytes": 0.0}, "free GPU memory 88% -> 0%"),
        ({"clocksource": "hyperv_clocksource_tsc_page"}, "clock source tsc -> hyperv_clocksource"),
        ({"python": "3.12.1"}, "Python 3.11.2 -> 3.12.1"),
        ({"load_1m": 3.9}, "load of the CPU 0.3 -> 3.9"),
    ],
)
def test_what_differs_is_named_with_both_sides(other: Run, words_: str) -> None:
    (cause,) = likely(runs(), runs(other))
    assert cause_words(cause).startswith(words_)


THROTTLED: Run = {"after.throttle_reasons": "thermal"}
WEAK: Run = {"after.power_limit_watts": 60.0, "after.ac": False}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # It wanders.
        (runs(), runs({"after.power_limit_watts": 112.0, "after.clock_sm_hertz": 2.35e9})),
        (runs(), runs({"after.temperature_celsius": 85.0, "after.throttle_reasons": "idle"})),
        (runs(), runs({"load_1m": 1.1, "before.memory_free_bytes": 2e9})),
        (runs({"load_1m": 4.0}), runs({"load_1m": 5.5})),
        # It became better, or was so before.
        (runs(WEAK | {"after.clock_sm_hertz": 1e9, "load_1m": 9.0}), runs()),
        (runs(THROTTLED | WEAK), runs(THROTTLED | WEAK)),
        (runs({"before.memory_free_bytes": 5e7}), runs({"before.memory_free_bytes": 5e7})),
        # It is not known on one side, of too few runs, or no value.
        ([{}] * 9, runs(WEAK)),
        (runs(), [{}] * 9),
        (runs(count=4), runs(WEAK)),
        (runs(), runs({"after.power_limit_watts": "80", "load_1m": True, "python": 3})),
        # A few odd runs decide nothing, and a link that sleeps now and then is as wide as before.
        (runs(), [*runs(count=6), *runs(WEAK, count=3)]),
        (
            runs(),
            [*runs(count=4), *runs({"python": "3"}, count=5), *runs({"python": "4"}, count=3)],
        ),
        (runs(), [*runs(count=8), *runs(THROTTLED, count=2)]),
        (runs(), [*runs({"after.pcie_generation": 1.0}, count=8), *runs(count=2)]),
    ],
)
def test_what_did_not_become_worse_is_no_cause(before: list[Run], after: list[Run]) -> None:
    (cause,) = likely(before, after)
    assert cause_words(cause) == "nothing that gpud records changed"


def test_link_is_compared_by_its_peaks_and_heat_only_where_it_rose() -> None:
    asleep = [*runs({"after.pcie_generation": 1.0}, count=8), *runs(count=2)]
    (link,) = likely(asleep, runs({"after.pcie_generation": 3.0}))
    assert link.kind == "pcie"
    (cold,) = likely(runs(), runs(THROTTLED | {"after.temperature_celsius": 55.0}))
    assert cause_words(cold) == "clocks held down by thermal"


def test_driver_kernel_and_windows_come_first() -> None:
    changed = [Cause("windows_build", "26100.1", "26100.2"), Cause("driver_version", "1", "2")]
    message = Cause("dxg", detail="the kernel's log: message lost")
    causes = likely(runs(), runs({"after.power_limit_watts": 80.0}), changed, [message])
    assert [cause.kind for cause in causes] == ["driver", "windows", "dxg", "power_limit"]


def test_change_that_is_the_update_itself_is_named_once() -> None:
    kernel = Cause("kernel", "6.6.75-microsoft", "6.6.87-microsoft")
    assert likely(runs(), runs(), [kernel], [kernel]) == (Cause("kernel", "6.6.75", "6.6.87"),)
    (cause,) = likely([], [], [Cause("kernel", "6.6.87-a", "6.6.87-b")])
    assert (cause.old, cause.new) == ("6.6.87-a", "6.6.87-b")  # only their names differ


CLOCKED: Run = {
    "sm_clock_hertz": 1.8e9,
    "work_per_cycle": 7000.0,
    "code": "128 registers, 16640 B shared, 0 B local",
    "pinned.sm_clock_hertz": 1.8e9,
    "pinned.work_per_cycle": 7000.0,
}
UPDATE = Cause("driver_version", "572.16", "576.02")
HALF: Run = {"work_per_cycle": 3500.0}
OTHER_CODE: Run = {"code": "120 registers, 16640 B shared, 64 B local"}
NO_PINNED: Run = {"pinned.work_per_cycle": None}


@pytest.mark.parametrize(
    ("other", "words_"),
    [
        ({"sm_clock_hertz": 1.5e9}, "SM clock 1800 MHz -> 1500 MHz (a cycle does as much as"),
        (HALF, "the driver's compiler makes slower code: pinned code does as much in a cycle as"),
        (
            HALF | OTHER_CODE,
            "code by the driver's compiler 128 registers, 0 B local -> 120 registers, 64 B local (",
        ),
        (
            HALF | OTHER_CODE | NO_PINNED,
            "code by the driver's compiler 128 registers, 0 B local -> 120 registers, 64 B local",
        ),
        # Not the compiler: the GPU does less in a cycle, whoever made the code; or nobody knows.
        (HALF | OTHER_CODE | {"pinned.work_per_cycle": 3500.0}, "driver 572.16 -> 576.02"),
        (HALF | OTHER_CODE | {"pinned.work_per_cycle": 5500.0}, "driver 572.16 -> 576.02"),
        (HALF | NO_PINNED, "driver 572.16 -> 576.02"),
        (OTHER_CODE, "driver 572.16 -> 576.02"),
        ({"sm_clock_hertz": None}, "driver 572.16 -> 576.02"),
    ],
)
def test_what_explains_the_figures_comes_before_the_update(other: Run, words_: str) -> None:
    first, *_ = likely(runs(CLOCKED), runs(CLOCKED | other), [UPDATE])
    assert cause_words(first).startswith(words_)


@pytest.mark.parametrize(
    ("other", "words_"),
    [
        (HALF | OTHER_CODE, "driver 572.16 -> 576.02"),
        (HALF | OTHER_CODE | {"pinned.work_per_cycle": 3500.0}, "driver 572.16 -> 576.02"),
        ({"pinned.sm_clock_hertz": 1.5e9}, "SM clock 1800 MHz -> 1500 MHz (a cycle does as much"),
    ],
)
def test_pinned_machine_code_is_never_slow_by_the_compiler(other: Run, words_: str) -> None:
    first, *_ = likely(runs(CLOCKED), runs(CLOCKED | other), [UPDATE], mode=PINNED)
    assert cause_words(first).startswith(words_)


def test_clock_that_nvml_saw_too_is_named_once() -> None:
    lower: Run = {"sm_clock_hertz": 1.5e9, "after.clock_sm_hertz": 1.5e9}
    clocks = [c for c in likely(runs(CLOCKED), runs(CLOCKED | lower)) if c.kind == "sm_clock"]
    assert [(cause.old, cause.new) for cause in clocks] == [("1800 MHz", "1500 MHz")]


RUNS = 5
N = 128
FLOPS = 2.0 * N**3
CLOCK_HZ, CYCLE_FLOPS = 1.8e9, 1.2
NEW_DRIVER = Cause("driver_version", "572.16", "576.02")


def measured_run(folder: Path, clock: float, slower: float, registers: int) -> MeasuredRun:
    """Measure one product on a GPU of that clock, whose compiler's code is so much slower."""
    script = (
        f"sm_clock_hertz {clock}\nflops_per_second {clock * CYCLE_FLOPS}\n"
        f"compiler_factor {slower}\ncompiled gpud_matmul_128 {registers}\n"
    )
    library = build_libcuda(folder, script)
    conditions: MeasuredRun = {}
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
    ("kind", "clock", "code"),
    [(causes.SM_CLOCK, 0.88, (1.0, 128)), (causes.COMPILER, 1.0, (1.12, 120))],
)
def test_the_clock_and_the_compiler_are_told_apart(  # a change and a probe
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    clock: float,
    code: tuple[float, int],
) -> None:
    """A change of 12 % between runs on clocks that wander by a percent."""
    for name in ("CUDA_MODULE_LOADING", "CUDA_DEVICE_ORDER"):
        monkeypatch.setenv(name, "")
    chance = random.Random(kind)
    before, after = (
        [
            measured_run(
                tmp_path / f"{share}{number}", CLOCK_HZ * share * chance.gauss(1, 0.01), *made_by
            )
            for number in range(RUNS)
        ]
        for share, made_by in ((1.0, (1.0, 128)), (clock, code))
    )
    for changed in ((), (NEW_DRIVER,)):
        first, *_ = causes.likely(before, after, changed)
        assert first.kind == kind
