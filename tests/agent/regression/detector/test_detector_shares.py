"""Marked samples: shares of slow and busy ones, silent streams; and what people may accept."""

from __future__ import annotations

import math

import pytest

from gpud.agent.regression.detector import ChangeKind, Detector, Direction, VerdictState
from gpud.agent.regression.detector.stream import ACCEPTED
from gpud.core.sample import Flag
from tests.agent.regression.detector.streams import (
    LEVEL,
    MINUTE_S,
    NEW,
    NEWER,
    OLD,
    Feed,
    reloaded,
    updated,
)


def mixed(
    feed: Feed,
    count: int,
    slow_of_twenty: int,
    *flags: Flag,
    factor: float = 1,
    driver: str = "",
) -> None:
    """Push samples of which so many are slow; ``flags`` mark those."""
    for at in range(count):
        slow = at * 7 % 20 < slow_of_twenty
        feed.level(factor * (1.5 if slow else 1), 1, *(flags if slow else ()), driver=driver)


def boosting() -> Feed:
    """A GPU that is slow now and then."""
    feed = Feed()
    mixed(feed, 700, 2, Flag.LOW)
    return feed


@pytest.mark.parametrize("flags", [(Flag.LOW,), ()], ids=["marked", "unmarked"])
def test_more_visits_to_the_slow_state_are_an_alarm_though_neither_state_moved(
    flags: tuple[Flag, ...],
) -> None:
    feed = Feed()
    mixed(feed, 700, 3, *flags)
    mixed(feed, 200, 14, *flags)
    (alarm,) = feed.alarms
    assert (alarm.kind, alarm.worse) == (ChangeKind.SLOW_STATE, True)
    assert abs(alarm.since_seq - 700) < 20
    if flags:
        assert alarm.effect.low < math.exp(0.55 * math.log(1.5)) < alarm.effect.high


def test_driver_that_hardly_boosts_has_the_verdict_within_an_hour() -> None:
    feed = boosting()
    (alarm,) = feed.level(1.5, 100, Flag.LOW, driver=NEW)
    assert (alarm.kind, alarm.worse, alarm.suspect) == (ChangeKind.SLOW_STATE, True, False)
    assert (alarm.old_driver, alarm.new_driver, alarm.samples) == (OLD, NEW, 60)
    assert alarm.effect.ratio == pytest.approx(1.5**0.9, rel=0.05)
    assert (feed.verdict.state, feed.verdict.effect) == (VerdictState.REGRESSED, alarm.effect)


SHARE, DRIVER = ChangeKind.SLOW_STATE, ChangeKind.DRIVER


@pytest.mark.parametrize(
    ("segments", "kinds"),
    [
        ([(30, 20, 1.0, NEW), (200, 0, 1.0, NEW)], set()),
        ([(300, 3, 1.0, NEW)], set()),
        ([(200, 15, 1.2, NEW)], {SHARE, DRIVER}),
    ],
    ids=["one visit after an update", "it boosts as before", "slower in either state"],
)
def test_new_driver_has_an_alarm_for_each_of_share_and_level_that_moved(
    segments: list[tuple[int, int, float, str]], kinds: set[ChangeKind]
) -> None:
    feed = boosting()
    for count, slow_of_twenty, factor, driver in segments:
        mixed(feed, count, slow_of_twenty, Flag.LOW, factor=factor, driver=driver)
    assert {alarm.kind for alarm in feed.alarms} == kinds
    assert all(alarm.new_driver == NEW for alarm in feed.alarms)


def test_driver_after_one_that_hardly_boosts_ends_its_alarm() -> None:
    feed = boosting()
    (began,) = feed.level(1.5, 200, Flag.LOW, driver=NEW)
    mixed(feed, 350, 2, Flag.LOW, driver=NEWER)
    ended = feed.alarms[-1]
    assert (ended.kind, ended.worse, ended.closes) == (ChangeKind.SLOW_STATE, False, (began.seq,))
    assert (ended.old_driver, ended.new_driver) == (NEW, NEWER)
    assert feed.detector.standing().open == ()
    assert len(feed.alarms) == 2


def test_level_that_improves_does_not_end_the_alarm_of_a_share() -> None:
    feed = boosting()
    mixed(feed, 300, 14, Flag.LOW)
    (began,) = feed.alarms
    mixed(feed, 300, 14, Flag.LOW, factor=0.85, driver=NEW)
    assert [alarm.worse for alarm in feed.alarms if alarm.kind is ChangeKind.DRIVER] == [False]
    assert began in feed.detector.standing().open


def test_accepted_share_is_no_alarm_again() -> None:
    feed = boosting()
    mixed(feed, 300, 14, Flag.LOW)
    feed.detector.accept()
    mixed(feed, 500, 14, Flag.LOW)
    standing = feed.detector.standing()
    assert (len(feed.alarms), standing.open) == (1, ())
    assert standing.slow_state_ratio == pytest.approx(0.7, abs=0.05)


def test_work_of_others_is_a_share_and_never_an_alarm() -> None:
    feed = Feed()
    for at in range(600):
        feed.level(1, 1, *((Flag.BUSY,) if at % 20 == 0 else ()))
    assert feed.detector.standing().busy_ratio == pytest.approx(0.05, abs=0.02)
    assert feed.detector.standing().busy_before_ratio is None
    moved_s = feed.at_s
    for at in range(300):
        feed.level(1.3 if at % 2 else 1, 1, *((Flag.BUSY,) if at % 2 else ()))
    standing = feed.detector.standing()
    assert feed.alarms == []
    assert standing.busy_ratio == pytest.approx(0.5, abs=0.05)
    assert standing.busy_before_ratio == pytest.approx(0.05, abs=0.02)
    assert standing.busy_since_s == pytest.approx(moved_s, abs=30 * MINUTE_S)


@pytest.mark.parametrize("flag", [Flag.BUSY, Flag.COLD, Flag.JUMPED])
def test_marked_samples_are_counted_and_not_evaluated(flag: Flag) -> None:
    feed = Feed()
    feed.level(1, 300)
    judged = feed.detector.judged
    feed.level(3, 300, flag)
    standing = feed.detector.standing()
    assert feed.alarms == []
    assert (standing.judged, standing.set_aside[flag]) == (judged, 300)
    always = Feed()
    always.level(1, 200, flag)
    standing = always.detector.standing()
    assert (standing.seen, standing.judged, standing.last_judged_s) == (200, 0, None)
    assert (standing.level, standing.slowdown, standing.verdict) == (None, None, None)


@pytest.mark.parametrize("flag", [Flag.BUSY, Flag.LOW, Flag.COLD, Flag.JUMPED])
def test_silent_stream_has_beginning_and_reason_of_its_silence(flag: Flag) -> None:
    feed = Feed()
    feed.level(1, 300)
    assert feed.detector.standing().unjudged_since_s is None
    began_s = feed.at_s + MINUTE_S
    for at in range(120):
        feed.level(1, 1, *(() if at % 30 == 29 else (flag,)))  # one clean run is no end of it
    standing = feed.detector.standing()
    assert (standing.unjudged_since_s, standing.unjudged_for) == (began_s, flag.value)
    feed.level(1, 20)
    standing = feed.detector.standing()
    assert (standing.unjudged_since_s, standing.unjudged_for) == (None, None)


def test_driver_that_leaves_every_run_cold_has_no_verdict_until_runs_count() -> None:
    feed = updated(1.0, after=0)
    feed.level(1.3, 200, Flag.COLD, driver=NEW)
    assert (feed.verdict.state, feed.verdict.samples) == (VerdictState.LEARNING, 0)
    assert "cold" in (feed.verdict.why or "")
    (alarm,) = feed.level(1.3, 40)
    assert (alarm.kind, alarm.samples) == (ChangeKind.DRIVER, 20)


@pytest.mark.parametrize("after", [12, 60, 200])
def test_accepted_speed_is_the_baseline_at_once(after: int) -> None:
    feed = updated(1.2, after=after)
    feed.detector.accept()
    if after == 12:  # on trial
        assert (feed.verdict.state, feed.verdict.why) == (VerdictState.NONE, ACCEPTED)
    assert feed.detector.standing().open == ()
    assert feed.slowdown == pytest.approx(1, abs=0.02)
    alarms = len(feed.alarms)
    feed.level(1.2, 400)
    assert len(feed.alarms) == alarms
    assert feed.slowdown == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("direction", Direction)
def test_slide_is_accepted_where_it_is_and_its_noise_stays(direction: Direction) -> None:
    feed, sign = Feed(Detector(direction)), direction.sign
    feed.level(1, 1000)
    for step in range(200):
        feed.level((1 + 0.07 * step / 200) ** sign, 1)
    feed.level(1.07**sign, 60)
    assert feed.slowdown == pytest.approx(1.07, abs=0.02)
    feed.detector.accept()
    assert feed.slowdown == pytest.approx(1, abs=0.01)
    assert len(feed.detector.level.ref) == 1000
    assert reloaded(feed.detector).standing() == feed.detector.standing()
    (alarm,) = feed.level((1.07 * 1.15) ** sign, 200)
    assert alarm.effect.ratio == pytest.approx(1.15**sign, rel=0.03)


@pytest.mark.parametrize("factor", [1.3, 0.8])
def test_improvement_and_accepted_slowdown_are_the_baseline_from_then_on(factor: float) -> None:
    feed = Feed()
    feed.level(1, 500)
    feed.level(factor, 300)
    feed.detector.accept()
    assert feed.slowdown == pytest.approx(1, abs=0.02)
    (back,) = feed.level(1, 300)
    assert (back.worse, back.closes) == (factor < 1, ())
    assert back.effect.ratio == pytest.approx(1 / factor, rel=0.03)


@pytest.mark.parametrize(("slow_of_five", "ratio"), [(2, 0.0), (3, 1.0)])
def test_group_of_dense_samples_is_slow_if_most_are_and_as_good_as_their_median(
    slow_of_five: int, ratio: float
) -> None:
    feed = Feed(spacing_s=10.0)
    feed.level(1, 203)
    for at in range(1500):
        slow = at % 5 < slow_of_five
        feed.level(1.5 if slow else 1, 1, *((Flag.LOW,) if slow else ()))
    standing = feed.detector.standing()
    assert standing.slow_state_ratio == pytest.approx(ratio, abs=0.2)
    assert standing.level == pytest.approx(LEVEL, rel=0.01)
