from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.measure import flags
from gpud.agent.measure.condition_rules import Conditions
from gpud.agent.measure.flags import FEWEST_RUNS, USUAL_RUNS, Circumstances, Pulse
from gpud.core.sample import Flag

MIB = 1 << 20
BEFORE = Conditions(utilization_gpu_ratio=0.05, memory_used_bytes=1000.0 * MIB)
AFTER = Conditions(
    clock_sm_hertz=2.0e9,
    pstate=2.0,
    utilization_gpu_ratio=0.9,
    memory_used_bytes=1000.0 * MIB,
    throttle_reasons=frozenset({"idle"}),
)
CLEAN = Circumstances(
    BEFORE,
    AFTER,
    Pulse(2.0e9, 2.0),
    frozenset(),
    settled=True,
    since_resume_s=None,
    jumped=False,
)


def of(run: Circumstances) -> tuple[Flag, ...]:
    return flags.of(run, resume_grace_s=120.0)


def test_an_ordinary_run_has_no_flags_though_it_used_the_gpu_itself() -> None:
    assert of(CLEAN) == ()


def test_what_is_not_known_marks_nothing() -> None:
    nothing = Conditions()
    assert of(replace(CLEAN, before=nothing, after=nothing, usual=Pulse(None, None))) == ()
    assert of(replace(CLEAN, usual=Pulse(None, None))) == ()
    assert of(replace(CLEAN, after=Conditions())) == ()


@pytest.mark.parametrize(
    ("changed", "flag"),
    [
        ({"before": replace(BEFORE, utilization_gpu_ratio=0.051)}, Flag.BUSY),
        ({"after": replace(AFTER, memory_used_bytes=1129.0 * MIB)}, Flag.BUSY),
        ({"after": replace(AFTER, memory_used_bytes=871.0 * MIB)}, Flag.BUSY),
        ({"after": replace(AFTER, clock_sm_hertz=1.79e9)}, Flag.LOW),
        ({"after": replace(AFTER, pstate=3.0)}, Flag.LOW),
        ({"after": replace(AFTER, throttle_reasons=frozenset({"power_cap"}))}, Flag.LOW),
        ({"after": replace(AFTER, throttle_reasons=frozenset({"idle", "thermal"}))}, Flag.LOW),
        ({"after": replace(AFTER, throttle_reasons=frozenset({"hw_slowdown"}))}, Flag.LOW),
        ({"since_resume_s": 119.9}, Flag.RESUME),
        ({"settled": False}, Flag.COLD),
        ({"jumped": True}, Flag.JUMPED),
    ],
)
def test_each_flag_has_its_signs(changed: dict[str, object], flag: Flag) -> None:
    assert of(replace(CLEAN, **changed)) == (flag,)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changed",
    [
        {"after": replace(AFTER, memory_used_bytes=1128.0 * MIB)},
        {"after": replace(AFTER, clock_sm_hertz=1.8e9)},
        {"after": replace(AFTER, clock_sm_hertz=3.0e9)},
        {"after": replace(AFTER, pstate=0.0)},
        {"after": replace(AFTER, throttle_reasons=frozenset({"set_clocks", "sync_boost"}))},
        {"since_resume_s": 120.0},
        {"before": replace(BEFORE, memory_used_bytes=None)},
        {"after": replace(AFTER, memory_used_bytes=None)},
    ],
)
def test_at_the_limit_there_is_no_flag(changed: dict[str, object]) -> None:
    assert of(replace(CLEAN, **changed)) == ()  # type: ignore[arg-type]


def test_several_flags_come_in_one_order() -> None:
    worst = replace(
        CLEAN,
        before=replace(BEFORE, utilization_gpu_ratio=1.0),
        after=replace(AFTER, pstate=8.0),
        since_resume_s=0.0,
        settled=False,
        jumped=True,
    )
    assert of(worst) == tuple(Flag)


def test_what_is_usual_is_the_median_of_the_last_fifty() -> None:
    slow, quick = [Pulse(1e9, 8.0)] * 100, [Pulse(2e9, 0.0)] * USUAL_RUNS
    assert flags.usual([*slow, *quick]) == Pulse(2e9, 0.0)
    assert flags.usual([*quick, *slow]) == Pulse(1e9, 8.0)


def test_a_few_runs_and_runs_without_clocks_make_nothing_usual() -> None:
    few = [Pulse(2e9, None)] * 4
    assert flags.usual([*few, *[Pulse(None, None)] * 20]) == Pulse(None, None)
    assert flags.usual([*few, Pulse(2e9, None)]) == Pulse(2e9, None)


def test_a_throttle_reason_that_is_always_there_marks_nothing_and_slow_clocks_still_do() -> None:
    capped, free = frozenset({"power_cap", "idle"}), frozenset({"idle"})
    always = flags.usual_throttles([capped] * FEWEST_RUNS)
    assert always == capped
    run = replace(CLEAN, after=replace(AFTER, throttle_reasons=capped), usual_throttles=always)
    assert of(run) == ()
    assert of(replace(run, after=replace(run.after, clock_sm_hertz=1.7e9))) == (Flag.LOW,)
    hot = replace(run.after, throttle_reasons=capped | {"thermal"})
    assert of(replace(run, after=hot)) == (Flag.LOW,)
    assert flags.usual_throttles([capped] * (FEWEST_RUNS - 1)) == frozenset()
    assert flags.usual_throttles([*[capped] * 100, *[free] * 26, *[capped] * 24]) == free
    assert flags.usual_throttles([*[free] * 25, *[capped] * 25]) == capped


maybe = st.none() | st.floats(0, 1e10)


@given(st.lists(st.builds(Pulse, maybe, maybe), max_size=120), maybe)
def test_a_run_as_quick_as_any_is_never_low(recent: list[Pulse], extra: float | None) -> None:
    known = flags.usual(recent)
    clocks = [one.clock_sm_hertz for one in recent if one.clock_sm_hertz is not None]
    quickest = Conditions(clock_sm_hertz=max([*clocks, extra or 0.0]), pstate=0.0)
    assert Flag.LOW not in of(replace(CLEAN, after=quickest, usual=known))
