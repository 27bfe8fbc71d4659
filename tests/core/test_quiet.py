from __future__ import annotations

import pytest

from gpud.core import clock


def minute_of(text: str) -> int:
    hours, _, rest = text.partition(":")
    return int(hours) * 60 + int(rest)


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [
        ("09:00-12:00", ["09:00", "11:59"], ["08:59", "12:00", "00:00", "23:59"]),
        ("22:00-07:00", ["22:00", "23:59", "00:00", "06:59"], ["07:00", "21:59", "12:00"]),
        ("00:00-24:00", ["00:00", "12:00", "23:59"], []),
        ("23:00-24:00", ["23:00", "23:59"], ["00:00", "22:59"]),
        ("23:30-00:00", ["23:30", "23:59"], ["00:00", "23:29"]),
    ],
)
def test_a_span_holds_its_beginning_and_not_its_end(
    hours: str, inside: list[str], outside: list[str]
) -> None:
    span = clock.quiet_span(hours)
    assert [text for text in inside if not span.holds(minute_of(text))] == []
    assert [text for text in outside if span.holds(minute_of(text))] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("9-12", "not HH:MM-HH:MM"),
        ("09:00", "not HH:MM-HH:MM"),
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


def test_several_spans_are_quiet_together_and_none_never_is() -> None:
    assert clock.quiet(("09:00-10:00", "22:00-07:00"), minute_of("23:00"))
    assert not clock.quiet(("09:00-10:00", "22:00-07:00"), minute_of("12:00"))
    assert not clock.quiet((), 0)
