"""Robust arithmetic, held against numpy and against what each figure means."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.child.summary import bucketed
from gpud.core.sample import Unit
from gpud.core.stats import LATENCY_BOUNDS_S, human, merged, quantile

LATENCIES = st.lists(st.floats(0, 10, allow_subnormal=False), min_size=1, max_size=60)
FIGURES = st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=1, max_size=60)
SHARES = st.floats(0, 1)


@given(values=FIGURES, q=SHARES)
def test_a_quantile_is_the_one_of_numpy(values: list[float], q: float) -> None:
    expected = float(np.quantile(values, q))
    room = 1e-12 * max(map(abs, values))
    assert quantile(sorted(values), q) == pytest.approx(expected, rel=1e-9, abs=room + 1e-300)


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


@given(left=LATENCIES, right=LATENCIES)
def test_merging_is_the_same_as_counting_together(left: list[float], right: list[float]) -> None:
    added, both = merged(bucketed(left), bucketed(right)), bucketed([*left, *right])
    assert added.counts == both.counts
    assert added.total == pytest.approx(both.total)


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [
        (1.23e-5, Unit.SECONDS, "12.3 µs"),
        (3.61e-7, Unit.SECONDS, "361 ns"),
        (0.08, Unit.SECONDS, "80 ms"),
        (9.999e-4, Unit.SECONDS, "1 ms"),
        (2.5e10, Unit.BYTES_PER_SECOND, "25 GB/s"),
        (2.34e13, Unit.FLOPS_PER_SECOND, "23.4 Tflop/s"),
        (16384.0, Unit.ELEMENTS, "128 x 128"),
    ],
)
def test_a_figure_is_written_as_a_person_says_it(value: float, unit: Unit, written: str) -> None:
    assert human(value, unit) == written


def test_operations_of_integers_are_no_flops() -> None:
    assert human(2e14, Unit.FLOPS_PER_SECOND, "int8") == "200 Top/s"
    assert human(2e14, Unit.FLOPS_PER_SECOND, "bf16") == "200 Tflop/s"
