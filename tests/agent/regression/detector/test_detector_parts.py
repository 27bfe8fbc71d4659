"""The arithmetic under the detector, against definitions that are slow and plain."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.regression.detector import Observation, Parameters
from gpud.agent.regression.detector.intake import Intake
from gpud.agent.regression.detector.level import Level, Point
from gpud.agent.regression.detector.parameters import GRID, KEEP, stepped
from gpud.agent.regression.detector.reference import Reference
from gpud.agent.regression.detector.statistic import (
    Location,
    correlation,
    deviations,
    largest_gain,
    location,
    shift,
    split_in_time,
)
from gpud.agent.regression.detector.update import both_halves

figures = st.lists(st.floats(-100, 100), min_size=1, max_size=60)


@given(figures)
def test_deviations_of_each_prefix_are_those_from_its_own_median(values: list[float]) -> None:
    for at, found in enumerate(deviations(values)):
        prefix = values[: at + 1]
        assert found == pytest.approx(sum(abs(v - median(prefix)) for v in prefix), abs=1e-6)


@given(st.integers(10, 40), st.integers(10, 40), st.integers(0, 1000))
def test_a_split_lies_where_the_level_changed(before: int, after: int, seed: int) -> None:
    rng = random.Random(seed)
    values = [rng.gauss(0, 0.05) for _ in range(before)]
    values += [rng.gauss(1, 0.05) for _ in range(after)]
    assert split_in_time(values, 5) == before
    assert largest_gain([float(value > 0.5) for value in values], 5) == before


def test_a_shift_is_the_smallest_of_three_that_agree_and_nothing_where_they_do_not() -> None:
    assert shift(Location(0.3, 0.1, 0.2)) == 0.1
    assert shift(Location(-0.3, -0.1, -0.2)) == -0.1
    assert shift(Location(0.3, -0.1, 0.2)) == 0
    assert shift(Location(0.3, 0.0, 0.2)) == 0


def test_a_fifth_of_outliers_on_either_side_does_not_move_the_trimmed_mean() -> None:
    assert location(sorted([1.0] * 8 + [1000.0, -1000.0])).mean == 1.0


def test_what_alternates_is_not_correlated_and_what_drags_is() -> None:
    assert correlation([1.0, -1.0] * 50, 0.0, 1.0) == 0
    assert correlation([1.0] * 50 + [-1.0] * 50, 0.0, 1.0) == 0.95


def test_references_are_looked_at_anew_when_they_grew_and_never_beyond_what_is_kept() -> None:
    assert GRID[-1] == KEEP
    assert stepped(7) == 0
    assert stepped(8) == 8
    assert stepped(5 * KEEP) == KEEP
    assert all(b <= max(a + 1, a * 1.07) for a, b in pairwise(GRID))


@given(st.floats(-0.6, 0.6))
def test_a_window_of_both_power_states_is_moved_by_what_both_moved(effect: float) -> None:
    rng = random.Random(5)

    def both(count: int) -> list[float]:
        return [(0.5 if at % 11 in {3, 7} else 0.0) + rng.gauss(0, 0.01) for at in range(count)]

    reference = Reference(tuple(both(500)))
    assert len(reference.centres) == 2
    moved = reference.located([value + effect for value in both(120)])
    assert moved.mean == pytest.approx(effect, abs=0.02)


def test_a_change_has_to_be_in_either_half_of_a_window() -> None:
    rng = random.Random(7)
    reference = Reference(tuple(rng.gauss(0, 0.01) for _ in range(300)))
    assert both_halves(reference, [0.1] * 20, 0.1, 0.07)
    assert not both_halves(reference, [0.2] * 10 + [0.02] * 10, 0.08, 0.07)
    assert not both_halves(reference, [0.02] * 10 + [0.2] * 10, 0.08, 0.07)


def test_raw_values_have_to_move_the_way_that_the_pair_did() -> None:
    values = [0.5 if at % 11 in {3, 7} else 0.0 for at in range(500)]
    reference = Reference(values)
    assert reference.agrees([0.3] * 40, 0.1)
    assert not reference.agrees([0.3] * 40, -0.2)


def test_few_references_of_a_growing_level_are_kept() -> None:
    level = Level("572.16")
    for seq in range(2000):
        level.add(Point(seq, 60.0 * seq, 0.0))
        for without in (8, 12, 20, 40, 60, 120, 240):
            level.reference(without)
    assert len(level._references) <= 8


def test_a_clock_that_jumps_back_and_forth_does_not_change_the_usual_spacing() -> None:
    intake = Intake()
    at_s = 1e9
    for turn in range(101):
        at_s += 120 if turn % 2 else -60
        intake.enter(Observation(at_s, 1.0, "572.16"), Parameters())
    assert intake.spacing_s == 120


def test_one_stay_is_no_second_power_state_however_long() -> None:
    rng = random.Random(6)
    values = [rng.gauss(0.0, 0.01) for _ in range(80)] + [rng.gauss(0.5, 0.01) for _ in range(20)]
    assert len(Reference(tuple(values)).centres) == 1
    rng.shuffle(values)
    assert len(Reference(tuple(values)).centres) == 2
