"""What holds for every stream: no look ahead, no loss at a restart, no unit, no preferred side."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpud.agent.regression.detector import (
    ENCODER,
    Detector,
    Direction,
    Kind,
    Observation,
    decode_hook,
)
from gpud.core.sample import Flag
from tests.agent.regression.detector.streams import Feed, reloaded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.agent.regression.detector import Alarm

FIRST_S = 1_760_000_000.0
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


def judged(stream: Sequence[Observation], detector: Detector | None = None) -> list[Alarm]:
    detector = detector or Detector(Direction.LOWER)
    return [alarm for one in stream if (alarm := detector.push(one)) is not None]


def essence(alarms: Sequence[Alarm]) -> list[tuple[Any, ...]]:
    return [(one.seq, one.since_seq, one.kind, one.worse) for one in alarms]


@settings(max_examples=30, deadline=None)
@given(streams(), st.floats(0, 1))
def test_what_comes_later_never_changes_what_was_said(
    stream: list[Observation], where: float
) -> None:
    cut = int(where * len(stream))
    assert judged(stream[:cut]) == [alarm for alarm in judged(stream) if alarm.seq < cut]


@settings(max_examples=30, deadline=None)
@given(streams(), st.floats(0, 1))
def test_a_restart_at_any_point_loses_nothing(stream: list[Observation], where: float) -> None:
    cut = int(where * len(stream))
    through, before = Detector(Direction.LOWER), Detector(Direction.LOWER)
    expected = judged(stream, through)
    first = judged(stream[:cut], before)
    after = reloaded(before)
    assert first + judged(stream[cut:], after) == expected
    assert after.standing() == through.standing()
    assert after == through


@settings(max_examples=20, deadline=None)
@given(streams(), st.sampled_from((1e-9, 1e-3, 10.0, 1e12)))
def test_the_unit_does_not_matter(stream: list[Observation], scale: float) -> None:
    other = [Observation(o.at_s, o.value * scale, o.driver, o.flags) for o in stream]
    assert essence(judged(other)) == essence(judged(stream))


@settings(max_examples=20, deadline=None)
@given(streams())
def test_a_duration_and_its_rate_tell_the_same_story(stream: list[Observation]) -> None:
    rates = [Observation(o.at_s, 1 / o.value, o.driver, o.flags) for o in stream]
    slow, low = judged(stream), judged(rates, Detector(Direction.HIGHER))
    assert essence(low) == essence(slow)
    for one, other in zip(slow, low, strict=True):
        assert one.effect.ratio == pytest.approx(1 / other.effect.ratio, rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(streams())
def test_one_alarm_a_level_and_none_before_its_change(stream: list[Observation]) -> None:
    for alarm in judged(stream):
        assert alarm.since_seq <= alarm.seq
        assert alarm.effect.low <= alarm.effect.ratio <= alarm.effect.high
        assert alarm.worse is (alarm.effect.ratio > 1)


def test_the_state_stays_small_and_does_not_grow() -> None:
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
def test_a_damaged_state_is_refused_not_guessed(before: str, after: str) -> None:
    feed = Feed()
    feed.level(1.0, 20)
    body = ENCODER.encode(feed.detector).decode()
    assert before in body
    with pytest.raises(msgspec.MsgspecError):
        msgspec.json.decode(body.replace(before, after), type=Detector, dec_hook=decode_hook)


def test_a_restart_at_any_sample_of_a_trial_ends_in_the_same_verdict() -> None:
    rng, stream = random.Random(11), []
    for at in range(620):
        driver = "572.16" if at < 400 else "576.02" if at < 520 else "577.00"
        slow = rng.random() < (0.8 if driver == "576.02" else 0.1)
        y = rng.gauss(0, 0.01) + 0.4 * slow + (0.15 if driver == "577.00" else 0)
        flags = (Flag.LOW,) if slow else ()
        stream.append(Observation(FIRST_S + 60.0 * at, math.exp(y), driver, flags))
    through = Detector(Direction.LOWER)
    expected = judged(stream, through)
    assert {(alarm.kind, alarm.new_driver) for alarm in expected} >= {
        (Kind.SLOW_STATE, "576.02"),
        (Kind.DRIVER, "577.00"),
    }
    before = Detector(Direction.LOWER)
    for cut, one in enumerate(stream):
        if cut >= 400 and cut % 9 == 0:
            after = reloaded(before)
            rest = judged(stream[cut:], after)
            assert rest == [alarm for alarm in expected if alarm.seq >= cut]
            assert after.verdict == through.verdict
        before.push(one)
