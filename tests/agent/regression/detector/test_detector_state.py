"""What holds for every stream: no look ahead, no loss at a restart, no unit, no preferred side."""

from __future__ import annotations

import math
import random
import tracemalloc
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpud.agent.regression.detector import (
    ENCODER,
    Detector,
    Direction,
    Observation,
    decode_hook,
)
from gpud.core.sample import Flag
from tests.agent.regression.detector.streams import FIRST_S, Feed, reloaded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.agent.regression.detector import Alarm

MARKS: tuple[tuple[Flag, ...], ...] = ((),) * 9 + ((Flag.LOW,), (Flag.BUSY,), (Flag.RESUME,))


@st.composite
def streams(draw: st.DrawFn) -> list[Observation]:
    """Draw levels, drivers, spacings and disturbances; the noise comes from a drawn seed.

    No level is a least effect away from the next: without noise, rounding would decide.
    """
    rng = random.Random(draw(st.integers(0, 2**32)))
    spacing_s = draw(st.sampled_from((10.0, 60.0, 300.0, 900.0, 86400.0)))
    noise = draw(st.sampled_from((0.0, 0.005, 0.03)))
    at_s, level, found = FIRST_S, 1.0, []
    for _ in range(draw(st.integers(1, 4))):
        level *= draw(st.sampled_from((0.7, 0.9, 1.0, 1.13, 1.5, 10.0)))
        driver = draw(st.sampled_from(("572.16", "576.02")))
        second = draw(st.sampled_from((0.0, 0.0, 0.4)))
        for _ in range(draw(st.integers(1, 160))):
            at_s += spacing_s * rng.choice((0.9, 1.0, 1.1, -1.0 if rng.random() < 0.02 else 1.0))
            y = rng.gauss(0, noise) + second * (rng.random() < 0.2)
            found.append(Observation(at_s, level * math.exp(y), driver, rng.choice(MARKS)))
    return found


def alarms_of(stream: Sequence[Observation], detector: Detector | None = None) -> list[Alarm]:
    detector = detector or Detector(Direction.LOWER)
    return [alarm for one in stream if (alarm := detector.push(one)) is not None]


def essence(alarms: Sequence[Alarm]) -> list[tuple[Any, ...]]:
    return [(one.seq, one.since_seq, one.kind, one.worse) for one in alarms]


@settings(max_examples=30, deadline=None)
@given(streams(), st.floats(0, 1))
def test_later_samples_never_change_earlier_alarms(stream: list[Observation], where: float) -> None:
    cut = int(where * len(stream))
    assert alarms_of(stream[:cut]) == [alarm for alarm in alarms_of(stream) if alarm.seq < cut]


@settings(max_examples=30, deadline=None)
@given(streams(), st.floats(0, 1))
def test_restart_at_any_sample_changes_nothing(stream: list[Observation], where: float) -> None:
    cut = int(where * len(stream))
    through, before = Detector(Direction.LOWER), Detector(Direction.LOWER)
    expected = alarms_of(stream, through)
    first = alarms_of(stream[:cut], before)
    after = reloaded(before)
    assert first + alarms_of(stream[cut:], after) == expected
    assert after.standing() == through.standing()
    assert after == through


@settings(max_examples=20, deadline=None)
@given(streams(), st.sampled_from((1e-9, 1e-3, 10.0, 1e12)))
def test_unit_does_not_matter(stream: list[Observation], scale: float) -> None:
    other = [Observation(o.at_s, o.value * scale, o.driver, o.flags) for o in stream]
    assert essence(alarms_of(other)) == essence(alarms_of(stream))


@settings(max_examples=20, deadline=None)
@given(streams())
def test_duration_and_its_rate_have_the_same_alarms(stream: list[Observation]) -> None:
    rates = [Observation(o.at_s, 1 / o.value, o.driver, o.flags) for o in stream]
    slow, low = alarms_of(stream), alarms_of(rates, Detector(Direction.HIGHER))
    assert essence(low) == essence(slow)
    for one, other in zip(slow, low, strict=True):
        assert one.effect.ratio == pytest.approx(1 / other.effect.ratio, rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(streams())
def test_alarm_lies_behind_its_change_and_its_ratio_in_the_interval(
    stream: list[Observation],
) -> None:
    for alarm in alarms_of(stream):
        assert alarm.since_seq <= alarm.seq
        assert alarm.effect.low <= alarm.effect.ratio <= alarm.effect.high
        assert alarm.worse is (alarm.effect.ratio > 1)


def test_state_stays_small_and_does_not_grow() -> None:
    rng = random.Random(3)
    detector = Detector(Direction.LOWER)
    level, sizes = 12.4e-6, []
    for at in range(9_000):
        if at % 700 == 699:
            level *= rng.choice((0.7, 1.4, 1.2))
        driver = f"57{at // 2500}.16"
        flags = (Flag.LOW,) if rng.random() < 0.1 else ()
        value = level * math.exp(rng.gauss(0, 0.02))
        detector.push(Observation(FIRST_S + 60.0 * at, value, driver, flags))
        if at % 1000 == 999:
            sizes.append(len(ENCODER.encode(detector)))
    assert max(sizes) < 200_000
    assert max(sizes[6:]) < 1.3 * max(sizes[:6])


def test_stream_of_a_full_level_takes_less_than_100_kb_of_memory() -> None:
    tracemalloc.start()
    try:
        feed = Feed()
        feed.level(1, 1_300)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 100_000


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"version":2', '"version":7'),
        ('"door":', '"dorr":'),
        ('"seq":[3,', '"seq":['),
        ('"ref":[', '"ref":["a",'),
        ('"first":"0', '"first":"x'),
        ('"count":', '"count":"'),
        ("}", ""),
    ],
)
def test_damaged_state_is_refused(before: str, after: str) -> None:
    feed = Feed()
    feed.level(1, 20)
    body = ENCODER.encode(feed.detector).decode()
    assert before in body
    with pytest.raises(msgspec.MsgspecError):
        msgspec.json.decode(body.replace(before, after), type=Detector, dec_hook=decode_hook)
