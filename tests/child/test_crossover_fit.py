"""The size from which the GPU wins: known curves in, known answers out, noise and all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.child.crossover import LADDER, REPEATS, Allowance, crossing

if TYPE_CHECKING:
    from collections.abc import Callable

    Curve = Callable[[int], float]

FLOP = 2
AMPLE = Allowance(total_s=1e9, gpu_s=1e9)


def cpu(flops_per_second: float = 1e11) -> Curve:
    return lambda n: FLOP * n**3 / flops_per_second


def gpu(overhead_s: float, flops_per_second: float = 1e13) -> Curve:
    return lambda n: overhead_s + FLOP * n**3 / flops_per_second


def first_win(cpu_s: Curve, gpu_s: Curve) -> int | None:
    """By looking at every rung: the answer the search has to find with fewer measurements."""
    answer = None
    for n in reversed(LADDER):
        if not gpu_s(n) < cpu_s(n):
            return answer
        answer = n
    return answer


class Counted:
    """A curve that counts how often each size is asked for."""

    def __init__(self, curve: Curve, noise: Callable[[int], float] = lambda _: 1.0) -> None:
        self.curve, self.noise = curve, noise
        self.calls: list[int] = []

    def __call__(self, n: int) -> float:
        self.calls.append(n)
        return self.curve(n) * self.noise(len(self.calls))


@given(st.floats(1e-8, 1e-2), st.floats(2e10, 2e11), st.floats(4e11, 1e14))
def test_the_answer_is_right_for_any_overhead_and_any_two_rates(
    overhead_s: float, slow: float, fast: float
) -> None:
    result = crossing(cpu(slow), gpu(overhead_s, fast), allowance=AMPLE)
    assert result.n == first_win(cpu(slow), gpu(overhead_s, fast))


@given(st.floats(1e-8, 1e-2), st.randoms(use_true_random=False))
def test_noise_moves_the_answer_no_further_than_it_blurs_the_curves(
    overhead_s: float, chance: object
) -> None:
    noise = 0.05
    uniform = chance.uniform  # type: ignore[attr-defined]  # a random.Random
    cpu_s, gpu_s = cpu(), gpu(overhead_s)
    result = crossing(
        lambda n: cpu_s(n) * uniform(1 - noise, 1 + noise),
        lambda n: gpu_s(n) * uniform(1 - noise, 1 + noise),
        allowance=AMPLE,
    )
    blur = (1 + noise) / (1 - noise)
    assert result.n is not None
    assert gpu_s(result.n) < cpu_s(result.n) * blur
    if result.below is not None:
        assert gpu_s(result.below) > cpu_s(result.below) / blur


@pytest.mark.parametrize("every", [4, 5, 7])
@pytest.mark.parametrize("overhead_s", [1e-6, 2e-5, 1e-3])
def test_single_slow_calls_change_nothing(every: int, overhead_s: float) -> None:
    def hiccup(call: int) -> float:
        return 20.0 if call % every == 0 else 1.0

    result = crossing(Counted(cpu(), hiccup), Counted(gpu(overhead_s), hiccup), allowance=AMPLE)
    assert result.n == first_win(cpu(), gpu(overhead_s))


def test_a_whole_false_measurement_at_the_boundary_is_found_out() -> None:
    cpu_s, true_s = cpu(), gpu(1e-4)
    right = first_win(cpu_s, true_s)
    assert right is not None
    lying = LADDER[LADDER.index(right) - 1]

    def fooled(call: int) -> float:
        return 0.5 if gpu_s.calls[-1] == lying and gpu_s.calls.count(lying) <= REPEATS // 2 else 1.0

    gpu_s = Counted(true_s, fooled)
    assert crossing(cpu_s, gpu_s, allowance=AMPLE).n == right
    assert gpu_s.calls.count(lying) > REPEATS


def test_a_win_that_does_not_last_is_no_crossing() -> None:
    cpu_s = cpu()

    def gpu_s(n: int) -> float:  # quick below 100, then slow, then quick for good
        return cpu_s(n) * (0.9 if n < 100 else 1.5 if n < 700 else 0.3)

    result = crossing(cpu_s, gpu_s, allowance=AMPLE)
    assert (result.below, result.n) == (640, 704)


@given(st.lists(st.floats(0.1, 10), min_size=len(LADDER), max_size=len(LADDER)))
def test_whatever_the_curves_do_the_answer_is_what_the_measured_points_say(
    ratios: list[float],
) -> None:
    times = dict(zip(LADDER, ratios, strict=True))
    result = crossing(cpu(), lambda n: cpu()(n) * times[n], allowance=AMPLE)
    won = {point.n: times[point.n] < 1 for point in result.curve}
    if result.n is not None:
        assert all(won[n] for n in won if n >= result.n)
        assert result.below is None or LADDER[LADDER.index(result.n) - 1] == result.below
    assert result.below is None or not won[result.below]
    assert (result.n, result.below) != (None, None)


@pytest.mark.parametrize(
    ("cpu_s", "gpu_s", "below", "n"),
    [
        (cpu(), lambda n: 0.1 * cpu()(n), None, LADDER[0]),
        (cpu(1e12), gpu(1e-3, 1e11), LADDER[-1], None),
        (cpu(), cpu(), LADDER[-1], None),
    ],
    ids=["GPU everywhere", "CPU everywhere", "equal"],
)
def test_one_side_may_win_everywhere(
    cpu_s: Curve, gpu_s: Curve, below: int | None, n: int | None
) -> None:
    result = crossing(cpu_s, gpu_s, allowance=AMPLE)
    assert (result.below, result.n, result.cut_short) == (below, n, False)


def test_few_sizes_are_measured_and_none_far_beyond_a_clear_win() -> None:
    gpu_s = Counted(gpu(1e-6))
    crossing(cpu(), gpu_s, allowance=AMPLE)
    assert len(set(gpu_s.calls)) <= 8
    assert max(gpu_s.calls) <= 256


@pytest.mark.parametrize(
    "allowance",
    [Allowance(total_s=0.05, gpu_s=1e9), Allowance(total_s=1e9, gpu_s=0.02)],
)
def test_either_part_of_the_allowance_ends_the_climb(allowance: Allowance) -> None:
    result = crossing(lambda _: 2e-3, lambda _: 3e-3, allowance=allowance)
    assert result.cut_short
    assert result.n is None


def test_a_search_out_of_time_still_says_between_what() -> None:
    result = crossing(cpu(), gpu(1e-4), allowance=Allowance(total_s=0.004, gpu_s=0.1))
    right = first_win(cpu(), gpu(1e-4))
    assert right is not None
    assert result.below is not None
    assert result.n is not None
    assert result.below < right <= result.n


def test_a_climb_out_of_time_is_no_verdict_on_larger_sizes() -> None:
    result = crossing(cpu(), gpu(0.2), allowance=Allowance(total_s=1.0, gpu_s=0.5))
    assert (result.n, result.cut_short) == (None, True)
    assert not crossing(cpu(1e12), gpu(1e-3, 1e11), allowance=AMPLE).cut_short
    assert not crossing(cpu(), gpu(1e-4), allowance=AMPLE).cut_short
