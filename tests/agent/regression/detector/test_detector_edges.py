"""Streams at the edge: drivers that come and go, unknown versions, dense samples, odd clocks."""

from __future__ import annotations

import pytest

from gpud.agent.regression.detector import (
    ENCODER,
    Detector,
    Direction,
    Kind,
    Observation,
    Refusal,
    State,
)
from gpud.agent.regression.detector.intake import Grouped, combined
from gpud.agent.regression.detector.parameters import Parameters
from tests.agent.regression.detector.streams import FIRST_S, NIGHT_S, Feed

US = 1e-6
LEVEL = 12.4 * US
OLD, NEW = "572.16", "576.02"


def flapping(each: int, times: int = 6, slower: float = 1.2) -> Feed:
    """Change between a driver and a slower one, so many samples each."""
    feed = Feed()
    feed.level(LEVEL, 300)
    for turn in range(times):
        feed.driver = OLD if turn % 2 else NEW
        feed.level(LEVEL * (1 if turn % 2 else slower), each)
    return feed


def test_drivers_that_swap_every_five_samples_are_never_judged_and_never_taken_for_each_other() -> (
    None
):
    feed = flapping(5, times=20)
    feed.level(LEVEL, 300)
    assert feed.alarms == []
    assert feed.detector.standing().slowdown == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("each", [25, 150])
def test_every_return_of_a_slower_driver_is_told_and_ended_by_the_better_one(each: int) -> None:
    feed = flapping(each)
    told = [(one.kind, one.worse, one.old_driver, one.new_driver) for one in feed.alarms]
    there, back = (Kind.DRIVER, True, OLD, NEW), (Kind.DRIVER, False, NEW, OLD)
    assert told == [there, back] * 3
    for worse, better in zip(feed.alarms[::2], feed.alarms[1::2], strict=True):
        assert better.closes == (worse.seq,)
    assert feed.detector.standing().open == ()


@pytest.mark.parametrize("each", [5, 25, 150])
def test_drivers_that_are_as_fast_as_each_other_may_swap_as_they_like(each: int) -> None:
    feed = flapping(each, times=12, slower=1.0)
    assert feed.alarms == []
    assert len(feed.detector.left) <= 4


def test_samples_of_an_unknown_version_are_refused_and_change_nothing() -> None:
    feed = Feed()
    feed.level(LEVEL, 300)
    feed.driver = ""
    feed.level(LEVEL * 1.3, 60)
    feed.driver = OLD
    feed.level(LEVEL, 100)
    standing = feed.detector.standing()
    assert feed.alarms == []
    assert standing.refused == {Refusal.NO_DRIVER: 60}
    assert standing.verdict is None
    assert feed.detector.level.count == 300 - 3 + 100 - 3  # it was a pause, and it settles


@pytest.mark.parametrize("between", [3, 15, 40])
def test_two_updates_within_an_hour_end_in_a_verdict_on_the_second(between: int) -> None:
    feed = Feed()
    feed.level(LEVEL, 300)
    feed.driver = NEW
    feed.level(LEVEL, between)
    feed.driver = "577.00"
    (alarm,) = feed.level(LEVEL * 1.2, 60)
    assert (alarm.old_driver, alarm.new_driver) == (OLD, "577.00")
    verdict = feed.detector.verdict
    assert verdict is not None
    assert verdict.state is State.REGRESSED


def test_an_update_in_the_middle_of_a_drift_is_not_told_the_whole_of_it() -> None:
    feed = Feed()
    feed.level(LEVEL, 600)
    for step in range(400):
        feed.driver = NEW if step >= 200 else OLD
        feed.level(LEVEL * (1 + 0.4 * step / 400), 1)
    assert {one.kind for one in feed.alarms} >= {Kind.DRIFT}
    drivers = [one for one in feed.alarms if one.kind is Kind.DRIVER]
    assert all(one.effect.ratio < 1.2 for one in drivers)


def test_a_clock_set_back_in_the_middle_of_a_trial_does_not_end_it() -> None:
    feed = Feed()
    feed.level(LEVEL, 300)
    feed.driver = NEW
    feed.level(LEVEL * 1.2, 10)
    feed.at_s -= NIGHT_S
    (alarm,) = feed.level(LEVEL * 1.2, 60)
    assert (alarm.kind, alarm.samples) == (Kind.DRIVER, 20)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_new_driver_of_hardly_any_samples_says_that_it_is_learning(count: int) -> None:
    feed = Feed()
    feed.level(LEVEL, 300)
    feed.driver = NEW
    feed.level(LEVEL * 2, count)
    verdict = feed.detector.verdict
    assert feed.alarms == []
    assert (verdict and verdict.state) == (State.LEARNING if count else None)


def test_at_one_sample_every_ten_seconds_a_step_is_found_where_it_was() -> None:
    feed = Feed(spacing_s=10.0)
    feed.level(LEVEL, 3000)
    (alarm,) = feed.level(LEVEL * 1.15, 1500)
    assert (alarm.kind, alarm.worse) == (Kind.STEP, True)
    assert abs(alarm.since_seq - 3000) <= 10
    assert alarm.effect.low < 1.15 < alarm.effect.high
    assert feed.detector.standing().judged == 4500 - 3


def test_at_one_sample_every_ten_seconds_an_update_waits_for_its_twenty_minutes() -> None:
    feed = Feed(spacing_s=10.0)
    feed.level(LEVEL, 3000)
    feed.driver = NEW
    (alarm,) = feed.level(LEVEL * 1.15, 500)
    assert alarm.kind is Kind.DRIVER
    assert 1110 <= alarm.at_s - alarm.since_s <= 2400


def test_samples_are_judged_one_by_one_from_forty_five_seconds_on_and_where_no_span_is_asked() -> (
    None
):
    feed = Feed(spacing_s=45.0)
    feed.level(LEVEL, 40)
    assert feed.detector.intake.together == 1
    no_span = Detector(Direction.LOWER).configured(Parameters(window_span_s=0.0))
    dense = Feed(no_span, spacing_s=1.0)
    dense.level(LEVEL, 40)
    assert dense.detector.intake.together == 1


def test_a_group_of_samples_is_as_good_as_its_median_and_slow_if_most_are() -> None:
    samples = [(0.1, True), (0.5, False), (0.2, True)]
    group = [Grouped(seq, 10.0 * seq, y, slow) for seq, (y, slow) in enumerate(samples)]
    first, slow = combined(group)
    assert (first.seq, first.at_s, slow) == (0, 0.0, True)
    assert first.y == pytest.approx(0.15)


def test_a_full_state_is_written_in_few_bytes() -> None:
    feed = Feed()
    for turn in range(6):
        feed.driver = f"57{turn}.00"
        feed.level(LEVEL * 1.15**turn, 1050)
    assert len(feed.detector.left) == 4
    assert len(ENCODER.encode(feed.detector)) < 240_000


def test_time_that_is_no_number_is_refused_before_anything_is_learnt_of_it() -> None:
    detector = Detector(Direction.LOWER)
    assert detector.push(Observation(float("nan"), 1.0, OLD)) is None
    detector.push(Observation(FIRST_S, 1.0, OLD))
    assert detector.standing().refused == {Refusal.BAD_TIME: 1}


def test_a_slowness_that_went_in_steps_too_small_to_be_told_is_over_all_the_same() -> None:
    feed = Feed(noise=0.005)
    feed.level(LEVEL, 300)
    assert [one.worse for one in feed.level(LEVEL * 2, 150)] == [True]
    for factor in (1.5, 1.07):
        feed.level(LEVEL * factor, 150)
    assert feed.detector.standing().open, "it is not as it was yet"
    told = len(feed.alarms)
    for hundredths in range(6, -1, -1):
        feed.level(LEVEL * (1 + hundredths / 100), 20)
    feed.level(LEVEL, 250)
    assert feed.detector.standing().open == ()
    assert len(feed.alarms) == told, "nothing new is told of it"


@pytest.mark.parametrize("slower", [1.08, 1.12, 2.0])
def test_a_slowness_that_stays_is_not_over(slower: float) -> None:
    feed = Feed(noise=0.005)
    feed.level(LEVEL, 300)
    feed.level(LEVEL * slower, 1500)
    assert [one.worse for one in feed.alarms] == [True]
    assert len(feed.detector.standing().open) == 1
