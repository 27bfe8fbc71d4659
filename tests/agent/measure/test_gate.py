from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.measure import gate
from gpud.agent.measure.conditions import Conditions
from gpud.agent.measure.gate import ECHO_S, Asked, Go, Moment, Wait
from gpud.core.sample import Backend, Pace, Skip
from gpud.core.sections import GateSettings

GIB = 1 << 30
SMALL = Asked(Backend.CUDA, Pace.SMALL, since_s=1000.0)
LARGE = Asked(Backend.CUDA, Pace.LARGE, since_s=1000.0)
CPU_CALL = Asked(Backend.CPU, Pace.SMALL, since_s=1000.0)
CPU_MATMUL = Asked(Backend.CPU, Pace.LARGE, since_s=1000.0)
EVERY = (SMALL, LARGE, CPU_CALL, CPU_MATMUL)
ON_GPU = (SMALL, LARGE)
NOON = Moment(mono_s=1000.0, local_min=12 * 60)
IDLE = Conditions(
    temperature_celsius=45.0,
    utilization_gpu_ratio=0.03,
    memory_free_bytes=7.0 * GIB,
    throttle_reasons=frozenset({"idle"}),
    ac=True,
)
BUSY = replace(IDLE, utilization_gpu_ratio=0.6)


def answers(
    seen: Conditions, moment: Moment = NOON, **settings: object
) -> dict[Asked, gate.Answer]:
    plan = replace(GateSettings(), **settings)  # type: ignore[arg-type]
    return {asked: gate.decide(plan, asked, seen, moment) for asked in EVERY}


def held(reason: Skip, *, until_s: float = 1005.0) -> dict[Asked, gate.Answer]:
    """What is waited for: the CPU goes on, the small probe is left out, the large one waits."""
    return {
        SMALL: reason,
        LARGE: Wait(reason, until_s),
        CPU_CALL: Go(),
        CPU_MATMUL: Go(),
    }


def test_on_an_idle_machine_everything_goes() -> None:
    assert set(answers(IDLE).values()) == {Go()}


def test_what_is_not_known_holds_nothing_back() -> None:
    assert set(answers(Conditions()).values()) == {Go()}
    assert set(answers(Conditions(unread="hung")).values()) == {Go()}


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (BUSY, Skip.GPU_BUSY),
        (replace(IDLE, memory_free_bytes=GIB - 1.0), Skip.VRAM_SHORT),
        (replace(IDLE, temperature_celsius=85.1), Skip.GPU_HOT),
        (replace(IDLE, throttle_reasons=frozenset({"thermal"})), Skip.GPU_HOT),
        (replace(IDLE, throttle_reasons=frozenset({"hw_thermal", "idle"})), Skip.GPU_HOT),
        (replace(BUSY, temperature_celsius=99.0, memory_free_bytes=0.0), Skip.GPU_HOT),
    ],
)
def test_a_gpu_that_is_needed_elsewhere_is_left_alone_and_large_probes_wait(
    seen: Conditions, reason: Skip
) -> None:
    assert answers(seen) == held(reason)


@pytest.mark.parametrize(
    "seen",
    [
        replace(IDLE, utilization_gpu_ratio=0.3),
        replace(IDLE, memory_free_bytes=float(GIB)),
        replace(IDLE, temperature_celsius=85.0),
        replace(IDLE, throttle_reasons=frozenset({"power_cap", "set_clocks"})),
    ],
)
def test_at_the_limit_it_still_goes(seen: Conditions) -> None:
    assert set(answers(seen).values()) == {Go()}


def test_limits_are_settings() -> None:
    assert answers(BUSY, busy_ratio=0.7)[SMALL] == Go()
    short = replace(IDLE, memory_free_bytes=0.5 * GIB)
    assert answers(short, vram_free_min_bytes=GIB // 2)[SMALL] == Go()
    assert answers(IDLE, hot_celsius=40.0)[SMALL] is Skip.GPU_HOT


def test_a_probe_that_took_more_memory_than_is_free_does_not_start() -> None:
    greedy = replace(SMALL, need_bytes=7 * GIB + 1)
    assert gate.decide(GateSettings(), greedy, IDLE, NOON) is Skip.VRAM_SHORT
    assert gate.decide(GateSettings(), replace(greedy, need_bytes=7 * GIB), IDLE, NOON) == Go()


@pytest.mark.parametrize(
    ("choice", "going"),
    [
        ("all", {SMALL, LARGE, CPU_CALL, CPU_MATMUL}),
        ("small", {SMALL, CPU_CALL}),
        ("none", {CPU_CALL}),
    ],
)
def test_on_battery_the_person_chooses_what_runs(choice: str, going: set[Asked]) -> None:
    found = answers(replace(IDLE, ac=False), on_battery=choice)
    assert {asked for asked, answer in found.items() if answer == Go()} == going
    assert {answer for asked, answer in found.items() if asked not in going} <= {Skip.ON_BATTERY}


def test_quiet_hours_leave_the_tiny_cpu_probe_only() -> None:
    found = answers(IDLE, replace(NOON, local_min=23 * 60), quiet_hours=("22:00-07:00",))
    assert found == {
        SMALL: Skip.QUIET_HOURS,
        LARGE: Skip.QUIET_HOURS,
        CPU_CALL: Go(),
        CPU_MATMUL: Skip.QUIET_HOURS,
    }
    assert answers(IDLE, quiet_hours=("22:00-07:00",))[LARGE] == Go()


def test_after_a_pause_the_gpu_rests_and_large_probes_wait_just_that_long() -> None:
    woken = replace(NOON, resumed_s=998.0)
    assert answers(IDLE, woken) == held(Skip.RESUMED, until_s=1008.0)
    assert set(answers(IDLE, replace(woken, mono_s=1008.0)).values()) == {Go()}
    assert answers(IDLE, woken, resume_rest_s=300.0)[LARGE] is Skip.RESUMED, "nobody waits so long"


def test_a_large_probe_waits_for_two_minutes_and_no_longer() -> None:
    late = replace(NOON, mono_s=1118.0)
    assert gate.decide(GateSettings(), LARGE, BUSY, late) == Wait(Skip.GPU_BUSY, 1120.0)
    assert gate.decide(GateSettings(), LARGE, BUSY, replace(late, mono_s=1120.0)) is Skip.GPU_BUSY
    assert gate.decide(GateSettings(wait_for_idle_s=0), LARGE, BUSY, NOON) is Skip.GPU_BUSY


@pytest.mark.parametrize("asked", ON_GPU)
def test_the_echo_of_our_own_work_is_waited_for_and_not_taken_for_somebody(asked: Asked) -> None:
    after_ours = replace(asked, own_ended_s=999.5)
    for used in (0.06, 0.9):
        seen = replace(IDLE, utilization_gpu_ratio=used)
        answer = gate.decide(GateSettings(wait_for_idle_s=0), after_ours, seen, NOON)
        assert answer == Wait(Skip.GPU_BUSY, 999.5 + ECHO_S, ours=True)
    assert gate.decide(GateSettings(), after_ours, IDLE, NOON) == Go(), "no echo, no wait"
    later = replace(NOON, mono_s=999.5 + ECHO_S)
    still = gate.decide(GateSettings(), after_ours, BUSY, later)
    assert still == (Skip.GPU_BUSY if asked is SMALL else Wait(Skip.GPU_BUSY, later.mono_s + 5))


ratios = st.floats(0, 1)
unknown = st.none()
some_conditions = st.builds(
    Conditions,
    temperature_celsius=unknown | st.floats(0, 150),
    utilization_gpu_ratio=unknown | ratios,
    memory_free_bytes=unknown | st.floats(0, 2**40),
    throttle_reasons=unknown | st.frozensets(st.sampled_from(["idle", "thermal", "power_cap"])),
    ac=st.sampled_from([True, False, None]),
)


some_gates = st.builds(
    GateSettings,
    busy_ratio=ratios,
    vram_free_min_bytes=st.integers(0, 2**40),
    hot_celsius=st.floats(30, 150),
    on_battery=st.sampled_from(["all", "small", "none"]),
    quiet_hours=st.sampled_from([(), ("22:00-07:00",), ("00:00-24:00",)]),
    resume_rest_s=st.floats(0, 3600),
    wait_for_idle_s=st.floats(0, 3600),
    look_again_s=st.floats(0.1, 60),
)
some_asked = st.builds(
    Asked,
    st.sampled_from(Backend),
    st.sampled_from(Pace),
    st.floats(1e6 - 4000, 1e6),
    st.integers(0, 2**40),
    unknown | st.floats(0, 2e6),
)
some_moments = st.builds(
    Moment, st.floats(1e6, 2e6), st.integers(0, 1439), unknown | st.floats(0, 2e6)
)


@given(some_gates, some_asked, some_conditions, some_moments)
def test_nobody_waits_for_the_past_or_beyond_his_patience(
    plan: GateSettings, asked: Asked, seen: Conditions, moment: Moment
) -> None:
    answer = gate.decide(plan, asked, seen, moment)
    if isinstance(answer, Wait):
        assert asked.backend is Backend.CUDA
        assert moment.mono_s < answer.until_s
        if answer.ours:
            assert asked.own_ended_s is not None
            assert answer == Wait(Skip.GPU_BUSY, asked.own_ended_s + ECHO_S, ours=True)
        else:
            assert asked.pace is Pace.LARGE
            assert answer.until_s <= asked.since_s + plan.wait_for_idle_s


@given(some_gates, some_asked, some_conditions, some_moments)
def test_asking_again_when_told_to_ends_in_an_answer(
    plan: GateSettings, asked: Asked, seen: Conditions, moment: Moment
) -> None:
    plan, looks = replace(plan, look_again_s=max(plan.look_again_s, 5.0)), 0
    while isinstance(answer := gate.decide(plan, asked, seen, moment), Wait):
        moment = replace(moment, mono_s=answer.until_s)
        looks += 1
        assert looks <= 3600 / 5 + 3
    assert isinstance(answer, Go | Skip)


@given(some_gates, some_asked, some_conditions, some_moments)
def test_forgetting_a_reading_never_shuts_the_gate(
    plan: GateSettings, asked: Asked, seen: Conditions, moment: Moment
) -> None:
    if gate.decide(plan, asked, seen, moment) == Go():
        for name in ("temperature_celsius", "utilization_gpu_ratio", "memory_free_bytes", "ac"):
            poorer = replace(seen, **{name: None})
            assert gate.decide(plan, asked, poorer, moment) == Go()
