"""Evaluation of runs: which stream a figure belongs to, and the state of all streams."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpud.agent.regression.commands import BASELINE_ACCEPTED, BASELINE_RESET, Choice, Command
from gpud.agent.regression.detector import ChangeKind, Observation, Spans, VerdictState
from gpud.agent.regression.evaluation import (
    Evaluator,
    RunFigures,
    SharedState,
    figures,
    measurable,
    observations,
    stream_key,
    stream_name,
)
from gpud.child.probes import launch as launch_probe
from gpud.core.errors import WireError
from gpud.core.sample import (
    Backend,
    Failure,
    Flag,
    Inventory,
    Reason,
    RunReport,
    StreamKey,
    Unit,
)
from tests import snapshots

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpud.agent.regression.evaluation import StreamAlarm

FIRST_S = 1_760_000_000.0
SUBMIT = StreamKey("GPU-0", "launch", "submit")
ROUNDTRIP = StreamKey("GPU-0", "launch", "roundtrip")
CALL = StreamKey(None, "cpu_call", "call")
QUICK = Spans(0.0, 0.0)
REPORT = replace(
    snapshots.launches(), conditions={"probe_version": 3, "after.ac": True, "kernel": "6.6"}
)
KEYS = st.builds(
    StreamKey,
    st.one_of(st.none(), st.text()),
    st.text(),
    st.text(),
    st.integers(0, 10**9),
    st.booleans(),
    st.one_of(st.none(), st.text(min_size=1)),
)


@given(KEYS)
def test_name_of_a_stream_is_read_back(key: StreamKey) -> None:
    assert stream_key(stream_name(key)) == key


def test_name_of_a_stream_is_json_for_people() -> None:
    assert stream_name(SUBMIT) == '["GPU-0","launch","submit",1,false]'
    copies = StreamKey("GPU-0", "peer_copy", "to_peer", peer="GPU-1")
    assert stream_name(copies) == '["GPU-0","peer_copy","to_peer",1,false,"GPU-1"]'


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", "[", '["g","p","m",1]', '["g",1,"m",1,false]'),
        *('["g","p","m",1,false,7]', '["g","p","m",1,false,"q",0]'),
    ],
)
def test_text_that_names_no_stream_is_refused(text: str) -> None:
    with pytest.raises(WireError, match="names no stream"):
        stream_key(text)


def test_each_mode_of_a_gpu_is_a_stream() -> None:
    added = list(observations(figures(REPORT, 7.0, (Flag.BUSY,)), "g1"))
    assert [key for key, _, _ in added] == [
        StreamKey(snapshots.DEVICE.uuid, "launch", mode, 3)
        for mode in ("pipelined", "roundtrip", "submit")
    ]
    assert added[-1][1:] == (Unit.SECONDS, Observation(7.0, 5e-6, "g1", (Flag.BUSY,)))


@pytest.mark.parametrize(
    ("conditions", "version", "on_battery"),
    [({"after.ac": False}, 1, True), ({"after.ac": None, "probe_version": 2}, 2, False)],
)
def test_version_and_power_source_are_part_of_a_stream(
    conditions: dict[str, Any], version: int, *, on_battery: bool
) -> None:
    run = figures(replace(REPORT, conditions=conditions), 7.0, ())
    keys = {(key.version, key.on_battery) for key, _, _ in observations(run, "g1")}
    assert keys == {(version, on_battery)}


def test_copies_to_another_gpu_are_another_stream_which_ends_with_that_gpu() -> None:
    uuid, spec = snapshots.DEVICE.uuid, replace(launch_probe.SPEC, version=3)
    first, second = (
        replace(REPORT, conditions={**REPORT.conditions, "peer": peer}) for peer in "ab"
    )
    keys = {
        key for run in (first, second) for key, _, _ in observations(figures(run, 7.0, ()), "g")
    }
    assert {(key.gpu, key.peer) for key in keys} == {(uuid, "a"), (uuid, "b")}
    devices = (snapshots.DEVICE, replace(snapshots.DEVICE, uuid="a"))
    here = {key.peer for key in keys if measurable(key, (spec,), Inventory(devices))}
    assert here == {"a"}


@pytest.mark.parametrize(
    "report",
    [
        replace(REPORT, samples=(snapshots.sample("crossover", Unit.ELEMENTS, 65536.0),)),
        replace(REPORT, device=None),  # of a GPU without a name: it is not the CPU
        RunReport("launch", Backend.CUDA, failure=Failure(Reason.HUNG, "silent")),
    ],
)
def test_report_without_a_speed_or_a_gpu_adds_to_no_stream(report: RunReport) -> None:
    assert list(observations(figures(report, 7.0, ()), "g1")) == []


def launch(at_s: float, value: float, driver: str | None, **more: Any) -> RunFigures:
    versions = {"kernel": "6.6.87", **({} if driver is None else {"driver_version": driver})}
    conditions = versions | more.pop("conditions", {})
    medians = (("roundtrip", Unit.SECONDS, 3 * value), ("submit", Unit.SECONDS, value))
    parts = {"gpu": "GPU-0", "medians": medians, "conditions": conditions, **more}
    return RunFigures("launch", "cuda", finished_s=at_s, **parts)


def call(at_s: float, value: float, **conditions: str) -> RunFigures:
    medians = (("call", Unit.SECONDS, value),)
    return RunFigures("cpu_call", "cpu", None, at_s, medians, {"kernel": "6.6.87", **conditions})


def level(
    first_s: float, value: float, count: int, driver: str | None = "572.16", **more: Any
) -> list[RunFigures]:
    rng = random.Random(first_s)
    return [
        launch(first_s + 60 * n, value * rng.lognormvariate(0, 0.01), driver, **more)
        for n in range(count)
    ]


def slower_update() -> list[RunFigures]:
    return level(FIRST_S, 1e-5, 100) + level(FIRST_S + 6000, 1.2e-5, 60, "576.02")


def evaluated(evaluator: Evaluator, runs: Iterable[RunFigures]) -> list[StreamAlarm]:
    return [alarm for run in runs for alarm in evaluator.evaluate(run).alarms]


def state(evaluator: Evaluator) -> dict[str, Any]:
    streams = {str(key): evaluator.encoded(key) for key in evaluator.streams}
    return {"contexts": msgspec.json.encode(evaluator.shared), **streams}


def restarted(evaluator: Evaluator) -> Evaluator:
    shared = msgspec.json.decode(msgspec.json.encode(evaluator.shared), type=SharedState)
    restored = Evaluator(evaluator.spans, shared)
    for key in evaluator.streams:
        restored.restore(key, evaluator.encoded(key))
    return restored


@st.composite
def histories(draw: st.DrawFn) -> list[RunFigures]:
    """Draw drivers, gaps, GPUs, power sources, failures and clocks that are set back."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    at_s, runs = FIRST_S, list[RunFigures]()
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
            runs.append(launch(at_s, value * rng.lognormvariate(0, 0.02), driver, **more))
            runs.append(call(at_s, value, kernel=kernel))
    return runs


@settings(max_examples=20, deadline=None)
@given(histories(), st.lists(st.floats(0, 1), max_size=3))
def test_restart_after_any_run_changes_no_result(runs: list[RunFigures], cuts: list[float]) -> None:
    straight, broken = Evaluator(QUICK), Evaluator(QUICK)
    alarms = evaluated(straight, runs)
    again: list[StreamAlarm] = []
    for first, last in pairwise(sorted({int(cut * len(runs)) for cut in cuts} | {0, len(runs)})):
        broken = restarted(broken)
        again += evaluated(broken, runs[first:last])
    assert again == alarms
    assert state(broken) == state(straight)


def test_alarm_of_an_update_has_peoples_names_and_all_that_differs() -> None:
    evaluator = Evaluator(QUICK)
    runs = level(FIRST_S, 1e-5, 100, conditions={"windows_build": "26100.1"})
    newer = {"windows_build": "26100.2"}
    runs += level(FIRST_S + 6000, 1.12e-5, 60, "576.02", conditions=newer)
    (raised,) = [alarm for alarm in evaluated(evaluator, runs) if alarm.key == SUBMIT]
    alarm = raised.alarm
    assert (alarm.kind, alarm.worse, raised.unit) == (ChangeKind.DRIVER, True, Unit.SECONDS)
    assert (alarm.old_driver, alarm.new_driver) == ("572.16", "576.02")
    assert raised.differences == (
        ("driver_version", "572.16", "576.02"),
        ("windows_build", "26100.1", "26100.2"),
    )
    verdict = raised.standing.verdict
    assert verdict is not None
    assert (verdict.state, verdict.old_driver) == (VerdictState.REGRESSED, "572.16")
    assert raised.standing.open == (alarm,)


def test_driver_is_no_part_of_the_cpus_context() -> None:
    evaluator = Evaluator(QUICK)
    for n in range(60):
        driver = "572.16" if n < 30 else "576.02"
        evaluator.evaluate(call(FIRST_S + 60 * n, 1e-5, driver_version=driver))
    assert evaluator.standing(CALL).verdict is None


def test_another_version_of_a_probe_and_another_gpu_begin_anew() -> None:
    evaluator = Evaluator(QUICK)
    evaluated(evaluator, level(FIRST_S, 1e-5, 60))
    newer = {"probe_version": 2}
    assert evaluated(evaluator, level(FIRST_S + 3600, 2e-5, 60, conditions=newer)) == []
    assert evaluated(evaluator, level(FIRST_S + 7200, 3e-5, 60, gpu="GPU-1")) == []
    assert {(key.gpu, key.version) for key in evaluator.streams} == {
        ("GPU-0", 1),
        ("GPU-0", 2),
        ("GPU-1", 1),
    }


def test_run_that_failed_is_no_context_and_no_sample() -> None:
    evaluator = Evaluator(QUICK)
    evaluator.evaluate(launch(FIRST_S, 1e-5, "572.16"))
    before = state(evaluator)
    assert evaluator.evaluate(launch(FIRST_S + 60, 1e-5, "999.99", medians=())).keys == []
    assert state(evaluator) == before


def test_accepted_stream_has_its_present_speed_as_baseline() -> None:
    evaluator = Evaluator(QUICK)
    evaluated(evaluator, slower_update())
    assert evaluator.standing(SUBMIT).slowdown == pytest.approx(1.2, rel=0.03)
    accept = Command(1, 0.0, BASELINE_ACCEPTED, 0, Choice(mode="submit"))
    assert evaluator.obey(accept) == {SUBMIT}
    assert evaluator.standing(SUBMIT).slowdown == pytest.approx(1.0, rel=0.03)
    assert evaluator.standing(SUBMIT).open == ()
    assert evaluator.standing(ROUNDTRIP).open != ()


def test_reset_stream_learns_anew_and_its_samples_are_counted_on() -> None:
    evaluator = Evaluator(QUICK)
    evaluated(evaluator, level(FIRST_S, 1e-5, 100))
    assert evaluator.obey(Command(1, 0.0, BASELINE_RESET, 0, Choice(mode="submit"))) == {SUBMIT}
    standing = evaluator.standing(SUBMIT)
    assert (standing.seen, standing.judged, standing.level) == (100, 0, None)
    later = evaluated(evaluator, level(FIRST_S + 6000, 2e-5, 60))
    assert {alarm.key for alarm in later} == {ROUNDTRIP}
    assert evaluator.standing(SUBMIT).seen == 160


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
def test_damaged_state_of_a_stream_is_refused_and_changes_nothing(before: str, after: str) -> None:
    evaluator = Evaluator(QUICK)
    evaluated(evaluator, level(FIRST_S, 1e-5, 20))
    expected, body = state(evaluator), evaluator.encoded(SUBMIT)
    assert before in body
    with pytest.raises(WireError):
        evaluator.restore(SUBMIT, body.replace(before, after))
    assert state(evaluator) == expected
