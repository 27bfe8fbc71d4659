"""What a stream tells when hardly a sample can be judged, and what people may say to it."""

from __future__ import annotations

import math

import pytest

from gpud.agent.regression.detector import Detector, Direction, Kind, State
from gpud.agent.regression.detector.intake import WATCHED
from gpud.agent.regression.detector.stream import ACCEPTED
from gpud.core.sample import Flag
from tests.agent.regression.detector.streams import MINUTE_S, Feed, reloaded

US = 1e-6
LEVEL = 12.4 * US


def boosting(count: int = 700, slow_of_twenty: int = 2, slower: float = 1.5) -> Feed:
    """Feed a GPU that is known to be slow now and then."""
    feed = Feed()
    mixed(feed, count, slow_of_twenty, slower)
    return feed


def mixed(feed: Feed, count: int, slow_of_twenty: int, slower: float = 1.5) -> None:
    for at in range(count):
        slow = at * 7 % 20 < slow_of_twenty
        feed.level(LEVEL * (slower if slow else 1), 1, (Flag.LOW,) if slow else ())


def test_a_driver_that_hardly_boosts_is_told_as_that_drivers_within_twenty_runs() -> None:
    feed = boosting()
    feed.driver = "576.02"
    (alarm,) = feed.level(LEVEL * 1.5, 40, (Flag.LOW,))
    assert (alarm.kind, alarm.worse, alarm.suspect) == (Kind.SLOW_STATE, True, False)
    assert (alarm.old_driver, alarm.new_driver) == ("572.16", "576.02")
    assert alarm.samples == 20
    assert alarm.effect.ratio == pytest.approx(1.5**0.9, rel=0.05)
    verdict = feed.detector.verdict
    assert verdict is not None
    assert (verdict.state, verdict.effect) == (State.REGRESSED, alarm.effect)


def test_the_driver_after_one_that_hardly_boosts_is_judged_against_the_one_before_both() -> None:
    feed = boosting()
    feed.driver = "576.02"
    (began,) = feed.level(LEVEL * 1.5, 200, (Flag.LOW,))
    feed.driver = "577.00"
    mixed(feed, 200, 2)
    ended = feed.alarms[-1]
    assert (ended.kind, ended.worse, ended.closes) == (Kind.SLOW_STATE, False, (began.seq,))
    assert (ended.old_driver, ended.new_driver) == ("576.02", "577.00")
    mixed(feed, 150, 2, slower=1.5)
    assert feed.detector.standing().open == ()
    assert len(feed.alarms) == 2


def test_a_driver_slower_in_either_state_is_told_for_both_reasons() -> None:
    feed = boosting()
    feed.driver = "576.02"
    for at in range(200):
        slow = at % 4 != 0
        feed.level(LEVEL * 1.2 * (1.5 if slow else 1), 1, (Flag.LOW,) if slow else ())
    assert {alarm.kind for alarm in feed.alarms} == {Kind.SLOW_STATE, Kind.DRIVER}
    assert {alarm.new_driver for alarm in feed.alarms} == {"576.02"}


def test_an_update_that_boosts_as_before_draws_nothing_of_its_slow_runs() -> None:
    feed = boosting()
    feed.driver = "576.02"
    mixed(feed, 300, 3)
    assert feed.alarms == []


def test_a_level_that_improves_does_not_end_the_alarm_of_a_share() -> None:
    feed = boosting()
    mixed(feed, 300, 14)
    (began,) = feed.alarms
    feed.driver = "576.02"
    for at in range(300):
        slow = at * 7 % 20 < 14
        feed.level(LEVEL * 0.85 * (1.5 if slow else 1), 1, (Flag.LOW,) if slow else ())
    faster = [alarm for alarm in feed.alarms if alarm.kind is Kind.DRIVER]
    assert [alarm.worse for alarm in faster] == [False]
    assert began in feed.detector.standing().open


def test_a_share_that_is_taken_for_usual_is_nothing_to_tell_again() -> None:
    feed = boosting()
    mixed(feed, 300, 14)
    feed.detector.accept()
    mixed(feed, 500, 14)
    assert len(feed.alarms) == 1
    assert feed.detector.standing().open == ()
    assert feed.detector.standing().slow_state_ratio == pytest.approx(0.7, abs=0.05)


def test_other_peoples_work_is_shown_as_a_share_and_never_alarms() -> None:
    feed = Feed()
    for at in range(600):
        feed.level(LEVEL, 1, (Flag.BUSY,) if at % 20 == 0 else ())
    assert feed.detector.standing().busy_ratio == pytest.approx(0.05, abs=0.02)
    assert feed.detector.standing().busy_before_ratio is None
    moved_s = feed.at_s
    for at in range(300):
        feed.level(LEVEL * (1.3 if at % 2 else 1), 1, (Flag.BUSY,) if at % 2 else ())
    standing = feed.detector.standing()
    assert feed.alarms == []
    assert standing.busy_ratio == pytest.approx(0.5, abs=0.05)
    assert standing.busy_before_ratio == pytest.approx(0.05, abs=0.02)
    assert standing.busy_since_s == pytest.approx(moved_s, abs=30 * MINUTE_S)


@pytest.mark.parametrize("flag", [Flag.BUSY, Flag.LOW, Flag.COLD, Flag.JUMPED])
def test_a_stream_of_which_hardly_a_sample_is_judged_says_since_when_and_why(flag: Flag) -> None:
    feed = Feed()
    feed.level(LEVEL, 300)
    assert feed.detector.standing().unjudged_since_s is None
    began_s = feed.at_s + MINUTE_S
    for at in range(120):
        feed.level(LEVEL, 1, () if at % 30 == 29 else (flag,))  # one clean run is no end of it
    standing = feed.detector.standing()
    assert (standing.unjudged_since_s, standing.unjudged_for) == (began_s, flag.value)
    feed.level(LEVEL, WATCHED)
    assert feed.detector.standing().unjudged_since_s is None
    assert feed.detector.standing().unjudged_for is None


def test_a_driver_that_leaves_every_run_cold_has_no_verdict_and_says_why() -> None:
    feed = Feed()
    feed.level(LEVEL, 300)
    feed.driver = "576.02"
    feed.level(LEVEL * 1.3, 200, (Flag.COLD,))
    verdict = feed.detector.verdict
    assert verdict is not None
    assert (verdict.state, verdict.samples) == (State.LEARNING, 0)
    assert verdict.why is not None
    assert "cold" in verdict.why
    (alarm,) = feed.level(LEVEL * 1.3, 40)  # it waits for the first runs that count
    assert (alarm.kind, alarm.samples) == (Kind.DRIVER, 20)


@pytest.mark.parametrize("after", [12, 25, 60, 200])
def test_what_is_accepted_is_the_usual_at_once_however_little_of_it_is_known(after: int) -> None:
    feed = Feed()
    feed.level(LEVEL, 300)
    feed.driver = "576.02"
    feed.level(LEVEL * 1.2, after)
    feed.detector.accept()
    standing = feed.detector.standing()
    assert standing.open == ()
    assert standing.slowdown == pytest.approx(1, abs=0.02)
    told = len(feed.alarms)
    feed.level(LEVEL * 1.2, 400)
    assert len(feed.alarms) == told
    assert feed.detector.standing().slowdown == pytest.approx(1, abs=0.02)


def test_an_update_accepted_on_trial_has_no_verdict_and_says_whose_word_that_is() -> None:
    feed = Feed()
    feed.level(LEVEL, 300)
    feed.driver = "576.02"
    feed.level(LEVEL * 1.2, 12)
    feed.detector.accept()
    verdict = feed.detector.verdict
    assert verdict is not None
    assert (verdict.state, verdict.why) == (State.NONE, ACCEPTED)


def test_a_slide_is_accepted_where_it_is_and_its_noise_stays_known() -> None:
    feed = Feed()
    feed.level(LEVEL, 1000)
    for step in range(200):
        feed.level(LEVEL * (1 + 0.07 * step / 200), 1)
    feed.level(LEVEL * 1.07, 60)
    assert feed.detector.standing().slowdown == pytest.approx(1.07, abs=0.02)
    feed.detector.accept()
    assert feed.detector.standing().slowdown == pytest.approx(1, abs=0.01)
    assert len(feed.detector.level.ref) == 1000
    assert reloaded(feed.detector).standing() == feed.detector.standing()
    (alarm,) = feed.level(LEVEL * 1.07 * 1.15, 200)
    assert alarm.effect.ratio == pytest.approx(1.15, rel=0.03)


def test_after_an_accepted_slowdown_the_way_back_is_an_improvement_and_the_next_one_is_told() -> (
    None
):
    feed = Feed()
    feed.level(LEVEL, 500)
    feed.level(LEVEL * 1.3, 300)
    feed.detector.accept()
    (better,) = feed.level(LEVEL, 300)
    assert (better.worse, better.closes) == (False, ())
    assert feed.detector.standing().slowdown == pytest.approx(1, abs=0.02)
    (worse,) = feed.level(LEVEL * 1.3, 300)
    assert worse.worse
    assert feed.detector.standing().slowdown == pytest.approx(1.3, rel=0.03)


def test_an_improvement_is_the_usual_from_then_on() -> None:
    feed = Feed()
    feed.level(LEVEL, 500)
    feed.level(LEVEL * 0.8, 300)
    assert feed.detector.standing().slowdown == pytest.approx(1, abs=0.02)
    (worse,) = feed.level(LEVEL, 300)
    assert worse.worse
    assert worse.effect.ratio == pytest.approx(1.25, rel=0.03)


def test_rates_are_accepted_as_durations_are() -> None:
    feed = Feed(Detector(Direction.HIGHER))
    feed.level(4.6e11, 1000)
    feed.level(4.6e11 * math.exp(-0.05), 100)
    feed.detector.accept()
    assert feed.detector.standing().slowdown == pytest.approx(1, abs=0.01)
