from __future__ import annotations

from gpud.core import clock
from gpud.core.clock import Backoff, Instant


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


def test_a_machine_that_slept_is_left_alone_and_one_that_stuttered_is_not() -> None:
    assert clock.rest_s(8 * 3600.0) == clock.REST_S
    assert clock.rest_s(4.0) == clock.rest_s(-4.0) == 0
    assert clock.rest_s(0.128) == 0, "NTP steps by so little"
    assert clock.rest_s(-3600.0) == clock.REST_S
    assert clock.rest_s(5.0) == clock.rest_s(-5.0) == clock.REST_S


def test_the_first_retry_is_immediate_and_later_ones_double_up_to_the_cap() -> None:
    rest = Backoff(first_s=1.0, longest_s=10.0)
    assert [rest.delay_s(n, 0.0) for n in range(8)] == [0, 0, 1, 2, 4, 8, 10, 10]
    assert 0 < rest.delay_s(10**6, 1.0) < 10


def test_what_lived_long_begins_to_count_anew() -> None:
    rest = Backoff(well_after_s=30.0)
    assert rest.failures(7, lived_s=29.9) == 8
    assert rest.failures(7, lived_s=30.0) == 1
