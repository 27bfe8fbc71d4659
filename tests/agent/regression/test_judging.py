"""The state of all streams: the same runs give the same state, wherever it was written between."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpud.agent.regression.detector import Kind, Parameters, State
from gpud.agent.regression.judging import Judging, SharedState
from gpud.agent.regression.streams import Figures
from gpud.core.errors import WireError
from gpud.core.sample import Flag, StreamKey, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpud.agent.regression.judging import Decided

FIRST_S = 1_760_000_000.0
SUBMIT = StreamKey("GPU-0", "launch", "submit")
CALL = StreamKey(None, "cpu_call", "call")
QUICK = Parameters(look_span_s=0.0, window_span_s=0.0)


def launch(at_s: float, value: float, driver: str | None, **more: Any) -> Figures:
    known = {"kernel": "6.6.87", **({} if driver is None else {"driver_version": driver})}
    conditions = known | more.pop("conditions", {})
    medians = (("roundtrip", Unit.SECONDS, 3 * value), ("submit", Unit.SECONDS, value))
    given = {"gpu": "GPU-0", "medians": medians, "conditions": conditions, **more}
    return Figures("launch", "cuda", finished_s=at_s, **given)


def call(at_s: float, value: float, **conditions: str) -> Figures:
    medians = (("call", Unit.SECONDS, value),)
    return Figures("cpu_call", "cpu", None, at_s, medians, {"kernel": "6.6.87", **conditions})


def level(
    first_s: float, value: float, count: int, driver: str | None, seed: int = 1, **more: Any
) -> list[Figures]:
    rng = random.Random(seed)
    return [
        launch(first_s + 60 * n, value * rng.lognormvariate(0, 0.01), driver, **more)
        for n in range(count)
    ]


def taken(judging: Judging, runs: Iterable[Figures]) -> list[Decided]:
    return [one for run in runs for one in judging.take(run).decided]


def everything(judging: Judging) -> dict[str, Any]:
    streams = {str(key): judging.encoded(key) for key in judging.streams}
    return {"contexts": msgspec.json.encode(judging.shared), **streams}


def restarted(judging: Judging) -> Judging:
    shared = msgspec.json.decode(msgspec.json.encode(judging.shared), type=SharedState)
    found = Judging(judging.parameters, shared)
    for key in judging.streams:
        found.restore(key, judging.encoded(key))
    return found


@st.composite
def lives(draw: st.DrawFn) -> list[Figures]:
    """Draw drivers, gaps, GPUs, power sources, failures and clocks that are set back."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    at_s, found = FIRST_S, list[Figures]()
    for _ in range(draw(st.integers(1, 4))):
        driver = draw(st.sampled_from(("572.16", "576.02", None)))
        kernel = draw(st.sampled_from(("6.6.75", "6.6.87")))
        value = draw(st.sampled_from((1e-5, 1.12e-5, 2e-5)))
        gpu = draw(st.sampled_from(("GPU-0", "GPU-1")))
        for _ in range(draw(st.integers(1, 40))):
            at_s += rng.choice((60.0, 60.0, 61.0, 7200.0 if rng.random() < 0.1 else 60.0))
            at_s -= 86400.0 if rng.random() < 0.01 else 0.0
            more: dict[str, Any] = {"gpu": gpu, "conditions": {"kernel": kernel}}
            if rng.random() < 0.1:
                more["conditions"]["after.ac"] = False
            if rng.random() < 0.05:
                more["medians"] = ()
            if rng.random() < 0.1:
                more["flags"] = (rng.choice((Flag.BUSY, Flag.LOW)),)
            found.append(launch(at_s, value * rng.lognormvariate(0, 0.02), driver, **more))
            found.append(call(at_s, value, kernel=kernel))
    return found


@settings(max_examples=25, deadline=None)
@given(lives(), st.lists(st.floats(0, 1), max_size=3))
def test_a_restart_after_any_run_loses_nothing(runs: list[Figures], cuts: list[float]) -> None:
    straight, broken = Judging(QUICK), Judging(QUICK)
    found = taken(straight, runs)
    again = list[Any]()
    places = sorted({int(cut * len(runs)) for cut in cuts} | {0, len(runs)})
    for first, last in pairwise(places):
        broken = restarted(broken)
        again += taken(broken, runs[first:last])
    assert again == found
    assert everything(broken) == everything(straight)


def test_an_update_is_told_with_peoples_names_and_all_that_differs() -> None:
    judging = Judging(QUICK)
    old, new = {"windows_build": "26100.1"}, {"windows_build": "26100.2"}
    runs = level(FIRST_S, 1e-5, 100, "572.16", conditions=old)
    runs += level(FIRST_S + 6000, 1.12e-5, 60, "576.02", conditions=new)
    found = [one for one in taken(judging, runs) if one.key == SUBMIT]
    (one,) = found
    alarm = one.alarm
    assert (alarm.kind, alarm.worse) == (Kind.DRIVER, True)
    assert (alarm.old_driver, alarm.new_driver) == ("572.16", "576.02")
    assert one.differences == (
        ("driver_version", "572.16", "576.02"),
        ("windows_build", "26100.1", "26100.2"),
    )
    verdict = one.standing.verdict
    assert verdict is not None
    assert (verdict.state, verdict.old_driver) == (State.REGRESSED, "572.16")
    assert one.standing.open == (alarm,)
    assert one.unit is Unit.SECONDS


def test_a_driver_does_not_change_what_the_cpu_is_compared_with() -> None:
    judging = Judging(QUICK)
    for n in range(60):
        driver = "572.16" if n < 30 else "576.02"
        judging.take(call(FIRST_S + 60 * n, 1e-5, driver_version=driver))
    assert judging.standing(CALL).verdict is None


def test_another_version_of_a_probe_and_another_gpu_begin_anew() -> None:
    judging = Judging(QUICK)
    taken(judging, level(FIRST_S, 1e-5, 60, "572.16"))
    newer = {"probe_version": 2}
    assert taken(judging, level(FIRST_S + 3600, 2e-5, 60, "572.16", conditions=newer)) == []
    assert taken(judging, level(FIRST_S + 7200, 3e-5, 60, "572.16", gpu="GPU-1")) == []
    assert {key.version for key in judging.streams} == {1, 2}
    assert {key.gpu for key in judging.streams} == {"GPU-0", "GPU-1"}


def test_a_run_that_failed_is_no_context_and_no_sample() -> None:
    judging = Judging(QUICK)
    judging.take(launch(FIRST_S, 1e-5, "572.16"))
    before = everything(judging)
    failed = launch(FIRST_S + 60, 1e-5, "999.99", medians=())
    assert judging.take(failed).keys == ()
    assert everything(judging) == before


def test_what_is_accepted_is_usual_from_now_on_and_nothing_else_is() -> None:
    judging = Judging(QUICK)
    runs = level(FIRST_S, 1e-5, 100, "572.16") + level(FIRST_S + 6000, 1.2e-5, 60, "576.02", 2)
    taken(judging, runs)
    roundtrip = StreamKey("GPU-0", "launch", "roundtrip")
    assert judging.standing(SUBMIT).slowdown == pytest.approx(1.2, rel=0.03)
    assert judging.accept(lambda key: key.mode == "submit") == (SUBMIT,)
    assert judging.standing(SUBMIT).slowdown == pytest.approx(1.0, rel=0.03)
    assert judging.standing(SUBMIT).open == ()
    assert judging.standing(roundtrip).open != ()


def test_a_stream_that_is_reset_learns_anew_and_its_samples_go_on_being_counted() -> None:
    judging = Judging(QUICK)
    taken(judging, level(FIRST_S, 1e-5, 100, "572.16"))
    assert judging.reset(lambda key: key == SUBMIT) == (SUBMIT,)
    standing = judging.standing(SUBMIT)
    assert (standing.seen, standing.judged, standing.level) == (100, 0, None)
    assert taken(judging, level(FIRST_S + 6000, 2e-5, 60, "572.16")) != []  # of the other mode
    assert judging.standing(SUBMIT).open == ()
    assert judging.standing(SUBMIT).seen == 160


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"unit":"seconds"', '"unit":"parsecs"'),
        ('"unit":"seconds"', '"unit":"bytes_per_second"'),
        ('"last_s":', '"last_s":"'),
        ('"detector":{', '"detector":[{'),
        ("{", ""),
    ],
)
def test_a_damaged_state_of_a_stream_is_refused_and_nothing_is_changed(
    before: str, after: str
) -> None:
    judging = Judging(QUICK)
    taken(judging, level(FIRST_S, 1e-5, 20, "572.16"))
    expected = everything(judging)
    body = judging.encoded(SUBMIT)
    assert before in body
    with pytest.raises(WireError):
        judging.restore(SUBMIT, body.replace(before, after))
    assert everything(judging) == expected
