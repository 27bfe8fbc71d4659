"""Robust arithmetic, held against numpy and against what each figure means."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core.sample import Buckets, Unit
from gpud.core.stats import (
    LATENCY_BOUNDS_S,
    bucketed,
    human,
    median,
    merged,
    quantile,
    settled,
    summarised,
)

LATENCIES = st.lists(st.floats(0, 10, allow_subnormal=False), min_size=1, max_size=60)
FIGURES = st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=1, max_size=60)
SHARES = st.floats(0, 1)


@given(values=FIGURES, q=SHARES)
def test_a_quantile_is_the_one_of_numpy(values: list[float], q: float) -> None:
    expected = float(np.quantile(values, q))
    room = 1e-12 * max(map(abs, values))
    assert quantile(sorted(values), q) == pytest.approx(expected, rel=1e-9, abs=room + 1e-300)


@given(values=FIGURES, one=SHARES, other=SHARES)
def test_a_higher_share_never_has_a_lower_quantile(
    values: list[float], one: float, other: float
) -> None:
    ordered = sorted(values)
    assert quantile(ordered, min(one, other)) <= quantile(ordered, max(one, other))


@given(values=FIGURES, q=SHARES)
def test_a_quantile_lies_between_the_extremes(values: list[float], q: float) -> None:
    ordered = sorted(values)
    assert ordered[0] <= quantile(ordered, q) <= ordered[-1]
    assert quantile(ordered, 0) == ordered[0]
    assert quantile(ordered, 1) == ordered[-1]


@given(values=FIGURES)
def test_the_median_does_not_depend_on_the_order(values: list[float]) -> None:
    assert median(values) == median(values[::-1]) == quantile(sorted(values), 0.5)


def test_an_outlier_does_not_move_the_median() -> None:
    assert median([1.0, 2.0, 3.0]) == median([1.0, 2.0, 1e30]) == 2.0


def test_nothing_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        quantile([], 0.5)


@pytest.mark.parametrize("q", [-0.01, 1.01, math.nan])
def test_a_share_outside_of_0_to_1_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match=r"0\.\.1"):
        quantile([1.0], q)


def test_the_bounds_rise_and_stay_where_history_has_them() -> None:
    assert all(low < high for low, high in pairwise(LATENCY_BOUNDS_S))
    assert (LATENCY_BOUNDS_S[0], LATENCY_BOUNDS_S[-1], len(LATENCY_BOUNDS_S)) == (1e-6, 1.0, 34)
    fine = [bound for bound in LATENCY_BOUNDS_S if bound < 250e-6]
    assert fine[-1] > 200e-6
    assert all(high / low <= 1.26 for low, high in pairwise(fine))


@given(values=LATENCIES)
def test_every_latency_is_in_exactly_one_bucket(values: list[float]) -> None:
    found = bucketed(values)
    assert len(found.counts) == len(LATENCY_BOUNDS_S) + 1
    assert sum(found.counts) == len(values)
    assert found.total == pytest.approx(sum(values))


@given(values=LATENCIES)
def test_a_bucket_counts_what_is_at_most_its_bound(values: list[float]) -> None:
    counts = bucketed(values).counts
    for place, bound in enumerate(LATENCY_BOUNDS_S):
        assert sum(counts[: place + 1]) == sum(value <= bound for value in values)


@pytest.mark.parametrize("place", range(len(LATENCY_BOUNDS_S)))
def test_a_latency_on_a_bound_belongs_below_it(place: int) -> None:
    assert bucketed([LATENCY_BOUNDS_S[place]]).counts[place] == 1


def test_what_is_longer_than_every_bound_is_in_the_last_bucket() -> None:
    assert bucketed([1.5, 400.0]).counts[-1] == 2


@given(left=LATENCIES, right=LATENCIES)
def test_merging_is_the_same_as_counting_together(left: list[float], right: list[float]) -> None:
    one, both = merged(bucketed(left), bucketed(right)), bucketed([*left, *right])
    assert one.counts == both.counts
    assert one.total == pytest.approx(both.total)


def test_distributions_over_other_bounds_do_not_merge() -> None:
    with pytest.raises(ValueError, match="shorter"):
        merged(bucketed([1.0]), Buckets((1, 2), 3.0))


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
    assert figures == sorted(figures)
    assert figures[0] >= 0
    assert sample.n == len(values)
    assert sample.buckets is not None
    assert sum(sample.buckets.counts) == sample.n


def test_the_median_null_call_is_subtracted_from_every_value() -> None:
    sample = summarised([5e-6, 6e-6, 7e-6], mode="m", unit=Unit.SECONDS, null=[1e-6, 1e-6, 9e-6])
    assert sample.median == pytest.approx(5e-6)
    assert (sample.minimum, sample.maximum) == pytest.approx((4e-6, 6e-6))
    assert sample.null_median == 1e-6
    assert sample.null_p99 == pytest.approx(8.84e-6)


def test_less_than_nothing_is_nothing() -> None:
    sample = summarised([1.0, 5.0], mode="m", unit=Unit.SECONDS, null=[2.0])
    assert (sample.minimum, sample.maximum) == (0.0, 3.0)


def test_without_null_calls_nothing_is_subtracted_and_none_is_claimed() -> None:
    sample = summarised([2.0], mode="m", unit=Unit.FLOPS_PER_SECOND)
    assert (sample.median, sample.null_median, sample.null_p99) == (2.0, None, None)
    assert sample.buckets is None


def test_a_run_without_values_is_no_sample() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        summarised([], mode="m", unit=Unit.SECONDS)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], False),
        ([1.0, 1.0], False),  # too few to tell
        ([1.0, 1.0, 1.0], True),
        ([5.0, 1.0, 1.01, 1.02], True),  # what was before does not count
        ([1.0, 1.01, 1.03], False),
        ([1.0, 1.0, 0.0], False),  # no clock ticks that coarsely
    ],
)
def test_clocks_are_up_when_the_last_runs_agree(values: list[float], *, expected: bool) -> None:
    assert settled(values) is expected


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [
        (1.23e-5, Unit.SECONDS, "12.3 µs"),
        (3.61e-7, Unit.SECONDS, "361 ns"),
        (0.08, Unit.SECONDS, "80 ms"),
        (2.5e10, Unit.BYTES_PER_SECOND, "25 GB/s"),
        (2.34e13, Unit.FLOPS_PER_SECOND, "23.4 Tflop/s"),
    ],
)
def test_a_figure_is_written_as_a_person_says_it(value: float, unit: Unit, written: str) -> None:
    assert human(value, unit) == written


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (1.23e-5, "seconds", "12.3 µs"),
        (9.999e-4, "seconds", "1 ms"),
        (3.4e-7, "seconds", "340 ns"),
        (4.56e11, "bytes_per_second", "456 GB/s"),
        (2e12, "flops_per_second", "2 Tflop/s"),
    ],
)
def test_a_figure_is_written_with_a_prefix(value: float, unit: str, shown: str) -> None:
    assert human(value, unit) == shown
