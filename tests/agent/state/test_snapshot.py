"""A snapshot, event by event."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.serve.refusals import Refused
from gpud.agent.state.facts import KINDS
from gpud.agent.state.snapshot import ProbeKey, Snapshot
from gpud.agent.telemetry.answers import Answer, current
from gpud.core.health import Level
from gpud.core.report import Owner
from gpud.core.sample import (
    Absent,
    Reading,
    Reason,
    Skip,
)
from gpud.core.telemetry import LEVELS
from gpud.document.machine import ChangeReport, Expected
from tests import events as happened
from tests.agent.state.folding import PROBES, START, dockerd_seen, finished, listed
from tests.events import folded, says


def test_a_failure_takes_the_figures_and_keeps_the_time_of_the_last_success() -> None:
    now = folded(START, finished(now_s=1.0), finished(now_s=9.0, reason=Reason.HUNG))
    assert sum(now.measure.latencies[0, "submit"].counts) == 1
    state = now.measure.probes[ProbeKey("launch", 0)]
    assert (state.report.samples, state.last_success_s) == ((), 1.0)
    assert now.measure.failures == {("launch", Reason.HUNG): 1}
    assert now.measure.runs == {"launch": 2}
    assert now.health["probes"].level is Level.FAILED


@pytest.mark.parametrize(
    ("story", "level", "reason", "detail"),
    [
        ([finished(reason=Reason.HUNG), finished(now_s=2.0)], Level.OK, None, None),
        (
            [finished("launch", 0), finished("triad", 1, Reason.VERIFICATION_FAILED)],
            Level.FAILED,
            "verification_failed",
            "triad on GPU 1: why",
        ),
        (
            [finished("launch", 0, Reason.HUNG), finished("triad", 0, Reason.UNSUPPORTED)],
            Level.FAILED,
            "hung",
            "launch on GPU 0: why; triad on GPU 0: why",
        ),
        (
            [finished(reason=Reason.OUT_OF_MEMORY)],
            Level.DEGRADED,
            "out_of_memory",
            "launch on GPU 0: why",
        ),
        (
            [
                finished("launch", 1, Reason.DEVICE_LOST),
                finished("cpu_call", None),
                happened.inventory_taken(listed("GPU-0"), 2.0),
            ],
            Level.OK,
            None,
            None,
        ),
    ],
    ids=["good again", "one of two", "the worst", "busy is not broken", "gone with its GPU"],
)
def test_health_of_the_probes_is_that_of_the_worst_last_run(
    story: list[happened.Event], level: Level, reason: str | None, detail: str | None
) -> None:
    health = folded(START, *story).health["probes"]
    assert (health.level, health.reason, health.detail) == (level, reason, detail)


def test_health_keeps_its_since_while_nothing_changes_and_renews_it_when_it_does() -> None:
    bad = [
        happened.health_set("store", Level.FAILED, at_s, "disk_full", f"{at_s} runs wait")
        for at_s in (1.0, 2.0)
    ]
    now = folded(START, *bad)
    assert (now.health["store"].since_s, now.health["store"].detail) == (1.0, "2.0 runs wait")
    now = happened.health_set("store", Level.OK, 3.0)(now)
    assert now.health["store"].since_s == 3.0


def test_readings_of_an_older_collection_never_outlive_a_failed_one() -> None:
    now = folded(START, says("nvml", power_watts=50.0), says("nvml", 2.0, reason="hung"))
    assert current(now.telemetry, 2.0) == ()
    assert now.telemetry.last_success_s == {"nvml": 1.0}
    assert now.telemetry.failures == {("nvml", "hung"): 1}
    assert now.health["nvml"].reason == "hung"


def test_a_silent_nvml_is_worse_where_nobody_else_sees_the_gpu() -> None:
    helped, gone = says("cuda", name="RTX 4070"), says("nvml", 2.0, reason="library_missing")
    only_there = says("dxg", gpu=None, exposed="yes")
    assert folded(START, only_there, gone).health["nvml"].level is Level.FAILED
    without = folded(START, only_there, helped, gone).health["nvml"]
    assert (without.level, without.reason) == (Level.DEGRADED, "library_missing")
    assert (without.detail or "").startswith("temperature, power and clocks are missing, speed is")
    assert folded(START, only_there, gone, helped).health["nvml"].level is Level.DEGRADED


@pytest.mark.parametrize(
    ("seen", "level"),
    [
        (dockerd_seen(), Level.OK),
        (dockerd_seen(reason="slow"), Level.DEGRADED),
        (dockerd_seen(up=False, state="starting"), Level.DEGRADED),
        (dockerd_seen(up=False, state="backoff"), Level.FAILED),
        (dockerd_seen(up=False, state="absent", policy="observe"), Level.DEGRADED),
        (
            dockerd_seen(up=False, state="down", policy="observe", owner=Owner.OTHER),
            Level.FAILED,
        ),
        (dockerd_seen(up=None, state="off", policy="off"), None),
    ],
)
def test_what_root_says_of_dockerd_is_its_health_while_root_speaks(
    seen: happened.Event, level: Level | None
) -> None:
    now = folded(START, seen)
    health = now.health.get("dockerd")
    assert (health.level if health else None) == level
    silent = happened.root_read(None, "gone", 2.0)(now)
    assert (silent.health["root"].level, silent.health["root"].detail) == (Level.FAILED, "gone")
    assert "dockerd" not in silent.health


def test_only_a_long_pause_is_one_to_resume_from() -> None:
    short = happened.folded(
        START, happened.clock_jumped(-3600.0, 1.0, 1.0), happened.clock_jumped(3.0, 2.0, 2.0)
    )
    assert (short.machine.clock_jumps, short.machine.paused_s) == (2, 3.0)
    assert short.machine.resumed_mono_s is None
    long = happened.clock_jumped(30.0, 9.0, 8.0)(short)
    assert long.machine.resumed_mono_s == 8.0
    assert happened.clock_jumped(3.0, 10.0, 9.0)(long).machine.resumed_mono_s == 8.0


def test_what_was_read_before_the_lid_was_closed_is_not_shown_as_what_is_now() -> None:
    def answer_of(source: str, field: str, value: float | str) -> happened.Event:
        readings = (Reading(0, field, value, source),)
        return happened.source_answered(
            Answer(source, LEVELS.index(source), 1.0, 1.0, readings, holds_s=330.0), 1.0
        )

    before = happened.folded(
        START,
        answer_of("nvidia_smi_exe", "temperature_celsius", 83.0),
        answer_of("cuda", "name", "card"),
    )
    short = happened.clock_jumped(3.0, 5.0, 2.0)(before)
    assert [r.value for r in current(short.telemetry, 3.0)] == ["card", 83.0]
    slept = happened.clock_jumped(28800.0, 28802.0, 2.0)(before)
    assert [r.value for r in current(slept.telemetry, 3.0)] == ["card", Absent.STALE]
    assert slept.telemetry.answers["nvidia_smi_exe"].taken_s == 1.0  # that was the time then
    again = answer_of("nvidia_smi_exe", "temperature_celsius", 41.0)(slept)
    assert [r.value for r in current(again.telemetry, 3.0)] == ["card", 41.0]


def skip(probe: str, reason: Skip = Skip.GPU_BUSY, **more: Any) -> happened.Event:
    return happened.run_skipped(probe, reason, 1.0, **more)


def test_skips_in_a_row_are_counted_per_gpu_until_a_run_ends_the_row() -> None:
    uuid, other = "GPU-0", "GPU-1"
    row = [skip("launch", gpu=uuid), skip("launch", gpu=uuid), skip("launch", gpu=other)]
    now = folded(START, skip("launch", Skip.NO_GPU), *row)
    assert {key: value.count for key, value in now.measure.put_off.items()} == {
        ProbeKey("launch", None): 1,
        ProbeKey("launch", 0): 2,
        ProbeKey("launch", 1): 1,
    }
    assert now.measure.skips == {("launch", Skip.NO_GPU): 1, ("launch", Skip.GPU_BUSY): 3}
    assert "gate" not in now.health
    ran = finished()(now)
    assert set(ran.measure.put_off) == {ProbeKey("launch", 1)}


def test_a_probe_put_off_for_too_long_degrades_the_gate_until_it_runs() -> None:
    uuid = "GPU-0"
    starved = happened.folded(
        START, skip("launch", gpu=uuid), skip("launch", gpu=uuid, starving=True)
    )
    health = starved.health["gate"]
    assert (health.level, health.reason) == (Level.DEGRADED, "starved")
    assert health.detail == "launch on GPU 0 skipped 2 times in a row: somebody else uses the GPU"
    ran = finished()(starved)
    assert ran.health["gate"].level is Level.OK
    once = happened.folded(START, skip("launch", gpu=uuid, starving=True))
    assert "skipped 1 time in a row" in (once.health["gate"].detail or "")
    several = happened.folded(
        START,
        *(skip("launch", gpu=uuid, starving=True) for _ in range(3)),
        *(skip("triad", gpu=uuid, starving=True) for _ in range(2)),
    )
    assert several.health["gate"].detail == (
        "launch, triad on GPU 0 skipped 3 times in a row: somebody else uses the GPU"
    )
    gone = happened.inventory_taken(listed(), 3.0)(starved)
    assert gone.health["gate"].level is Level.OK
    assert gone.measure.put_off == {}


moments = st.floats(min_value=0, max_value=4e9)
gpus = st.none() | st.integers(0, 2)
reasons = st.sampled_from(Reason)
events = st.one_of(
    st.builds(finished, st.sampled_from(PROBES), gpus, st.none() | reasons, moments),
    st.builds(happened.run_skipped, st.sampled_from(PROBES), st.sampled_from(Skip), moments),
    st.just(happened.child_spawned()),
    st.builds(
        happened.inventory_taken,
        st.integers(0, 3).map(lambda n: listed(*(f"GPU-{i}" for i in range(n)))),
        moments,
    ),
    st.builds(
        happened.source_answered,
        st.builds(
            Answer,
            st.sampled_from(LEVELS[1:]),
            st.integers(1, 5),
            moments,
            moments,
            reason=st.none() | st.just("hung"),
        ),
        moments,
    ),
    st.builds(happened.program_started, st.sampled_from(LEVELS[3:5])),
    st.builds(
        happened.changed,
        st.builds(
            ChangeReport,
            st.sampled_from(KINDS),
            st.none() | st.just("1"),
            st.just("2"),
            moments,
            st.just(""),
        ).map(lambda change: (change,)),
        moments,
    ),
    st.builds(
        happened.remembered,
        st.dictionaries(st.sampled_from("AB"), st.builds(Expected, st.just("card"))),
        moments,
    ),
    st.builds(happened.platform_read, st.just({"wsl_version": "2.6.1.0"}), moments),
    st.builds(happened.clock_jumped, st.floats(-1e5, 1e5), moments),
    st.builds(happened.root_read, st.none(), st.just("gone"), moments),
    st.builds(
        happened.health_set, st.sampled_from(["store", "http"]), st.sampled_from(Level), moments
    ),
    st.builds(happened.turned_away, st.dictionaries(st.sampled_from(Refused), st.integers(1, 9))),
)


def counters(snapshot: Snapshot) -> dict[object, float]:
    return {
        **{("runs", key): value for key, value in snapshot.measure.runs.items()},
        **{("failures", key): value for key, value in snapshot.measure.failures.items()},
        **{("skips", key): value for key, value in snapshot.measure.skips.items()},
        "gpu_seconds": snapshot.measure.gpu_seconds,
        "children": snapshot.measure.children,
        "jumps": snapshot.machine.clock_jumps,
        "paused": snapshot.machine.paused_s,
        **{("failed", key): value for key, value in snapshot.telemetry.failures.items()},
        **{("changed", key): value for key, value in snapshot.changes.counts.items()},
        **{("started", key): value for key, value in snapshot.telemetry.starts.items()},
        **{("turned away", key): value for key, value in snapshot.http.turned_away.items()},
    }


@given(st.lists(events, max_size=30))
def test_no_event_makes_a_counter_smaller_or_forgets_it(happened: list[happened.Event]) -> None:
    now = START
    for event in happened:
        before, now = counters(now), event(now)
        after = counters(now)
        assert all(after[name] >= value for name, value in before.items())


@given(st.lists(events, max_size=30))
def test_no_component_is_degraded_or_failed_without_a_cause(
    happened: list[happened.Event],
) -> None:
    for health in folded(START, *happened).health.values():
        assert health.level is Level.OK or health.detail
