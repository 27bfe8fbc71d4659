"""Names of streams, and which run adds what to which."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.regression.detector import Observation
from gpud.agent.regression.streams import figures, key, named, observations
from gpud.core.errors import WireError
from gpud.core.sample import Backend, Failure, Flag, Reason, RunReport, StreamKey, Unit
from tests import snapshots

KEYS = st.builds(
    StreamKey,
    st.one_of(st.none(), st.text()),
    st.text(),
    st.text(),
    st.integers(0, 10**9),
    st.booleans(),
)
REPORT = replace(
    snapshots.launches(), conditions={"probe_version": 3, "after.ac": True, "kernel": "6.6"}
)


@given(KEYS)
def test_a_name_is_read_back_whatever_is_in_it(one: StreamKey) -> None:
    assert key(named(one)) == one


def test_a_name_is_json_that_a_person_can_read() -> None:
    assert named(StreamKey("GPU-1", "launch", "submit")) == '["GPU-1","launch","submit",1,false]'
    assert named(StreamKey(None, "cpu_call", "call", 2, on_battery=True)) == (
        '[null,"cpu_call","call",2,true]'
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "7",
        "[]",
        '["g","p","m",1]',
        '["g","p","m",true,false]',
        '["g",1,"m",1,false]',
        "[",
    ],
)
def test_what_names_no_stream_is_refused(text: str) -> None:
    with pytest.raises(WireError, match="names no stream"):
        key(text)


def test_each_mode_is_a_stream_of_its_own_of_that_gpu_version_and_power_source() -> None:
    run = figures(REPORT, 7.0, (Flag.BUSY,))
    found = observations(run, "g1")
    uuid = snapshots.DEVICE.uuid
    assert [each[0] for each in found] == [
        StreamKey(uuid, "launch", mode, 3) for mode in ("pipelined", "roundtrip", "submit")
    ]
    assert found[-1][1:] == (Unit.SECONDS, Observation(7.0, 5e-6, "g1", (Flag.BUSY,)))


@pytest.mark.parametrize(("ac", "on_battery"), [(True, False), (False, True), (None, False)])
def test_battery_is_where_it_is_known(*, ac: bool | None, on_battery: bool) -> None:
    run = figures(replace(REPORT, conditions={"after.ac": ac}), 7.0, ())
    assert {stream.on_battery for stream, _, _ in observations(run, "g1")} == {on_battery}


def test_a_run_of_before_versions_were_kept_is_of_the_first() -> None:
    run = figures(replace(REPORT, conditions={}), 7.0, ())
    assert {stream.version for stream, _, _ in observations(run, "g1")} == {1}


def test_what_is_no_measure_of_speed_adds_to_no_stream() -> None:
    moved = (snapshots.sample("crossover", Unit.ELEMENTS, 65536.0),)
    assert observations(figures(replace(REPORT, samples=moved), 7.0, ()), "g1") == ()
    broken = RunReport("launch", Backend.CUDA, failure=Failure(Reason.HUNG, "silent"))
    assert observations(figures(broken, 7.0, ()), "g1") == ()


def test_a_gpu_that_nobody_could_name_is_not_taken_for_the_cpu() -> None:
    nameless = figures(replace(REPORT, device=None), 7.0, ())
    assert nameless.medians
    assert observations(nameless, "g1") == ()
    of_the_cpu = figures(replace(REPORT, device=None, backend=Backend.CPU), 7.0, ())
    assert {stream.gpu for stream, _, _ in observations(of_the_cpu, "g1")} == {None}
