"""Whatever a driver or its tool writes: a real value, or the reason why there is none."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core.fields import FIELDS, SENTINELS, WORDS, Kind, plausible, scaled
from gpud.core.sample import Absent

NUMBERS = sorted(name for name, field in FIELDS.items() if field.kind is not Kind.TEXT)
TEXTS = sorted(set(FIELDS) - set(NUMBERS))

whatever_c_holds = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(-(2**63), -1),
    st.sampled_from(sorted(SENTINELS)),
    st.integers(2**64 - 64, 2**64 - 1),
    st.integers(2**63 - 64, 2**63 + 64),
    st.floats(allow_nan=True, allow_infinity=True),
)


@given(st.sampled_from(NUMBERS), whatever_c_holds)
def test_no_sentinel_and_no_impossible_number_gets_through(field: str, value: float) -> None:
    got = plausible(field, value)
    if isinstance(got, Absent):
        return
    assert isinstance(got, float)
    assert math.isfinite(got)
    assert FIELDS[field].low <= got <= FIELDS[field].high
    assert value not in SENTINELS


@given(whatever_c_holds, st.sampled_from([1e-3, 1e6, 0.01, 1.0]))
def test_a_sentinel_does_not_hide_behind_a_unit(raw: float, factor: float) -> None:
    got = scaled(raw, factor)
    if raw in SENTINELS or not math.isfinite(raw):
        assert got is Absent.SENTINEL
    else:
        assert got == raw * factor


@pytest.mark.parametrize("field", ["energy_joules_total", "clock_sm_hertz", "pcie_replays_total"])
@pytest.mark.parametrize("raw", [2**64 - 1, 2**63 - 1, 2**63 - 14, 2**32 - 1, 2**31 - 1])
def test_the_documented_blanks_are_no_counts(field: str, raw: int) -> None:
    assert plausible(field, scaled(raw, 1e-3)) is Absent.SENTINEL


@given(st.sampled_from(NUMBERS), st.text())
def test_words_are_never_a_number(field: str, words: str) -> None:
    assert isinstance(plausible(field, words), Absent)


@given(st.sampled_from(TEXTS), st.sampled_from(sorted(WORDS)), st.sampled_from(["", " ", "\t"]))
def test_words_for_nothing_are_never_a_text(field: str, words: str, around: str) -> None:
    if words == "none":
        return
    for spelt in (words, words.upper(), words.title()):
        assert plausible(field, around + spelt + around) is WORDS[words]


def test_no_throttle_reason_is_an_answer_and_no_name_is_none() -> None:
    assert plausible("throttle_reasons", "none") == "none"
    assert plausible("name", "None") is Absent.SENTINEL


@given(st.sampled_from(TEXTS), whatever_c_holds)
def test_a_number_is_never_a_text(field: str, value: float) -> None:
    assert plausible(field, value) is Absent.SENTINEL


def test_a_reason_stays_what_it_is() -> None:
    for reason in Absent:
        assert plausible("power_watts", reason) is reason


def test_a_text_from_a_driver_has_an_end() -> None:
    assert plausible("name", b"x" * 10_000) == "x" * 256
