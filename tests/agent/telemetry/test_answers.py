"""Each field: a real value or the reason why there is none, of the best source while it holds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.telemetry.answers import Answer, Telemetry, current, level, with_answer
from gpud.agent.telemetry.fields import (
    FIELDS,
    SENTINELS,
    WORDS,
    plausible,
    scaled,
    throttle_words,
)
from gpud.core.sample import Absent, Reading
from gpud.core.telemetry import LEVELS

NOW_S = 1000.0


def answer(
    source: str, *readings: Reading, reason: str | None = None, age_s: float = 0.0
) -> Answer:
    return Answer(
        source, LEVELS.index(source), NOW_S - age_s, NOW_S - age_s, readings, reason=reason
    )


def after(*answers: Answer) -> Telemetry:
    telemetry = Telemetry()
    for each in answers:
        telemetry = with_answer(telemetry, each)
    return telemetry


def values(telemetry: Telemetry, now_s: float = NOW_S) -> dict[tuple[int | None, str], object]:
    return {(r.gpu, r.field): r.value for r in current(telemetry, now_s)}


def test_each_field_comes_from_the_best_source_that_has_it() -> None:
    telemetry = after(
        answer(
            "cuda",
            Reading(0, "name", "RTX 4070", "cuda"),
            Reading(0, "memory_total_bytes", 8e9, "cuda"),
        ),
        answer(
            "nvml",
            Reading(0, "name", "NVIDIA RTX 4070", "nvml"),
            Reading(0, "utilization_gpu_ratio", Absent.UNSUPPORTED, "nvml"),
            Reading(0, "fan_ratio", Absent.UNSUPPORTED, "nvml"),
        ),
        answer("nvidia_smi", Reading(0, "fan_ratio", Absent.SENTINEL, "nvidia_smi")),
        answer("nvidia_smi_exe", Reading(0, "utilization_gpu_ratio", 0.4, "nvidia_smi_exe")),
    )
    result = {r.field: (r.value, r.source) for r in current(telemetry, NOW_S)}
    assert result == {
        "name": ("NVIDIA RTX 4070", "nvml"),
        "memory_total_bytes": (8e9, "cuda"),
        "utilization_gpu_ratio": (0.4, "nvidia_smi_exe"),
        "fan_ratio": (Absent.UNSUPPORTED, "nvml"),
    }
    assert level(telemetry, NOW_S) == 5


def test_a_value_that_is_too_old_gives_way_to_a_worse_source_and_then_to_a_reason() -> None:
    old = answer("nvml", Reading(0, "memory_total_bytes", 8e9, "nvml"), age_s=61.0)
    assert values(after(old)) == {(0, "memory_total_bytes"): Absent.STALE}
    assert level(after(old), NOW_S) == 0
    cuda = answer("cuda", Reading(0, "memory_total_bytes", 8.1e9, "cuda"))
    assert values(after(old, cuda)) == {(0, "memory_total_bytes"): 8.1e9}
    assert level(after(old, cuda), NOW_S) == 2


def test_a_device_that_is_not_exposed_is_no_level_at_all() -> None:
    for word, expected in (("yes", 1), ("no", 0), ("disabled", 0)):
        assert level(after(answer("dxg", Reading(None, "exposed", word, "dxg"))), NOW_S) == expected


readings = st.builds(
    Reading,
    st.none() | st.integers(0, 1),
    st.sampled_from(sorted(FIELDS)[:6]),
    st.floats(0, 9) | st.sampled_from(Absent),
    st.just("?"),
)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    source = draw(st.sampled_from(LEVELS[1:]))
    if draw(st.integers(0, 4)) == 0:
        return answer(source, reason="hung", age_s=draw(st.sampled_from([0.0, 61.0])))
    reported = draw(st.lists(readings, max_size=6, unique_by=lambda r: (r.gpu, r.field)))
    named = tuple(replace(r, source=source) for r in reported)
    return answer(source, *named, age_s=draw(st.sampled_from([0.0, 61.0])))


@given(st.lists(answers(), max_size=8))
def test_what_is_shown_is_fresh_said_by_its_source_and_nobody_better_knows(
    story: list[Answer],
) -> None:
    telemetry = after(*story)
    last = {each.source: each for each in story}
    shown = current(telemetry, NOW_S)
    assert len({(r.gpu, r.field) for r in shown}) == len(shown)
    for reading in shown:
        reported = [
            (each.level, r)
            for each in last.values()
            for r in each.readings
            if (r.gpu, r.field) == (reading.gpu, reading.field)
        ]
        fresh = [
            (rank, r.value)
            for rank, r in reported
            if not isinstance(r.value, Absent) and last[r.source].holds(NOW_S)
        ]
        assert reported
        if isinstance(reading.value, Absent):
            assert not fresh
        else:
            assert max(fresh)[1] == reading.value
            assert LEVELS[max(fresh)[0]] == reading.source


# --- whatever a driver or its tool writes ---


NUMBERS = sorted(name for name, field in FIELDS.items() if not field.text)
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
    assert 0 <= got <= FIELDS[field].high
    assert value not in SENTINELS


@given(whatever_c_holds, st.sampled_from([1e-3, 1e6, 0.01, 1.0]))
def test_a_sentinel_does_not_hide_behind_a_unit(raw: float, factor: float) -> None:
    got = scaled(raw, factor)
    if raw in SENTINELS or not math.isfinite(raw):
        assert got is Absent.SENTINEL
    else:
        assert got == raw * factor


@pytest.mark.parametrize("value", [True, None, [1.0], 2**63, "many"])
def test_what_is_of_another_kind_is_no_count(value: object) -> None:
    assert plausible("energy_joules_total", value) is Absent.SENTINEL


REAL = {
    "memory_total_bytes": 288 * 2**30,
    "utilization_gpu_ratio": 1.0,
    "temperature_celsius": 110.0,
    "power_watts": 1400.0,
    "energy_joules_total": 1e12,
    "clock_memory_hertz": 14.001e9,
    "pstate": 15.0,
    "pcie_generation": 7.0,
    "pcie_width": 32.0,
    "pcie_sent_bytes_per_second": 121e9,
    "fan_ratio": 1.3,
    "remapped_rows_failed": 1.0,
    "processes": 4096.0,
    "xid_last": 170.0,
}
"""The most that there has been in a machine, or near it."""

BLANK = {
    "memory_total_bytes": 2.0**60,
    "utilization_gpu_ratio": 2.55,
    "temperature_celsius": 255.0,
    "power_watts": 4_294_967.294,
    "clock_memory_hertz": 65_535e6,
    "pstate": 32.0,
    "pcie_generation": 255.0,
    "pcie_width": 255.0,
    "pcie_sent_bytes_per_second": 4_294_967_294e3,
    "fan_ratio": 2.55,
    "processes": 2.0**31,
    "xid_last": 2.0**31,
}
"""What a byte or a word with every bit set becomes, and a state that is called unknown."""


def test_the_largest_figures_there_are_get_through_and_full_bytes_and_words_do_not() -> None:
    assert {field: plausible(field, value) for field, value in REAL.items()} == REAL
    assert {plausible(field, value) for field, value in BLANK.items()} == {Absent.SENTINEL}


def test_zero_is_a_figure_like_any_other() -> None:
    assert {plausible(field, 0) for field in NUMBERS} == {0.0}


@given(st.sampled_from(TEXTS), st.sampled_from(sorted(WORDS)), st.sampled_from(["", " ", "\t"]))
def test_words_for_nothing_are_never_a_text(field: str, words: str, around: str) -> None:
    if words == "none":
        return
    for spelt in (words, words.upper(), f"[{words.title()}]"):
        assert plausible(field, around + spelt + around) is WORDS[words]


def test_no_throttle_reason_is_an_answer_and_no_name_is_none() -> None:
    assert plausible("throttle_reasons", "none") == "none"
    assert plausible("name", "None") is Absent.SENTINEL
    assert plausible("name", b"x" * 10_000) == "x" * 256


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0, "none"),
        (0x1, "idle"),
        (0x4 | 0x20, "power_cap,thermal"),
        (0x8 | 0x40 | 0x80, "hw_slowdown,hw_thermal,hw_power_brake"),
        (0x4 | 1 << 40, "power_cap,unknown"),
    ],
)
def test_each_bit_of_the_throttle_reasons_has_its_word(bits: int, words: str) -> None:
    assert throttle_words(bits) == words
