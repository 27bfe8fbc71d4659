"""What the detector says of streams whose truth is known."""

from __future__ import annotations

import math

import pytest

from gpud.agent.regression.detector import (
    Detector,
    Direction,
    Kind,
    Observation,
    Refusal,
    State,
    detect,
    refusal,
)
from gpud.agent.regression.detector.siblings import confirmed
from gpud.agent.regression.detector.stream import CAME_BACK, TOO_FEW
from gpud.core.sample import Flag, Unit
from tests.agent.regression.detector.streams import FIRST_S, NIGHT_S, Feed, reloaded

US = 1e-6


def updated(to: float, before: int = 300, after: int = 200) -> Feed:
    feed = Feed()
    feed.level(12.4 * US, before)
    feed.driver = "576.02"
    feed.level(12.4 * US * to, after)
    return feed


def verdict_of(feed: Feed) -> State:
    verdict = feed.detector.verdict
    assert verdict is not None
    return verdict.state


def test_a_slower_driver_is_told_within_twenty_samples_with_both_versions_and_the_size() -> None:
    (alarm,) = updated(1.2).alarms
    assert (alarm.kind, alarm.worse) == (Kind.DRIVER, True)
    assert (alarm.old_driver, alarm.new_driver) == ("572.16", "576.02")
    assert (alarm.since_seq, alarm.samples) == (300, 20)
    assert alarm.effect.low < 1.2 < alarm.effect.high
    assert alarm.effect.ratio == pytest.approx(1.2, rel=0.03)
    assert alarm.before == pytest.approx(12.4 * US, rel=0.02)
    assert alarm.after == pytest.approx(14.88 * US, rel=0.03)


def test_a_faster_driver_is_improved_and_opens_nothing() -> None:
    feed = updated(1 / 1.2)
    assert [alarm.worse for alarm in feed.alarms] == [False]
    assert verdict_of(feed) is State.IMPROVED
    assert feed.detector.standing().open == ()


def test_less_of_a_rate_is_worse() -> None:
    feed = Feed(Detector(Direction.HIGHER))
    feed.level(4.6e11, 300)
    feed.driver = "576.02"
    (alarm,) = feed.level(4.6e11 * 0.85, 100)
    assert alarm.worse
    assert alarm.effect.ratio == pytest.approx(0.85, rel=0.03)
    assert feed.detector.standing().slowdown == pytest.approx(1 / 0.85, rel=0.03)


def test_of_rates_more_is_better_and_of_everything_else_less() -> None:
    more = {unit for unit in Unit if Direction.of(unit) is Direction.HIGHER}
    assert more == {Unit.BYTES_PER_SECOND, Unit.FLOPS_PER_SECOND}


def test_an_update_without_effect_ends_as_no_change_with_its_limit() -> None:
    feed = updated(1.0)
    assert feed.alarms == []
    verdict = feed.detector.verdict
    assert verdict is not None
    assert (verdict.state, verdict.samples) == (State.NO_CHANGE, 120)
    assert verdict.limit is not None
    assert 0.06 < verdict.limit < 0.1


def test_a_verdict_is_learnt_then_undecided_then_reached() -> None:
    feed = updated(1.0, after=0)
    seen = []
    for _ in range(130):
        feed.level(12.4 * US, 1)
        seen.append(verdict_of(feed))
    changes = [state for at, state in enumerate(seen) if at == 0 or state is not seen[at - 1]]
    assert changes == [State.LEARNING, State.UNDECIDED, State.NO_CHANGE]
    assert seen.index(State.UNDECIDED) == 22  # three to settle, twenty to look at


def test_too_few_samples_of_the_old_driver_make_no_verdict_and_say_so() -> None:
    feed = updated(1.3, before=15)
    verdict = feed.detector.verdict
    assert feed.alarms == []
    assert verdict is not None
    assert (verdict.state, verdict.why) == (State.NONE, TOO_FEW)


def test_eight_nights_of_a_new_driver_are_enough_for_a_large_effect() -> None:
    feed = Feed(spacing_s=NIGHT_S)
    feed.level(50.0, 30)
    feed.driver = "576.02"
    (alarm,) = feed.level(60.0, 15)
    assert (alarm.kind, alarm.samples) == (Kind.DRIVER, 8)


def test_a_step_under_the_same_driver_is_found_where_it_was() -> None:
    feed = Feed()
    feed.level(12.4 * US, 500)
    (alarm,) = feed.level(12.4 * US * 1.15, 160)
    assert (alarm.kind, alarm.worse) == (Kind.STEP, True)
    assert abs(alarm.since_seq - 500) <= 2
    assert alarm.effect.low < 1.15 < alarm.effect.high
    assert alarm.old_driver == alarm.new_driver


def test_a_slow_slide_is_called_drift() -> None:
    feed = Feed()
    feed.level(12.4 * US, 500)
    for step in range(300):
        feed.level(12.4 * US * (1 + 0.3 * step / 300), 1)
    assert feed.alarms[0].kind is Kind.DRIFT
    assert feed.alarms[0].worse


def test_only_a_driver_confirms_itself_and_any_other_change_wants_a_sibling() -> None:
    (by_driver,) = updated(1.2).alarms
    feed = Feed()
    feed.level(12.4 * US, 500)
    (step,) = feed.level(12.4 * US * 1.15, 160)
    assert confirmed(by_driver, [])
    assert not confirmed(step, [])
    assert confirmed(step, [step])
    later = Feed(at_s=FIRST_S + 7 * NIGHT_S)
    later.level(3.1, 500)
    (week_after,) = later.level(3.6, 160)
    assert not confirmed(step, [week_after])


def test_an_outage_of_ten_times_that_ends_within_the_hour_is_no_alarm() -> None:
    feed = Feed()
    feed.level(12.4 * US, 500)
    feed.level(124 * US, 45)
    feed.level(12.4 * US, 500)
    assert feed.alarms == []
    assert feed.detector.standing().slowdown == pytest.approx(1, abs=0.03)


def test_a_long_outage_opens_an_alarm_and_recovery_closes_it() -> None:
    feed = Feed()
    feed.level(12.4 * US, 500)
    (began,) = feed.level(124 * US, 300)
    assert feed.detector.standing().open == (began,)
    (ended,) = feed.level(12.4 * US, 300)
    assert not ended.worse
    assert ended.closes == (began.seq,)
    assert feed.detector.standing().open == ()


def test_a_level_once_left_again_is_known_when_it_comes_back() -> None:
    feed = Feed()
    feed.level(12.4 * US, 500)
    feed.level(20 * US, 300)
    feed.level(12.4 * US, 300)
    assert feed.detector.level.count > 500
    assert feed.detector.level.own == 300


def test_the_second_driver_of_a_flap_is_judged_against_the_first_and_so_is_the_return() -> None:
    feed = updated(1.2)
    feed.driver = "572.16"
    (back,) = feed.level(12.4 * US, 100)
    first = feed.alarms[0]
    assert (back.kind, back.worse, back.closes) == (Kind.DRIVER, False, (first.seq,))
    assert (back.old_driver, back.new_driver) == ("576.02", "572.16")
    assert feed.detector.level.count > 300  # the first driver's own reference, not a new one
    assert feed.detector.standing().slowdown == pytest.approx(1, abs=0.03)


def test_an_update_taken_back_before_its_verdict_leaves_the_old_level_as_it_was() -> None:
    feed = updated(1.2, after=10)
    feed.driver = "572.16"
    feed.level(12.4 * US, 100)
    verdict = feed.detector.verdict
    assert feed.alarms == []
    assert verdict is not None
    assert (verdict.state, verdict.new_driver, verdict.why) == (State.NONE, "576.02", CAME_BACK)
    assert feed.detector.level.count == 297 + 97


def test_an_undecided_driver_known_as_well_as_the_older_one_takes_its_place() -> None:
    feed = updated(1.0, before=40, after=60)
    feed.driver = "577.00"
    (alarm,) = feed.level(12.4 * US * 1.2, 60)
    assert (alarm.old_driver, alarm.new_driver) == ("576.02", "577.00")


def test_an_update_that_comes_while_undecided_is_judged_against_the_older_driver() -> None:
    feed = updated(1.0, after=10)
    feed.driver = "577.00"
    (alarm,) = feed.level(12.4 * US * 1.2, 60)
    assert (alarm.old_driver, alarm.new_driver) == ("572.16", "577.00")


def test_two_power_states_do_not_hide_an_effect_larger_than_half_their_distance() -> None:
    feed = Feed()

    def both(level: float, count: int) -> None:
        for at in range(count):
            feed.level(level * (1.6 if at % 37 in {5, 6, 7, 20, 21} else 1.0), 1)

    both(12.4 * US, 600)
    feed.driver = "576.02"
    both(12.4 * US * 1.35, 150)
    (alarm,) = feed.alarms
    assert alarm.worse
    assert alarm.effect.ratio == pytest.approx(1.35, rel=0.05)


def test_more_visits_to_the_slow_state_than_ever_are_told_though_neither_state_moved() -> None:
    feed = Feed()

    def mixed(slow_of_twenty: int, count: int) -> None:
        for at in range(count):
            slow = at * 7 % 20 < slow_of_twenty
            feed.level(12.4 * US * (1.5 if slow else 1), 1, (Flag.LOW,) if slow else ())

    mixed(2, 700)
    mixed(14, 200)
    (alarm,) = feed.alarms
    assert (alarm.kind, alarm.worse) == (Kind.SLOW_STATE, True)
    assert abs(alarm.since_seq - 700) < 20
    assert alarm.effect.low < math.exp(0.6 * math.log(1.5)) < alarm.effect.high


def test_more_visits_to_a_slow_state_are_told_even_where_no_flag_marks_them() -> None:
    feed = Feed()

    def mixed(slow_of_twenty: int, count: int) -> None:
        for at in range(count):
            feed.level(12.4 * US * (1.5 if at * 7 % 20 < slow_of_twenty else 1), 1)

    mixed(3, 700)
    mixed(14, 200)
    (alarm,) = feed.alarms
    assert (alarm.kind, alarm.worse) == (Kind.SLOW_STATE, True)
    assert abs(alarm.since_seq - 700) < 20


def test_one_long_stay_somewhere_slower_is_a_level_and_not_a_power_state() -> None:
    feed = Feed(spacing_s=NIGHT_S)
    feed.level(50.0, 8)
    feed.level(40.0, 100)
    (alarm,) = feed.level(50.0, 30)
    assert (alarm.kind, alarm.worse) == (Kind.STEP, True)


@pytest.mark.parametrize("flag", [Flag.BUSY, Flag.COLD, Flag.JUMPED])
def test_marked_samples_are_counted_and_never_judged(flag: Flag) -> None:
    feed = Feed()
    feed.level(12.4 * US, 300)
    judged = feed.detector.judged
    feed.level(40 * US, 300, (flag,))
    standing = feed.detector.standing()
    assert feed.alarms == []
    assert standing.judged == judged
    assert standing.set_aside[flag] == 300


def test_a_stream_that_is_always_busy_has_no_level_and_says_since_when() -> None:
    feed = Feed()
    feed.level(12.4 * US, 200, (Flag.BUSY,))
    standing = feed.detector.standing()
    assert (standing.seen, standing.judged, standing.last_judged_s) == (200, 0, None)
    assert (standing.level, standing.slowdown, standing.verdict) == (None, None, None)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, Refusal.NOT_FINITE),
        (math.inf, Refusal.NOT_FINITE),
        (-math.inf, Refusal.NOT_FINITE),
        (0.0, Refusal.NOT_POSITIVE),
        (-1.0, Refusal.NOT_POSITIVE),
    ],
)
def test_what_cannot_be_a_measurement_is_refused_by_name_and_changes_nothing(
    value: float, reason: Refusal
) -> None:
    feed = Feed()
    feed.level(12.4 * US, 100)
    expected = reloaded(feed.detector)
    feed.values([value])
    assert refusal(Observation(FIRST_S, value, "572.16")) is reason
    assert feed.detector.standing().refused == {reason: 1}
    expected.intake = feed.detector.intake
    assert feed.detector == expected


def test_a_sample_without_a_time_or_a_driver_is_refused() -> None:
    assert refusal(Observation(math.nan, 1.0, "572.16")) is Refusal.BAD_TIME
    assert refusal(Observation(FIRST_S, 1.0, "")) is Refusal.NO_DRIVER
    assert refusal(Observation(FIRST_S, 1.0, "572.16")) is None


@pytest.mark.parametrize("count", [0, 1, 5])
def test_hardly_any_samples_are_no_reason_for_anything(count: int) -> None:
    feed = Feed()
    feed.level(12.4 * US, count)
    assert feed.alarms == []
    assert feed.detector.standing().seen == count


def test_values_that_never_differ_draw_no_alarm_and_a_step_of_them_does() -> None:
    feed = Feed()
    feed.values([12.4 * US] * 1500)
    assert feed.alarms == []
    (alarm,) = feed.values([12.4 * US * 1.1] * 150)
    assert alarm.effect.ratio == pytest.approx(1.1, rel=1e-6)


def test_a_clock_set_back_by_a_day_is_no_pause_and_no_alarm() -> None:
    feed = Feed()
    feed.level(12.4 * US, 300)
    feed.at_s -= NIGHT_S
    feed.level(12.4 * US, 300)
    assert feed.alarms == []
    assert feed.detector.standing().judged == 600 - 3


def test_after_a_night_asleep_three_samples_are_left_out_and_the_level_goes_on() -> None:
    feed = Feed()
    feed.level(12.4 * US, 300)
    feed.at_s += 8 * 3600
    feed.values([90 * US] * 3)
    feed.level(12.4 * US, 300)
    assert feed.alarms == []
    assert feed.detector.standing().set_aside == {"settling": 6}
    assert feed.detector.level.count == 300 - 3 + 300


def test_a_resumed_sample_is_a_pause_however_short_it_was() -> None:
    feed = Feed()
    feed.level(12.4 * US, 100)
    feed.level(90 * US, 1, (Flag.RESUME,))
    feed.level(12.4 * US, 10)
    assert feed.detector.standing().set_aside == {"settling": 6}


def test_a_burst_like_those_the_old_driver_had_is_not_the_new_driver() -> None:
    feed = Feed()

    for height in (1.15, 1.25, 1.35, 1.45, 1.3, 1.5):
        feed.level(12.4 * US, 120)
        feed.level(12.4 * US * height, 30)
    feed.driver = "576.02"
    feed.level(12.4 * US * 1.25, 33)
    feed.level(12.4 * US, 120)
    assert feed.alarms == []
    assert verdict_of(feed) is State.NO_CHANGE


def test_a_shift_that_is_not_yet_in_the_first_half_waits_for_the_next_looks() -> None:
    feed = updated(1.0, after=6)
    (alarm,) = feed.level(12.4 * US * 1.2, 100)
    assert (alarm.kind, alarm.samples) == (Kind.DRIVER, 30)  # the look at 20 had it nearly all


def test_an_improvement_that_falls_short_of_the_old_level_closes_nothing() -> None:
    feed = Feed()
    feed.level(12.4 * US, 500)
    (began,) = feed.level(12.4 * US * 1.6, 400)
    (better,) = feed.level(12.4 * US * 1.3, 300)
    assert (better.worse, better.closes) == (False, ())
    assert feed.detector.standing().open == (began,)


def test_the_level_that_was_left_keeps_no_sample_of_the_next_one() -> None:
    feed = Feed()
    feed.level(12.4 * US, 500)
    (alarm,) = feed.level(12.4 * US * 1.5, 200)
    (left,) = feed.detector.left
    assert left.count == len(left.ref) == len(left.ys) == alarm.since_seq - 3
    assert max(left.ys) < math.log(12.4 * US * 1.2)


def test_what_is_accepted_is_the_usual_from_then_on() -> None:
    feed = updated(1.2)
    assert feed.detector.standing().slowdown == pytest.approx(1.2, rel=0.03)
    feed.detector.accept()
    standing = feed.detector.standing()
    assert standing.open == ()
    assert standing.slowdown == pytest.approx(1, abs=0.03)


def test_a_whole_stream_is_judged_as_sample_by_sample() -> None:
    feed = updated(1.2)
    again = Feed()
    times: list[float] = []
    values: list[float] = []
    for count, level in ((300, 12.4 * US), (200, 12.4 * US * 1.2)):
        for _ in range(count):
            times.append(FIRST_S + 60 * (len(times) + 1))
            values.append(level * math.exp(again.rng.gauss(0, again.noise)))
    drivers = ["572.16"] * 300 + ["576.02"] * 200
    (alarm,) = feed.alarms
    assert detect(times, values, drivers, "lower-is-better") == [
        {
            "index": alarm.seq,
            "change_index": alarm.since_seq,
            "ratio": pytest.approx(alarm.effect.ratio),
        }
    ]


def test_a_recording_that_names_no_driver_is_judged_as_of_one() -> None:
    times = [FIRST_S + 60 * at for at in range(700)]
    values = [12.4] * 500 + [15.0] * 200
    (found,) = detect(times, values, [""] * 700, "lower-is-better")
    assert found["change_index"] == 500


def test_a_stream_has_one_direction_and_known_flags() -> None:
    with pytest.raises(ValueError, match="sideways"):
        detect([], [], [], "sideways")
    with pytest.raises(ValueError, match="tired"):
        detect([FIRST_S], [1.0], ["572.16"], "lower-is-better", ["tired"])
