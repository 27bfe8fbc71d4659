"""A run reduced to figures: quantiles, buckets, null calls and humps."""

from __future__ import annotations

import math
import random
from statistics import NormalDist
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.child.summary import bucketed, peaks, summarised
from gpud.core.sample import Unit
from gpud.core.stats import LATENCY_BOUNDS_S

if TYPE_CHECKING:
    from collections.abc import Callable

LATENCIES = st.lists(st.floats(0, 10, allow_subnormal=False), min_size=1, max_size=60)


@pytest.mark.parametrize("place", range(len(LATENCY_BOUNDS_S)))
def test_a_latency_on_a_bound_belongs_below_it(place: int) -> None:
    bound_s = LATENCY_BOUNDS_S[place]
    result = bucketed([bound_s, bound_s])
    assert result.counts[place] == 2
    assert result.total == pytest.approx(2 * bound_s)


@given(values=LATENCIES, null=st.lists(st.floats(0, 1e-3, allow_subnormal=False), max_size=20))
def test_the_figures_of_a_sample_are_ordered(values: list[float], null: list[float]) -> None:
    sample = summarised(values, mode="m", unit=Unit.SECONDS, null=null, with_buckets=True)
    figures = [
        sample.minimum,
        sample.p10,
        sample.median,
        sample.p90,
        sample.p99,
        sample.maximum,
    ]
    there = [figure for figure in figures if figure is not None]
    assert there == sorted(there)
    assert there[0] >= 0
    assert sample.n == len(values)
    assert sample.buckets is not None
    assert len(sample.buckets.counts) == len(LATENCY_BOUNDS_S) + 1
    assert sum(sample.buckets.counts) == sample.n


def test_the_median_null_call_is_subtracted_from_every_value() -> None:
    sample = summarised([5e-6, 6e-6, 7e-6], mode="m", unit=Unit.SECONDS, null=[1e-6, 1e-6, 9e-6])
    assert sample.median == pytest.approx(5e-6)
    assert (sample.minimum, sample.maximum) == pytest.approx((4e-6, 6e-6))
    assert sample.null_median == 1e-6
    assert sample.null_p99 is None


@pytest.mark.parametrize(
    ("count", "present"),
    [(1, ""), (9, ""), (10, "p10 p90"), (99, "p10 p90"), (100, "p10 p90 p99")],
)
def test_a_percentile_that_no_value_lies_beyond_is_none(count: int, present: str) -> None:
    sample = summarised([float(value) for value in range(count)], mode="m", unit=Unit.SECONDS)
    figures = {name: getattr(sample, name) for name in ("p10", "p90", "p99")}
    assert [name for name, figure in figures.items() if figure is not None] == present.split()


def test_without_null_calls_nothing_is_subtracted_and_none_is_claimed() -> None:
    sample = summarised([2.0], mode="m", unit=Unit.FLOPS_PER_SECOND)
    assert (sample.median, sample.null_median, sample.null_p99) == (2.0, None, None)
    assert sample.buckets is None


def test_a_run_without_values_is_no_sample() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        summarised([], mode="m", unit=Unit.SECONDS)


def spread(shape: Callable[[float], float], count: int) -> list[float]:
    """Values exactly as a distribution has them: its inverse at evenly spaced shares."""
    return [shape((place + 0.5) / count) for place in range(count)]


SCALES = st.floats(1e-7, 1e-2)
COUNTS = st.integers(250, 2000)
STANDARD = NormalDist()


@given(scale=SCALES, count=COUNTS, width=st.floats(0, 2))
def test_one_hump_is_one_hump_however_wide(scale: float, count: int, width: float) -> None:
    normal = spread(lambda q: scale * math.exp(width * STANDARD.inv_cdf(q)), count)
    even = spread(lambda q: scale * (1 + width * q), count)
    assert peaks(normal) == peaks(even) == ()


@given(scale=SCALES, count=COUNTS, shape=st.floats(0.7, 6), tail=st.floats(0.02, 1))
def test_a_heavy_tail_is_no_second_hump(
    scale: float, count: int, shape: float, tail: float
) -> None:
    def pareto(q: float) -> float:
        return scale * max(1.0, math.pow((1 - q) / tail, -1 / shape))

    assert peaks(spread(pareto, count)) == ()


@given(
    scale=SCALES,
    count=COUNTS,
    factor=st.floats(1.2, 50),
    share=st.floats(0.06, 0.94),
    widths=st.tuples(st.floats(0, 0.01), st.floats(0, 0.01)),
)
def test_two_humps_are_found_where_they_are(
    scale: float, count: int, factor: float, share: float, widths: tuple[float, float]
) -> None:
    many = round(share * count)
    low = spread(lambda q: scale * math.exp(widths[0] * STANDARD.inv_cdf(q)), many)
    high = spread(
        lambda q: scale * factor * math.exp(widths[1] * STANDARD.inv_cdf(q)), count - many
    )
    mixed = [*low, *high]
    random.Random(count).shuffle(mixed)
    left, right = peaks(mixed)
    assert left.value == pytest.approx(scale, rel=0.01)
    assert right.value == pytest.approx(scale * factor, rel=0.01)
    assert left.share == pytest.approx(many / count, abs=1e-9)
    assert left.share + right.share == pytest.approx(1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "draw",
    [
        lambda chance: chance.gauss(5e-6, 1e-7),
        lambda chance: chance.lognormvariate(-12, 1),
        lambda chance: chance.expovariate(2e5),
        lambda chance: 5e-6 * chance.paretovariate(1.5),
        lambda chance: 5e-6 + (chance.random() < 0.3) * 2e-5 * (chance.paretovariate(1.5) - 1),
        lambda chance: 5e-6 if chance.random() > 0.03 else 4e-5,  # too few to be a hump
        lambda chance: 10e-9 * round(chance.gauss(54.1, 0.9)),  # of a clock with ticks
        lambda _: 5e-6,
        lambda _: 0.0,
    ],
)
def test_what_is_drawn_from_one_hump_has_none_beside_it(
    seed: int, draw: Callable[[random.Random], float]
) -> None:
    chance = random.Random(seed)
    assert peaks([draw(chance) for _ in range(4000)]) == ()


def test_two_ticks_of_the_clock_are_not_two_humps() -> None:
    values = [1.5e-6] * 500 + [2e-6] * 500
    assert len(peaks(values)) == 2
    assert peaks(values, resolution=0.5e-6) == ()


def test_the_humps_of_a_sample_are_those_of_the_net_values() -> None:
    values = [6e-6] * 700 + [13e-6] * 300
    sample = summarised(values, mode="m", unit=Unit.SECONDS, null=[1e-6] * 9)
    assert [peak.value for peak in sample.peaks] == pytest.approx([5e-6, 12e-6])
    assert [peak.share for peak in sample.peaks] == pytest.approx([0.7, 0.3])
    assert summarised(values, mode="m", unit=Unit.SECONDS).peaks == ()


def test_humps_of_a_core_that_changes_its_speed_are_not_those_of_the_driver() -> None:
    values = [6e-6] * 500 + [9e-6] * 500
    quick, slow = [0.4e-6] * 1000, [0.8e-6] * 1000
    steady = summarised(values, mode="m", unit=Unit.SECONDS, null=quick + quick)
    changed = summarised(values, mode="m", unit=Unit.SECONDS, null=quick + slow)
    assert len(steady.peaks) == 2
    assert changed.peaks == ()


def test_humps_further_apart_than_those_of_the_core_are_the_drivers_all_the_same() -> None:
    values = [5e-6] * 800 + [20e-6] * 200
    null = [0.4e-6] * 1600 + [0.6e-6] * 400  # what follows a long call is slower
    assert len(summarised(values, mode="m", unit=Unit.SECONDS, null=null).peaks) == 2


def test_a_launch_that_costs_nothing_beside_one_that_does_has_two_humps() -> None:
    values = [0.3e-6] * 300 + [1.4e-6] * 700
    result = summarised(values, mode="m", unit=Unit.SECONDS, null=[0.4e-6] * 700 + [0.8e-6] * 300)
    assert [peak.value for peak in result.peaks] == pytest.approx([0.0, 1e-6])
