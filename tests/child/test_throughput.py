"""Sizes from pilots, warmth and batches, on devices whose time is counted and not spent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.child.cuda_gpu import Gpu
from gpud.child.device import Call
from gpud.child.progress import Budget
from gpud.child.throughput import (
    BATCH_S,
    CALL_S,
    LEAST_RUNS,
    RUNS,
    TimedBatches,
    chosen,
    measured,
)
from gpud.core.errors import ProbeError
from gpud.core.sample import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

NOTICED_S = 0.05
SIZES = [1 << step for step in range(21)]


@dataclass
class Paced:
    """How fast a device is: work a second, times what ``clocks`` says of its so-many-th call."""

    rate: float = 1e6
    clocks: Callable[[int], float] = lambda _: 1.0
    single: list[float] = field(default_factory=list)  # seconds of each call


class Counted(Gpu):
    """A device that takes no time and says how long its calls took."""

    def __init__(self, pace: Paced) -> None:
        self.pace, self.busy_s = pace, 0.0

    def timed(self, call: Call, repeats: int = 1) -> float:
        assert isinstance(call.keep, float)
        pace, taken_s = self.pace, 0.0
        for _ in range(repeats):
            call_s = call.keep / (pace.rate * pace.clocks(len(pace.single)))
            pace.single.append(call_s)
            taken_s += call_s
        self.busy_s += taken_s
        return taken_s


class Watched(Budget):
    """A budget without end that counts how often it is asked."""

    looks = 0

    def check(self) -> None:
        self.looks += 1


def work(amount: float) -> Call:
    return Call("gpud_work", int, int, keep=float(amount))


def choose(pace: Paced) -> int:
    return chosen(Counted(pace), SIZES, work, float, Budget(30))


@given(st.floats(1.0, 1e12))
def test_the_largest_size_whose_call_is_not_too_long_is_chosen(rate: float) -> None:
    size = choose(Paced(rate))
    assert size == max((s for s in SIZES if s / rate <= CALL_S), default=SIZES[0])


@given(st.floats(1e2, 1e9), st.floats(1e3, 1e6))
def test_a_size_that_fills_the_gpu_is_found_from_sizes_that_do_not(
    rate: float, full: float
) -> None:
    def build(size: int) -> Call:  # below ``full`` the GPU idles beside the work
        return work(size * max(1.0, (full / size) ** 0.5))

    pace = Paced(rate)
    size = chosen(Counted(pace), SIZES, build, float, Budget(30))
    taken = {other: other * max(1.0, (full / other) ** 0.5) / rate for other in SIZES}
    assert taken[size] <= CALL_S * 1.001 or size == SIZES[0]
    assert size == SIZES[-1] or 4 * taken[size] > CALL_S
    assert max(pace.single) <= max(CALL_S * 1.001, taken[SIZES[0]])


@given(st.floats(1e5, 1e9), st.floats(2, 8), st.integers(1, 12))
def test_a_gpu_that_wakes_up_gets_the_size_of_one_that_is_awake(
    rate: float, idle: float, calls: int
) -> None:
    pace = Paced(rate, lambda call: 1 / idle if call < calls else 1.0)
    size = choose(pace)
    assert max(pace.single) <= NOTICED_S
    assert size / rate <= CALL_S * 1.001
    if calls <= 3:  # three equal runs are what agreeing means, whatever comes after
        assert size == choose(Paced(rate))


@given(st.floats(1e5, 1e9), st.floats(1, 2.4))
def test_a_pilot_at_boost_clocks_makes_no_kernel_that_is_noticed(rate: float, boost: float) -> None:
    pace = Paced(rate, lambda call: boost if call < 30 else 1.0)
    gpu = Counted(pace)
    size = chosen(gpu, SIZES, work, float, Budget(30))
    measured(gpu, work(size), size, Budget(30))
    assert max(pace.single) <= NOTICED_S


@given(st.floats(1e-7, NOTICED_S))
def test_a_series_is_right_and_within_its_budget(call_s: float) -> None:
    gpu = Counted(Paced(1.0))
    series = measured(gpu, work(call_s), 5.0, Budget(30))
    assert all(rate == pytest.approx(5.0 / call_s) for rate in series.rates)
    assert LEAST_RUNS <= len(series.rates) <= RUNS
    assert series.settled
    assert gpu.busy_s < 1.0
    assert series.repeats * call_s <= max(BATCH_S * 1.001, call_s)


def test_somebody_asks_between_any_two_batches_whether_to_go_on() -> None:
    gpu, budget = Counted(Paced(1.0)), Watched(30)
    measured(gpu, work(0.02), 1.0, budget)
    assert budget.looks == len(gpu.pace.single) - 1, "the pilot was the first"
    gpu, budget = Counted(Paced(1e6)), Watched(30)
    chosen(gpu, SIZES, work, float, budget)
    assert budget.looks >= len(gpu.pace.single) - 1


def test_work_that_is_too_long_for_five_batches_says_how_long_it_takes() -> None:
    gpu = Counted(Paced(1.0))
    gpu.busy_s = 0.25  # of filling, copying and choosing a size
    with pytest.raises(ProbeError) as caught:
        measured(gpu, work(0.2), 1.0, Budget(30))
    assert caught.value.failure.reason is Reason.BUDGET_EXCEEDED
    words = "gpud_work is too slow to measure within 1 s (0.2 s a call)"
    assert caught.value.failure.detail == words
    assert gpu.busy_s <= 1.0


def test_batches_that_never_agree_are_measured_and_said_to_be_unsettled() -> None:
    pace = Paced(1.0, lambda call: 1.0 + call % 2 * 0.5)
    series = measured(Counted(pace), work(0.02), 1.0, Budget(30))
    assert not series.settled
    assert len(series.rates) >= LEAST_RUNS


def test_a_batch_sized_at_idle_clocks_is_sized_again_when_they_are_up() -> None:
    pace = Paced(1.0, lambda call: 0.125 if call < 20 else 1.0)
    series: TimedBatches = measured(Counted(pace), work(2e-4), 1.0, Budget(30))
    assert series.repeats * 2e-4 == pytest.approx(BATCH_S, rel=0.03)


@pytest.mark.parametrize("nothing", [0.0, -1.0, float("nan")])
def test_a_driver_that_counts_no_time_is_an_error(nothing: float) -> None:
    with pytest.raises(ProbeError) as caught:
        measured(Counted(Paced(1.0)), work(nothing), 1.0, Budget(30))
    assert caught.value.failure.function == "cuEventElapsedTime"
