"""Where the GPU begins to win, beside a driver whose costs are known in real time."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gpud.child.probes.crossover import SIZES, Crossing, crossing, outcome
from gpud.core.sample import Point, Reason
from tests.child.running import INTERPRETED, Ended, scripted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BLAS_THREADS = "OPENBLAS_NUM_THREADS"
SPINS = 4
"""Calls of the driver that a script makes last: three copies and the wait."""
AT_MOST_640 = "flops_per_second 2.7e10"
"""A kernel of 640 then takes 20 ms of the GPU's own time, and nothing larger is tried."""


@pytest.fixture(autouse=True)
def _single_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that others use too gives one thread a steady pace, and many none."""
    monkeypatch.setenv(BLAS_THREADS, "1")


ALONE = f"""
import json, time
import numpy as np

found = {{}}
for n in {[n for n in SIZES if n <= 640]}:
    a = np.ones((n, n), np.float32)
    c = np.empty_like(a)
    taken = []
    for _ in range(9):
        begun = time.perf_counter()
        np.matmul(a, a, out=c)
        taken.append(time.perf_counter() - begun)
    found[n] = sorted(taken)[4]
print(json.dumps(found))
"""


def alone() -> dict[int, float]:
    """What numpy takes on one thread for each size, measured without gpud. Units: seconds."""
    text = subprocess.run([sys.executable, "-I", "-c", ALONE], capture_output=True, check=True)
    return {int(n): seconds for n, seconds in json.loads(text.stdout).items()}


def costing(seconds: float) -> str:
    """A GPU whose product costs this much at every size, in real time."""
    nanoseconds = round(seconds / SPINS * 1e9)
    return f"copy_ns {nanoseconds}\nsync_ns {nanoseconds}\n{AT_MOST_640}"


def answer(ended: Ended) -> int:
    elements: float = ended.samples["crossover"]["median"]
    n = round(math.sqrt(elements))
    assert n * n == elements
    return n


@pytest.mark.parametrize("expected", [128, 256])  # short beside a busy core's time slice
def test_the_answer_is_where_numpy_takes_as_long_as_the_gpu(tmp_path: Path, expected: int) -> None:
    took = alone()
    cost_s = (took[SIZES[SIZES.index(expected) - 1]] * took[expected]) ** 0.5
    result = answer(scripted(tmp_path, "crossover", costing(cost_s)))
    assert abs(SIZES.index(result) - SIZES.index(expected)) <= 1


def test_a_gpu_that_is_slower_everywhere_is_missing_with_the_curve_that_shows_it(
    tmp_path: Path,
) -> None:
    ended = scripted(
        tmp_path, "crossover", "sync_ns 20000000\nflops_per_second 4e8", clock=INTERPRETED
    )
    assert ended.samples == {}
    (missing,) = ended.document["missing"]
    curve = ended.document["curve"]
    assert missing["reason"] == Reason.CPU_ALWAYS_FASTER
    assert f"up to {curve[-1]['n']} x" in missing["detail"]
    assert all(point["cpu_s"] < 20e-3 <= point["gpu_s"] for point in curve)
    assert ended.document["conditions"]["note"] is None


def test_a_gpu_that_is_faster_everywhere_wins_from_the_smallest_matrix_on() -> None:
    curve = (Point(16, 2e-3, 1e-3), Point(32, 4e-3, 1e-3))
    result = outcome(Crossing(16, None, curve), {"settled": True})
    assert [sample.median for sample in result.samples] == [256]
    assert result.conditions["note"] == "gpu_always_faster"
    assert (result.missing, result.curve) == ((), curve)


def test_the_curve_ascends_and_holds_both_sides_of_the_crossing(tmp_path: Path) -> None:
    ended = scripted(tmp_path, "crossover", costing(4e-5))  # far below what the largest take
    curve = ended.document["curve"]
    sizes = [point["n"] for point in curve]
    assert sizes == sorted(set(sizes))
    won = {point["n"]: point["gpu_s"] < point["cpu_s"] for point in curve}
    conditions = ended.document["conditions"]
    assert answer(ended) == conditions["n"]
    assert not won[conditions["below"]]
    assert all(won[n] for n in sizes if n >= conditions["n"])
    assert SIZES.index(conditions["n"]) == SIZES.index(conditions["below"]) + 1


FLOP = 2


def cpu_s(n: int) -> float:
    return FLOP * n**3 / 1e11


def slow_launch_s(n: int) -> float:  # a GPU of ten times the rate, and a launch of 50 us
    return 5e-5 + FLOP * n**3 / 1e12


@pytest.mark.parametrize(
    ("cpu", "gpu", "below", "n", "cut_short"),
    [
        (cpu_s, slow_launch_s, 128, 192, False),
        (cpu_s, lambda n: 0.1 * cpu_s(n), None, SIZES[0], False),
        (cpu_s, cpu_s, 2048, None, False),
        # A win that does not last is none.
        (
            cpu_s,
            lambda n: cpu_s(n) * (0.9 if n < 100 else 1.5 if n < 700 else 0.3),
            512,
            768,
            False,
        ),
        (lambda _: 0.1, lambda _: 0.2, 16, None, True),
        (lambda _: 0.6, lambda _: 0.15, None, 16, True),
    ],
    ids=["crossing", "GPU everywhere", "equal", "twice", "GPU's time", "all time"],
)
def test_known_costs_have_a_known_answer(
    cpu: Callable[[int], float],
    gpu: Callable[[int], float],
    below: int | None,
    n: int | None,
    cut_short: bool,  # noqa: FBT001
) -> None:
    result = crossing(cpu, gpu)
    assert (result.below, result.n, result.cut_short) == (below, n, cut_short)


def test_single_slow_calls_change_nothing_and_nothing_far_beyond_a_clear_win_is_measured() -> None:
    sizes: list[int] = []

    def gpu_s(n: int) -> float:
        sizes.append(n)
        return slow_launch_s(n) * (20 if len(sizes) % 4 == 0 else 1)

    assert crossing(cpu_s, gpu_s).n == 192
    assert max(sizes) == 256


def test_a_machine_too_slow_to_look_further_gives_no_verdict(tmp_path: Path) -> None:
    (missing,) = scripted(tmp_path, "crossover", "sync_ns 200000000").document["missing"]
    assert missing["reason"] == Reason.BUDGET_EXCEEDED
    assert "for larger ones 2 s were not enough" in missing["detail"]


@pytest.mark.parametrize("corrupted", ["gpud_matmul", "gpud_matmul_16", "copy"])
def test_products_that_differ_publish_nothing(tmp_path: Path, corrupted: str) -> None:
    failure = scripted(tmp_path, "crossover", f"corrupt {corrupted}\n{AT_MOST_640}").failure
    assert failure["reason"] == Reason.VERIFICATION_FAILED
    assert "products of GPU and CPU differ" in failure["detail"]


def test_little_memory_bounds_the_sizes_and_none_is_a_reason(tmp_path: Path) -> None:
    ended = scripted(tmp_path, "crossover", f"device.0.free_mem 1000000\n{costing(1e-3)}")
    assert ended.document["vram_peak_bytes"] <= 500_000
    assert max(point["n"] for point in ended.document["curve"]) <= 192
    refused = scripted(tmp_path, "crossover", "device.0.free_mem 90000").failure
    assert refused["reason"] == Reason.OUT_OF_MEMORY
