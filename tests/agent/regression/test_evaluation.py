"""Evaluation of runs: streams and their state, and the commands of people that change it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gpud.agent.regression.commands import (
    ALERT_ACKNOWLEDGED,
    BASELINE_ACCEPTED,
    BASELINE_RESET,
    Command,
    decoded,
)
from gpud.agent.regression.detector import ChangeKind, Spans, VerdictState
from gpud.agent.regression.evaluation import (
    Evaluator,
    RunFigures,
    StreamAlarm,
    figures,
    stream_name,
)
from gpud.core.alerts import Cause
from gpud.core.errors import WireError
from gpud.core.sample import Backend, Failure, Flag, Reason, RunReport, Unit
from gpud.core.streams import EVERYTHING, Choice, StreamKey
from tests import snapshots

if TYPE_CHECKING:
    from collections.abc import Iterable


FIRST_S = 1_760_000_000.0
SUBMIT = StreamKey("GPU-0", "launch", "submit")
ROUNDTRIP = StreamKey("GPU-0", "launch", "roundtrip")
QUICK = Spans(0.0, 0.0)
REPORT = replace(
    snapshots.launches(), conditions={"probe_version": 3, "after.ac": True, "kernel": "6.6"}
)


def test_name_of_a_stream_is_json_for_people() -> None:
    assert stream_name(SUBMIT) == '["GPU-0","launch","submit",1,false]'
    copies = StreamKey("GPU-0", "peer_copy", "to_peer", peer="GPU-1")
    assert stream_name(copies) == '["GPU-0","peer_copy","to_peer",1,false,"GPU-1"]'


OF_REPORT = StreamKey(snapshots.DEVICE.uuid, "launch", "submit", 3)


def measured(**conditions: Any) -> RunReport:
    return replace(REPORT, conditions=conditions)


@pytest.mark.parametrize(
    ("report", "key"),
    [
        (REPORT, OF_REPORT),
        (measured(**{"after.ac": False}), structs.replace(OF_REPORT, version=1, on_battery=True)),
        (measured(**{"after.ac": None}, probe_version=2), structs.replace(OF_REPORT, version=2)),
        (measured(probe_version=3, peer="a"), structs.replace(OF_REPORT, peer="a")),
        (replace(REPORT, samples=(snapshots.sample("crossover", Unit.ELEMENTS, 65536.0),)), None),
        (replace(REPORT, device=None), None),  # of a GPU without a name: it is not the CPU
        (RunReport("launch", Backend.CUDA, failure=Failure(Reason.HUNG, "silent")), None),
    ],
    ids=["mains", "battery", "version", "peer", "no speed", "no GPU", "a failure"],
)
def test_each_mode_of_a_gpu_is_a_stream(report: RunReport, key: StreamKey | None) -> None:
    evaluator = Evaluator(QUICK)
    for minute in range(4):
        results = evaluator.evaluate(figures(report, 60.0 * minute, (Flag.BUSY,)))
    modes = ("pipelined", "roundtrip", "submit") if key else ()
    assert [stream.mode for stream in results.keys] == [*modes]
    assert set(evaluator.streams) == {structs.replace(key, mode=mode) for mode in modes if key}
    for stream in evaluator.streams:
        standing = evaluator.standing(stream)
        assert (standing.seen, standing.set_aside) == (4, {"settling": 3, "busy": 1})


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


def evaluated(evaluator: Evaluator, runs: Iterable[RunFigures]) -> list[StreamAlarm]:
    return [alarm for run in runs for alarm in evaluator.evaluate(run).alarms]


def state(evaluator: Evaluator) -> dict[str, Any]:
    streams = {str(key): evaluator.encoded(key) for key in evaluator.streams}
    return {"contexts": msgspec.json.encode(evaluator.shared), **streams}


def test_alarm_of_an_update_has_peoples_names_and_all_that_differs() -> None:
    evaluator = Evaluator(QUICK)
    runs = level(FIRST_S, 1e-5, 100, conditions={"windows_build": "26100.1"})
    newer = {"windows_build": "26100.2"}
    runs += level(FIRST_S + 6000, 1.12e-5, 60, "576.02", conditions=newer)
    (raised,) = [alarm for alarm in evaluated(evaluator, runs) if alarm.key == SUBMIT]
    alarm = raised.alarm
    assert (alarm.kind, alarm.worse, raised.unit) == (ChangeKind.DRIVER, True, Unit.SECONDS)
    assert (alarm.old_driver, alarm.new_driver) == ("572.16", "576.02")
    assert raised.changed == (
        Cause("driver_version", "572.16", "576.02"),
        Cause("windows_build", "26100.1", "26100.2"),
    )
    verdict = evaluator.standing(SUBMIT).verdict
    assert verdict is not None
    assert (verdict.state, verdict.old_driver) == (VerdictState.REGRESSED, "572.16")
    assert evaluator.standing(SUBMIT).open == (alarm,)


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


PARTS = st.none() | st.text(min_size=1, max_size=8)
CHOICES = st.builds(Choice, PARTS, PARTS, PARTS)


@given(st.sampled_from([BASELINE_ACCEPTED, BASELINE_RESET]), CHOICES, st.integers(0, 2**40))
def test_command_is_read_back(kind: str, choice: Choice, after_run: int) -> None:
    command = Command(1, 7.0, kind, after_run, choice)
    assert decoded(1, 7.0, kind, command.body()) == command
    acknowledged = Command(1, 7.0, ALERT_ACKNOWLEDGED, after_run, EVERYTHING, "ab12")
    assert decoded(1, 7.0, ALERT_ACKNOWLEDGED, acknowledged.body()) == acknowledged


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (BASELINE_RESET, {}),  # its place in a replay is not known
        (BASELINE_RESET, {"after_run": True}),
        (BASELINE_RESET, {"after_run": 7, "gpu": None}),  # not "all of them"
        (BASELINE_ACCEPTED, {"after_run": 7, "fingerprint": "ab"}),
        (ALERT_ACKNOWLEDGED, {"after_run": 7}),
    ],
)
def test_damaged_command_is_none(kind: str, body: dict[str, int | str | None]) -> None:
    assert decoded(1, 1.0, kind, body) is None
