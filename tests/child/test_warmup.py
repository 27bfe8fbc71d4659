"""The warm-up, on devices of every speed and on one whose clocks come up late."""

from __future__ import annotations

from itertools import chain, repeat
from typing import TYPE_CHECKING

import pytest

from gpud.child.cuda_gpu import Gpu
from gpud.child.device import Buffer, Call, Kernel
from gpud.child.progress import Budget
from gpud.child.warmup import Warmth
from gpud.child.warmup import warm as warmed
from gpud.core.errors import ProbeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpud.child.device import Argument


def warm(gpu: Gpu, *, run_s: float = 0.01, most_gpu_s: float = 0.4) -> Warmth:
    return warmed(gpu, Budget(30), run_s=run_s, most_gpu_s=most_gpu_s)


class Imagined(Gpu):
    """A GPU that computes nothing. A call keeps how many bodies it is for."""

    def __init__(self) -> None:
        self.busy_s, self.sm_count, self.free_bytes = 0.0, 16, 1 << 30

    def memory(self) -> tuple[int, int]:
        return self.free_bytes, 1 << 30

    def alloc(self, size: int) -> Buffer:
        self.free_bytes -= size
        return Buffer(0, size)

    def free(self, buffer: Buffer) -> None:
        self.free_bytes += buffer.size

    def fill(self, buffer: Buffer, word: int) -> None:
        """Set nothing."""

    def kernel(self, name: str, pinned: str | None = None) -> Kernel:
        del pinned
        return Kernel(name, None)

    def launch(
        self, kernel: Kernel, grid: tuple[int, int], block: tuple[int, int], *arguments: Argument
    ) -> Call:
        del arguments
        return Call(kernel.name, int, int, keep=grid[0] * block[0])


class Waking(Imagined):
    """A GPU whose timed work takes what a list says."""

    def __init__(self, seconds: Iterable[float]) -> None:
        super().__init__()
        self.seconds: Iterator[float] = iter(seconds)

    def timed(self, call: Call, repeats: int = 1) -> float:
        del call, repeats
        return next(self.seconds)


class Rated(Imagined):
    """A GPU whose n-body runs at a known rate."""

    def __init__(self, flops: float) -> None:
        super().__init__()
        self.flops = flops
        self.taken: list[float] = []

    def timed(self, call: Call, repeats: int = 1) -> float:
        assert repeats == 1
        assert isinstance(call.keep, int)
        self.taken.append(20 * call.keep**2 / self.flops)
        return self.taken[-1]


def test_a_gpu_that_is_warm_costs_three_runs() -> None:
    warmth = warm(Waking(repeat(0.01)))
    assert (warmth.settled, warmth.runs) == (True, 3)
    assert warmth.gpu_s == pytest.approx(0.05)  # two pilots and three runs


def test_a_gpu_that_wakes_up_is_loaded_until_it_runs_evenly() -> None:
    waking = chain([0.03, 0.02], [0.03, 0.028, 0.02, 0.015, 0.0101], repeat(0.01))
    warmth = warm(Waking(waking))
    assert (warmth.settled, warmth.runs) == (True, 7)


def test_a_gpu_that_never_settles_is_left_alone_after_its_share() -> None:
    restless = chain.from_iterable(repeat((0.01, 0.02)))
    warmth = warm(Waking(restless), most_gpu_s=0.1)
    assert not warmth.settled
    assert 0.08 <= warmth.gpu_s <= 0.11


@pytest.mark.parametrize("nothing", [0.0, float("nan"), -1.0])
def test_work_that_takes_no_time_is_an_error_of_the_driver(nothing: float) -> None:
    with pytest.raises(ProbeError, match="warm-up took"):
        warm(Waking(repeat(nothing)))


@pytest.mark.parametrize("flops", [2e11, 1e12, 1e13, 5e13])
@pytest.mark.parametrize("run_s", [0.01, 0.002])
def test_a_run_is_about_as_long_as_asked_on_any_gpu(flops: float, run_s: float) -> None:
    gpu = Rated(flops)
    free = gpu.memory()
    warmth = warm(gpu, run_s=run_s)
    assert (warmth.settled, warmth.runs) == (True, 3)
    assert run_s / 4 <= gpu.taken[-1] <= run_s
    assert warmth.gpu_s == pytest.approx(sum(gpu.taken))
    assert gpu.memory() == free
