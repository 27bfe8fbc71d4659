from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpud.core import clock
from gpud.core.clock import Instant

moments = st.builds(
    Instant,
    st.floats(min_value=0, max_value=4e9),
    st.floats(min_value=0, max_value=1e7),
)


def test_clocks_that_advance_together_have_not_jumped() -> None:
    before, after = Instant(1000.0, 5.0), Instant(4600.0, 3605.0)
    assert clock.parted_s(before, after) == 0
    assert clock.jumped(before, after, threshold_s=clock.WITHIN_RUN_S) is None


def test_a_night_asleep_is_a_jump_forward_of_the_time_the_machine_was_paused() -> None:
    before, after = Instant(1000.0, 5.0), Instant(1000.0 + 28_810, 15.0)
    assert clock.jumped(before, after, threshold_s=clock.BETWEEN_TICKS_S) == 28_800


def test_a_wall_clock_set_back_is_a_negative_jump() -> None:
    before, after = Instant(10_000.0, 5.0), Instant(6401.0, 6.0)
    assert clock.jumped(before, after, threshold_s=clock.BETWEEN_TICKS_S) == -3600


def test_a_parting_of_just_the_threshold_is_not_a_jump_yet() -> None:
    before, after = Instant(0.0, 0.0), Instant(5.0, 0.0)
    assert clock.jumped(before, after, threshold_s=5.0) is None
    assert clock.jumped(before, Instant(5.25, 0.0), threshold_s=5.0) == 5.25


@given(moments, moments)
def test_looking_back_is_the_same_jump_the_other_way(left: Instant, other: Instant) -> None:
    assert clock.parted_s(left, other) == -clock.parted_s(other, left)


@given(moments, st.floats(min_value=0, max_value=1e6))
def test_a_pause_is_found_whatever_the_time_is(start: Instant, pause_s: float) -> None:
    after = Instant(start.wall_s + 1 + pause_s, start.mono_s + 1)
    jump = clock.jumped(start, after, threshold_s=clock.BETWEEN_TICKS_S)
    assert (jump is not None) == (clock.parted_s(start, after) > clock.BETWEEN_TICKS_S)


def test_a_machine_that_slept_is_left_alone_and_one_that_stuttered_is_not() -> None:
    assert clock.rest_s(8 * 3600.0) == clock.REST_S
    assert clock.rest_s(4.0) == clock.rest_s(-4.0) == 0
    assert clock.rest_s(0.128) == 0, "NTP steps by so little"
    assert clock.rest_s(-3600.0) == clock.REST_S
    assert clock.rest_s(5.0) == clock.rest_s(-5.0) == clock.REST_S
