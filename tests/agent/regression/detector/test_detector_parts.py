"""Arithmetic under the detector, against definitions that are slow and plain."""

from __future__ import annotations

import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.regression.detector.reference import Reference, deviations, split_in_time


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=60))
def test_deviations_of_each_prefix_are_those_from_its_own_median(values: list[float]) -> None:
    for at, deviation in enumerate(deviations(values)):
        prefix = values[: at + 1]
        assert deviation == pytest.approx(sum(abs(v - median(prefix)) for v in prefix), abs=1e-6)


@given(st.integers(10, 40), st.integers(10, 40), st.integers(0, 1000))
def test_split_lies_where_the_level_changed(before: int, after: int, seed: int) -> None:
    rng = random.Random(seed)
    values = [rng.gauss(0, 0.05) for _ in range(before)]
    values += [rng.gauss(1, 0.05) for _ in range(after)]
    assert split_in_time(values, 5) == before


@given(st.floats(-0.6, 0.6))
def test_window_of_both_power_states_is_moved_by_what_both_moved(effect: float) -> None:
    rng = random.Random(5)

    def both(count: int) -> list[float]:
        return [(0.5 if at % 11 in {3, 7} else 0.0) + rng.gauss(0, 0.01) for at in range(count)]

    reference = Reference(tuple(both(500)))
    assert len(reference.centres) == 2
    moved = reference.located([value + effect for value in both(120)])
    assert moved.mean == pytest.approx(effect, abs=0.02)
