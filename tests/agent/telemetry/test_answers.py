"""What holds of the sources' answers: the best one's value, field by field, while it is fresh."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.telemetry.answers import Answer, Telemetry, current, level, with_answer
from gpud.agent.telemetry.fields import FIELDS
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
