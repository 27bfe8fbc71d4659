"""Verdicts and alarms of streams whose truth is known."""

from __future__ import annotations

import math

import pytest

from gpud.agent.measure.pace import WSL2_BUDGET, stretch
from gpud.agent.regression.detector import (
    ChangeKind,
    Detector,
    Direction,
    Observation,
    SampleRefusal,
    VerdictState,
    detect,
    refusal,
)
from gpud.agent.regression.detector.model import confirmed
from gpud.agent.regression.detector.stream import CAME_BACK, TOO_FEW
from gpud.core.sample import Flag, Unit
from tests.agent.regression.detector.streams import (
    FIRST_S,
    LEVEL,
    NEW,
    NEWER,
    NIGHT_S,
    OLD,
    Feed,
    reloaded,
    updated,
)

WORSE, BETTER = (ChangeKind.DRIVER, True, OLD, NEW), (ChangeKind.DRIVER, False, OLD, NEW)
BACK = (ChangeKind.DRIVER, False, NEW, OLD)
STEP, RETURN = (ChangeKind.STEP, True, OLD, OLD), (ChangeKind.STEP, False, OLD, OLD)


@pytest.mark.parametrize(
    ("segments", "alarms", "open_after"),
    [
        pytest.param([(1, 300, OLD), (1.2, 200, NEW)], [WORSE], 1, id="slower driver"),
        pytest.param([(1, 300, OLD), (0.83, 200, NEW)], [BETTER], 0, id="faster driver"),
        pytest.param([(1, 300, OLD), (1, 200, NEW)], [], 0, id="driver without effect"),
        pytest.param([(1, 15, OLD), (1.3, 200, NEW)], [], 0, id="too few samples before"),
        pytest.param([(1, 500, OLD), (1.15, 160, OLD)], [STEP], 1, id="step"),
        pytest.param([(1, 500, OLD), (10, 45, OLD), (1, 500, OLD)], [], 0, id="outage of an hour"),
        pytest.param(
            [(1, 500, OLD), (10, 300, OLD), (1, 300, OLD)], [STEP, RETURN], 0, id="long outage"
        ),
        pytest.param(
            [(1, 500, OLD), (1.6, 400, OLD), (1.3, 300, OLD)],
            [STEP, RETURN],
            1,
            id="improvement that falls short",
        ),
        pytest.param(
            [(1, 300, OLD), *[(1.2, 150, NEW), (1, 150, OLD)] * 3],
            [WORSE, BACK] * 3,
            0,
            id="driver that comes and goes",
        ),
        pytest.param(
            [(1, 300, OLD), *[(1.2, 5, NEW), (1, 5, OLD)] * 10, (1, 300, OLD)],
            [],
            0,
            id="drivers that swap every five samples",
        ),
        pytest.param(
            [(1, 300, OLD), *[(1, 25, NEW), (1, 25, OLD)] * 6], [], 0, id="equal drivers swap"
        ),
        pytest.param([(1, 300, OLD), (1.2, 10, NEW), (1, 100, OLD)], [], 0, id="taken back early"),
        pytest.param(
            [(1, 40, OLD), (1, 60, NEW), (1.2, 60, NEWER)],
            [(ChangeKind.DRIVER, True, NEW, NEWER)],
            1,
            id="undecided driver that is known as well as the older one",
        ),
        pytest.param(
            [(1, 300, OLD), (1, 15, NEW), (1.2, 60, NEWER)],
            [(ChangeKind.DRIVER, True, OLD, NEWER)],
            1,
            id="second update while the first is undecided",
        ),
    ],
)
def test_alarms_of_levels_and_drivers(
    segments: list[tuple[float, int, str]],
    alarms: list[tuple[ChangeKind, bool, str, str]],
    open_after: int,
) -> None:
    feed = Feed()
    for factor, count, driver in segments:
        feed.level(factor, count, driver=driver)
    assert [(a.kind, a.worse, a.old_driver, a.new_driver) for a in feed.alarms] == alarms
    standing = feed.detector.standing()
    assert len(standing.open) == open_after
    assert standing.seen == sum(count for _, count, _ in segments)
    ended = {seq for alarm in feed.alarms for seq in alarm.closes}
    assert ended == {a.seq for a in feed.alarms if a.worse} - {a.seq for a in standing.open}
    if not open_after:
        assert standing.slowdown == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(
    ("spacing_s", "counts", "factor", "samples", "delay_s"),
    [
        (60.0, (300, 0), 1.2, 20, (0, 2400)),
        (60.0, (300, 6), 1.2, 30, (0, 2400)),  # the look at 20 had nearly all of it
        (10.0, (3000, 0), 1.15, 30, (1110, 2400)),
        (600.0, (300, 0), 1.15, 8, (0, 4 * 3600)),
        (NIGHT_S, (30, 0), 1.2, 8, (0, 15 * NIGHT_S)),
    ],
    ids=[
        "each minute: twenty samples",
        "a shift in the second half alone waits for the next look",
        "every ten seconds: twenty minutes",
        "every ten minutes: within four hours",
        "once a night: eight nights",
    ],
)
def test_alarm_of_a_slower_driver_has_place_size_and_interval(
    spacing_s: float,
    counts: tuple[int, int],
    factor: float,
    samples: int,
    delay_s: tuple[float, float],
) -> None:
    feed = Feed(spacing_s=spacing_s)
    before, unmoved = counts
    feed.level(1, before)
    feed.level(1, unmoved, driver=NEW)
    (alarm,) = feed.level(factor, 200, driver=NEW)
    assert (alarm.kind, alarm.worse, alarm.since_seq) == (ChangeKind.DRIVER, True, before)
    assert alarm.samples == samples
    assert delay_s[0] <= alarm.at_s - alarm.since_s <= delay_s[1]
    assert alarm.effect.low < factor < alarm.effect.high
    assert alarm.effect.ratio == pytest.approx(factor, rel=0.03)
    assert alarm.before == pytest.approx(LEVEL, rel=0.02)
    assert alarm.after == pytest.approx(factor * LEVEL, rel=0.03)


def test_less_of_a_rate_is_worse() -> None:
    feed = Feed(Detector(Direction.HIGHER))
    feed.level(1, 300)
    (alarm,) = feed.level(0.85, 100, driver=NEW)
    assert alarm.worse
    assert alarm.effect.ratio == pytest.approx(0.85, rel=0.03)
    assert feed.slowdown == pytest.approx(1 / 0.85, rel=0.03)
    rates = {unit for unit in Unit if Direction.of(unit) is Direction.HIGHER}
    assert rates == {Unit.BYTES_PER_SECOND, Unit.FLOPS_PER_SECOND}


def test_verdict_is_learnt_then_undecided_then_reached_with_its_limit() -> None:
    feed = updated(1.0, after=0)
    states = []
    for _ in range(130):
        feed.level(1, 1, driver=NEW)
        states.append(feed.verdict.state)
    assert list(dict.fromkeys(states)) == [
        VerdictState.LEARNING,
        VerdictState.UNDECIDED,
        VerdictState.NO_CHANGE,
    ]
    assert states.index(VerdictState.UNDECIDED) == 22  # three to settle, twenty to look at
    assert feed.verdict.samples == 120
    assert feed.verdict.limit is not None
    assert 0.06 < feed.verdict.limit < 0.1


@pytest.mark.parametrize(("before", "after", "why"), [(15, 200, TOO_FEW), (300, 10, CAME_BACK)])
def test_update_without_a_verdict_has_the_reason(before: int, after: int, why: str) -> None:
    feed = updated(1.3, before=before, after=after)
    if why is CAME_BACK:
        feed.level(1, 100, driver=OLD)
    assert (feed.verdict.state, feed.verdict.new_driver, feed.verdict.why) == (
        VerdictState.NONE,
        NEW,
        why,
    )


@pytest.mark.parametrize("spacing_s", [10.0, 60.0])
def test_step_is_placed_where_it_was(spacing_s: float) -> None:
    feed, dense = Feed(spacing_s=spacing_s), int(60 / spacing_s)
    feed.level(1, 500 * dense)
    (alarm,) = feed.level(1.15, 250 * dense)
    assert (alarm.kind, alarm.worse) == (ChangeKind.STEP, True)
    assert abs(alarm.since_seq - 500 * dense) <= 10
    assert alarm.effect.low < 1.15 < alarm.effect.high


def test_slow_slide_is_a_drift() -> None:
    feed = Feed()
    feed.level(1, 500)
    for step in range(300):
        feed.level(1 + 0.3 * step / 300, 1)
    assert (feed.alarms[0].kind, feed.alarms[0].worse) == (ChangeKind.DRIFT, True)


def test_update_in_the_middle_of_a_drift_has_only_its_part_of_it() -> None:
    feed = Feed()
    feed.level(1, 600)
    for step in range(400):
        feed.level(1 + 0.4 * step / 400, 1, driver=NEW if step >= 200 else OLD)
    assert {alarm.kind for alarm in feed.alarms} >= {ChangeKind.DRIFT}
    assert all(a.effect.ratio < 1.2 for a in feed.alarms if a.kind is ChangeKind.DRIVER)


def test_change_without_an_update_needs_another_stream_to_confirm_it() -> None:
    (by_driver,) = updated(1.2).alarms
    feed, week_later = Feed(), Feed(at_s=FIRST_S + 7 * NIGHT_S)
    feed.level(1, 500)
    week_later.level(1, 500)
    (step,), (other,) = feed.level(1.15, 160), week_later.level(1.15, 160)
    assert confirmed(by_driver, [])
    assert not confirmed(step, [])
    assert confirmed(step, [step])
    assert not confirmed(step, [other])


def test_two_power_states_do_not_hide_an_effect_larger_than_half_their_distance() -> None:
    feed = Feed()
    for factor, count, driver in ((1, 600, OLD), (1.35, 150, NEW)):
        for at in range(count):
            feed.level(factor * (1.6 if at % 37 in {5, 6, 7, 20, 21} else 1), 1, driver=driver)
    (alarm,) = feed.alarms
    assert alarm.worse
    assert alarm.effect.ratio == pytest.approx(1.35, rel=0.05)


def test_one_long_stay_somewhere_slower_is_a_level_and_not_a_power_state() -> None:
    feed = Feed(spacing_s=NIGHT_S)
    feed.level(1.25, 8)
    feed.level(1, 100)
    (alarm,) = feed.level(1.25, 30)
    assert (alarm.kind, alarm.worse) == (ChangeKind.STEP, True)


def test_burst_like_those_of_the_old_driver_is_not_the_new_driver() -> None:
    feed = Feed()
    for height in (1.15, 1.25, 1.35, 1.45, 1.3, 1.5):
        feed.level(1, 120)
        feed.level(height, 30)
    feed.level(1.25, 33, driver=NEW)
    feed.level(1, 120)
    assert feed.alarms == []
    assert feed.verdict.state is VerdictState.NO_CHANGE


def test_slowness_that_went_in_small_steps_is_over() -> None:
    feed = Feed(noise=0.005)
    feed.level(1, 300)
    feed.level(2, 150)
    for factor in (1.5, 1.07):
        feed.level(factor, 150)
    assert feed.detector.standing().open, "it is not as it was yet"
    before = len(feed.alarms)
    for hundredths in range(6, -1, -1):
        feed.level(1 + hundredths / 100, 20)
    feed.level(1, 250)
    assert feed.detector.standing().open == ()
    assert len(feed.alarms) == before


@pytest.mark.parametrize("slower", [1.08, 2.0])
def test_slowness_that_stays_is_one_open_alarm(slower: float) -> None:
    feed = Feed(noise=0.005)
    feed.level(1, 300)
    feed.level(slower, 1500)
    assert [alarm.worse for alarm in feed.alarms] == [True]
    assert len(feed.detector.standing().open) == 1


@pytest.mark.parametrize(
    ("at_s", "value", "driver", "reason"),
    [
        (FIRST_S, math.nan, OLD, SampleRefusal.NOT_FINITE),
        (FIRST_S, -math.inf, OLD, SampleRefusal.NOT_FINITE),
        (FIRST_S, 0.0, OLD, SampleRefusal.NOT_POSITIVE),
        (FIRST_S, -1.0, OLD, SampleRefusal.NOT_POSITIVE),
        (math.nan, 1.0, OLD, SampleRefusal.BAD_TIME),
        (FIRST_S, 1.0, "", SampleRefusal.NO_DRIVER),
    ],
)
def test_sample_that_cannot_be_a_measurement_is_refused_and_changes_nothing(
    at_s: float, value: float, driver: str, reason: SampleRefusal
) -> None:
    feed = Feed()
    feed.level(1, 100)
    expected = reloaded(feed.detector)
    assert feed.detector.push(Observation(at_s, value, driver)) is None
    assert refusal(Observation(at_s, value, driver)) is reason
    assert feed.detector.standing().refused == {reason: 1}
    expected.intake = feed.detector.intake
    assert feed.detector == expected


def test_values_that_never_differ_draw_no_alarm_and_a_step_of_them_does() -> None:
    feed = Feed(noise=0)
    feed.level(1, 1500)
    assert feed.alarms == []
    (alarm,) = feed.level(1.1, 150)
    assert alarm.effect.ratio == pytest.approx(1.1, rel=1e-6)


@pytest.mark.parametrize(
    ("gap_s", "flags", "settling"),
    [(0.0, (), 3), (-NIGHT_S, (), 3), (8 * 3600, (), 6), (0.0, (Flag.RESUME,), 6)],
)
def test_three_samples_settle_after_a_pause_and_none_after_a_clock_set_back(
    gap_s: float, flags: tuple[Flag, ...], settling: int
) -> None:
    feed = Feed()
    feed.level(1, 300)
    feed.at_s += gap_s
    feed.level(7 if settling > 3 else 1, 1, *flags)
    feed.level(1, 300)
    assert feed.alarms == []
    assert feed.detector.standing().set_aside == {"settling": settling}
    assert feed.detector.level.count == 601 - settling


def test_clock_set_back_in_a_trial_does_not_end_it() -> None:
    feed = updated(1.2, after=10)
    feed.at_s -= NIGHT_S
    (alarm,) = feed.level(1.2, 60)
    assert (alarm.kind, alarm.samples) == (ChangeKind.DRIVER, 20)


@pytest.mark.parametrize("before_s", [600.0, 7200.0])
def test_rounds_that_are_nearer_after_a_boot_cover_no_more_than_their_time(
    before_s: float,
) -> None:
    feed = Feed(spacing_s=before_s)
    feed.level(1, 300)
    feed.at_s += NIGHT_S
    feed.spacing_s = 120.0
    feed.level(1.3, 20)  # other work, for 40 minutes
    feed.spacing_s = 600.0
    feed.level(1, 300)
    assert feed.alarms == []


@pytest.mark.parametrize("before_s", [60.0, 120.0])
def test_samples_that_come_every_ten_minutes_from_now_on_are_no_pauses(before_s: float) -> None:
    feed = Feed(spacing_s=before_s)
    feed.level(1, 40)
    feed.spacing_s = 660.0
    feed.level(1, 40)
    assert feed.detector.standing().set_aside == {"settling": 3}


def test_rounds_of_a_machine_of_weeks_are_no_pauses_although_each_is_further_apart() -> None:
    feed = Feed(spacing_s=600.0)
    for used in range(WSL2_BUDGET):
        feed.spacing_s = 600.0 * stretch(WSL2_BUDGET, used)
        feed.level(1, 1)
    assert feed.spacing_s > 100 * 86400
    assert feed.detector.standing().set_aside == {"settling": 3}


@pytest.mark.parametrize(("spacing_s", "size"), [(60.0, 1), (45.0, 1), (10.0, 5)])
def test_dense_samples_are_evaluated_in_groups_of_about_45_seconds(
    spacing_s: float, size: int
) -> None:
    feed = Feed(spacing_s=spacing_s)
    feed.level(1, 400)
    assert feed.detector.intake.together == size
    assert feed.detector.standing().judged == 397
    assert feed.detector.level.count == pytest.approx(397 / size, abs=35)


def test_whole_stream_has_the_same_alarms_as_sample_by_sample() -> None:
    feed, again = updated(1.2), Feed()
    levels = [LEVEL] * 300 + [LEVEL * 1.2] * 200
    values = [level * math.exp(again.rng.gauss(0, again.noise)) for level in levels]
    times = [FIRST_S + 60 * (at + 1) for at in range(500)]
    (alarm,) = feed.alarms
    assert detect(times, values, [OLD] * 300 + [NEW] * 200, "lower-is-better") == [
        {"index": alarm.seq, "change_index": alarm.since_seq, "ratio": alarm.effect.ratio}
    ]


def test_recording_without_drivers_is_of_one_driver() -> None:
    times = [FIRST_S + 60 * at for at in range(700)]
    (alarm,) = detect(times, [12.4] * 500 + [15.0] * 200, [""] * 700, "lower-is-better")
    assert alarm["change_index"] == 500


def test_unknown_direction_or_flag_of_a_recording_is_refused() -> None:
    with pytest.raises(ValueError, match="sideways"):
        detect([], [], [], "sideways")
    with pytest.raises(ValueError, match="tired"):
        detect([FIRST_S], [1.0], [OLD], "lower-is-better", ["tired"])
