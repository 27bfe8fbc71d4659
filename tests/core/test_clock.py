"""The two clocks of a machine, the rest between attempts, and the hours that are quiet."""

from __future__ import annotations

import pytest

from gpud.core import clock
from gpud.core.clock import Backoff, Instant

BEFORE = Instant(10_000.0, 5.0)


@pytest.mark.parametrize(
    ("wall_s", "mono_s", "threshold_s", "jump_s"),
    [
        (13_600.0, 3605.0, clock.WITHIN_RUN_S, None),
        (38_810.0, 15.0, clock.BETWEEN_TICKS_S, 28_800),
        (6401.0, 6.0, clock.BETWEEN_TICKS_S, -3600),
        (10_005.0, 5.0, 5.0, None),
        (10_005.25, 5.0, 5.0, 5.25),
    ],
    ids=["together", "a night asleep", "set back", "just the threshold", "above it"],
)
def test_clocks_that_part_by_more_than_the_threshold_have_jumped(
    wall_s: float, mono_s: float, threshold_s: float, jump_s: float | None
) -> None:
    assert clock.jumped(BEFORE, Instant(wall_s, mono_s), threshold_s=threshold_s) == jump_s


def test_a_machine_that_slept_is_left_alone_and_one_that_stuttered_is_not() -> None:
    assert clock.rest_s(8 * 3600.0) == clock.REST_S
    assert clock.rest_s(4.0) == clock.rest_s(-4.0) == 0
    assert clock.rest_s(0.128) == 0, "NTP steps by so little"
    assert clock.rest_s(-3600.0) == clock.REST_S
    assert clock.rest_s(5.0) == clock.rest_s(-5.0) == clock.REST_S


def test_the_first_retry_is_immediate_and_later_ones_double_up_to_the_cap() -> None:
    rest = Backoff(first_s=1.0, longest_s=10.0, well_after_s=30.0)
    assert [rest.delay_s(n, 0.0) for n in range(8)] == [0, 0, 1, 2, 4, 8, 10, 10]
    assert 0 < rest.delay_s(10**6, 1.0) < 10
    assert rest.failures(7, lived_s=29.9) == 8
    assert rest.failures(7, lived_s=30.0) == 1, "what lived long begins to count anew"


def minute_of(text: str) -> int:
    hours, _, rest = text.partition(":")
    return int(hours) * 60 + int(rest)


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [
        ("09:00-12:00", ["09:00", "11:59"], ["08:59", "12:00", "00:00", "23:59"]),
        ("22:00-07:00", ["22:00", "23:59", "00:00", "06:59"], ["07:00", "21:59", "12:00"]),
        ("00:00-24:00", ["00:00", "12:00", "23:59"], []),
        ("23:30-00:00", ["23:30", "23:59"], ["00:00", "23:29"]),
    ],
)
def test_a_span_holds_its_beginning_and_not_its_end(
    hours: str, inside: list[str], outside: list[str]
) -> None:
    both = (hours, "03:00-03:01")  # several spans are quiet together
    assert [text for text in inside if not clock.quiet(both, minute_of(text))] == []
    assert [text for text in outside if clock.quiet(both, minute_of(text))] == []
    assert not clock.quiet((), 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("9-12", "not HH:MM-HH:MM"),
        ("09:00-12:00 ", "not HH:MM-HH:MM"),
        ("\u0660\u0669:00-12:00", "not HH:MM-HH:MM"),  # digits of another script
        ("09:60-12:00", "no clock shows"),
        ("24:00-12:00", "no clock shows"),
        ("09:00-24:01", "no clock shows"),
        ("09:00-09:00", "begins where it ends"),
    ],
)
def test_hours_that_are_none_are_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        clock.quiet_span(text)
