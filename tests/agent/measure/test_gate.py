"""The gate's decision before a run, and the flags of a run by the conditions around it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.measure import conditions
from gpud.agent.measure.conditions import Conditions
from gpud.agent.measure.gate import (
    ECHO_S,
    FEWEST_RUNS,
    LOW_RUNS,
    USUAL_RUNS,
    Admission,
    Candidate,
    Due,
    Gate,
    Wait,
    decide,
)
from gpud.agent.state.board import Board
from gpud.core.clock import Instant
from gpud.core.sample import Backend, Device, Flag, Pace, ProbeSpec, RunReport, Skip, Unit
from gpud.core.sections import GateSettings
from tests import snapshots

if TYPE_CHECKING:
    from typing import TypeAlias

    from gpud.core.sample import Condition

    Rows: TypeAlias = list[tuple[int, Conditions, tuple[Flag, ...]]]
    """How many runs, with which conditions after them, and how they were flagged."""

GIB, MIB = 1 << 30, 1 << 20

SMALL = Candidate(Backend.CUDA, Pace.SMALL, now_s=1000.0, local_min=12 * 60)
LARGE = replace(SMALL, pace=Pace.LARGE)
CPU_CALL, CPU_MATMUL = (replace(run, backend=Backend.CPU) for run in (SMALL, LARGE))
EVERY = {"small": SMALL, "large": LARGE, "cpu_call": CPU_CALL, "cpu_matmul": CPU_MATMUL}
IDLE = Conditions(
    temperature_celsius=45.0,
    utilization_gpu_ratio=0.03,
    memory_free_bytes=7.0 * GIB,
    throttle_reasons=frozenset({"idle"}),
    ac=True,
)
BUSY = replace(IDLE, utilization_gpu_ratio=0.6)
PLAN = GateSettings()


def answers(before: Conditions, plan: GateSettings = PLAN, **run: Any) -> dict[str, Any]:
    """The gate's answers that are no go, by the run."""
    decided = {
        name: decide(plan, replace(candidate, **run), before) for name, candidate in EVERY.items()
    }
    return {name: answer for name, answer in decided.items() if answer is not None}


NIGHT, NIGHTLY = {"local_min": 23 * 60}, {"quiet_hours": ("22:00-07:00",)}
ON_BATTERY = replace(IDLE, ac=False)
ON_GPU, LARGE_ONES, ALL_BUT_TINY = (
    ("small", "large"),
    ("large", "cpu_matmul"),
    ("small", "large", "cpu_matmul"),
)


@pytest.mark.parametrize(
    ("before", "plan", "run"),
    [
        (IDLE, {}, {}),
        (Conditions(), {}, {}),
        (Conditions(unread="hung"), {}, {}),
        (replace(IDLE, utilization_gpu_ratio=0.12), {}, {}),  # a desktop
        (replace(IDLE, utilization_gpu_ratio=0.3), {}, {}),
        (replace(IDLE, memory_free_bytes=2.0 * GIB), {}, {}),
        (replace(IDLE, temperature_celsius=85.0), {}, {}),
        (replace(IDLE, throttle_reasons=frozenset({"power_cap", "set_clocks"})), {}, {}),
        (BUSY, {"busy_ratio": 0.7}, {}),
        (replace(IDLE, memory_free_bytes=GIB / 2), {"vram_free_min_bytes": GIB // 2}, {}),
        (IDLE, {"vram_free_min_bytes": GIB}, {"need_bytes": 7 * GIB}),
        (IDLE, {"vram_free_min_bytes": 0}, {"need_bytes": 7 * GIB}),
        (IDLE, NIGHTLY, {}),
        (ON_BATTERY, {"on_battery": "all"}, {}),
    ],
)
def test_idle_unknown_and_at_the_limit_hold_nothing_back(
    before: Conditions, plan: dict[str, Any], run: dict[str, Any]
) -> None:
    assert answers(before, GateSettings(**plan), **run) == {}


@pytest.mark.parametrize(
    ("before", "plan", "run", "skipped", "reason"),
    [
        (replace(IDLE, utilization_gpu_ratio=0.301), {}, {}, ON_GPU, Skip.GPU_BUSY),
        (replace(IDLE, memory_free_bytes=2 * GIB - 1.0), {}, {}, ON_GPU, Skip.VRAM_SHORT),
        (replace(IDLE, temperature_celsius=85.1), {}, {}, ON_GPU, Skip.GPU_HOT),
        (replace(IDLE, throttle_reasons=frozenset({"thermal"})), {}, {}, ON_GPU, Skip.GPU_HOT),
        (replace(IDLE, throttle_reasons=frozenset({"hw_thermal"})), {}, {}, ON_GPU, Skip.GPU_HOT),
        (replace(BUSY, temperature_celsius=99.0), {}, {}, ON_GPU, Skip.GPU_HOT),
        (IDLE, {"hot_celsius": 40.0}, {}, ON_GPU, Skip.GPU_HOT),
        (
            *(IDLE, {"vram_free_min_bytes": GIB}, {"need_bytes": 7 * GIB + 1}),
            *(ON_GPU, Skip.VRAM_SHORT),
        ),
        (ON_BATTERY, {"on_battery": "small"}, {}, LARGE_ONES, Skip.ON_BATTERY),
        (ON_BATTERY, {"on_battery": "seldom"}, {}, LARGE_ONES, Skip.ON_BATTERY),
        (ON_BATTERY, {"on_battery": "none"}, {}, ALL_BUT_TINY, Skip.ON_BATTERY),
        (IDLE, NIGHTLY, NIGHT, ALL_BUT_TINY, Skip.QUIET_HOURS),
    ],
)
def test_gpu_in_use_on_battery_and_at_night_is_left_alone_and_the_cpu_is_measured(
    before: Conditions,
    plan: dict[str, Any],
    run: dict[str, Any],
    skipped: tuple[str, ...],
    reason: Skip,
) -> None:
    assert answers(before, GateSettings(**plan), **run) == dict.fromkeys(skipped, reason)


@pytest.mark.parametrize(
    ("memory_bytes", "free_bytes"),
    [
        (0, 2 * GIB),  # it is not known
        (2 * GIB, GIB),
        (4 * GIB, 2 * GIB),
        (8 * GIB, 2 * GIB),
        (24 * GIB, 0.15 * 24 * GIB),
        (80 * GIB, 12 * GIB),
    ],
)
def test_two_gib_or_15_percent_stay_free_beside_what_the_run_takes(
    memory_bytes: int, free_bytes: float
) -> None:
    need = 100 * MIB
    run = replace(SMALL, memory_bytes=memory_bytes, need_bytes=need)
    enough = replace(IDLE, memory_free_bytes=free_bytes + need)
    assert decide(GateSettings(), run, enough) is None
    short = replace(IDLE, memory_free_bytes=free_bytes + need - 1)
    assert decide(GateSettings(), run, short) is Skip.VRAM_SHORT


@pytest.mark.parametrize("run", [SMALL, LARGE])
def test_echo_of_gpuds_own_work_is_waited_for(run: Candidate) -> None:
    run = replace(run, own_ended_s=999.5)
    for used in (0.06, 0.9):
        before = replace(IDLE, utilization_gpu_ratio=used)
        assert decide(PLAN, run, before) == Wait(999.5 + ECHO_S)
    assert decide(PLAN, run, IDLE) is None, "no echo, no wait"
    assert decide(PLAN, replace(run, now_s=999.5 + ECHO_S), BUSY) is Skip.GPU_BUSY


ratios = st.floats(0, 1)
some_conditions = st.builds(
    Conditions,
    temperature_celsius=st.none() | st.floats(0, 150),
    utilization_gpu_ratio=st.none() | ratios,
    memory_free_bytes=st.none() | st.floats(0, 2**40),
    throttle_reasons=st.none() | st.frozensets(st.sampled_from(["idle", "thermal", "power_cap"])),
    ac=st.sampled_from([True, False, None]),
)
some_plans = st.builds(
    GateSettings,
    busy_ratio=ratios,
    vram_free_min_bytes=st.integers(-1, 2**40),
    hot_celsius=st.floats(30, 150),
    on_battery=st.sampled_from(["all", "small", "seldom", "none"]),
    quiet_hours=st.sampled_from([(), ("22:00-07:00",), ("00:00-24:00",)]),
)
some_runs = st.builds(
    Candidate,
    st.sampled_from(Backend),
    st.sampled_from(Pace),
    st.floats(1e6, 2e6),
    st.integers(0, 1439),
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    st.none() | st.floats(0, 2e6),
)


@given(some_plans, some_runs, some_conditions)
def test_a_wait_ends_in_an_answer_and_no_withheld_reading_shuts_the_gate(
    plan: GateSettings, run: Candidate, before: Conditions
) -> None:
    answer = decide(plan, run, before)
    if answer is None:
        for name in ("temperature_celsius", "utilization_gpu_ratio", "memory_free_bytes", "ac"):
            assert decide(plan, run, replace(before, **{name: None})) is None
    if isinstance(answer, Wait):
        assert run.backend is Backend.CUDA
        assert run.now_s < answer.until_s
        assert not isinstance(decide(plan, replace(run, now_s=answer.until_s), before), Wait)


# Flags

BEFORE = Conditions(utilization_gpu_ratio=0.05, memory_used_bytes=1000.0 * MIB)
AFTER = Conditions(
    clock_sm_hertz=2.0e9,
    pstate=2.0,
    utilization_gpu_ratio=0.9,
    memory_used_bytes=1000.0 * MIB,
    throttle_reasons=frozenset({"idle"}),
)
NOTHING = Conditions()
CAPPED = replace(AFTER, throttle_reasons=frozenset({"power_cap", "idle"}))
CAPPED_AND_SLOW = replace(CAPPED, clock_sm_hertz=1.7e9)
CAPPED_AND_HOT = replace(CAPPED, throttle_reasons=frozenset({"power_cap", "thermal"}))
SLOW = replace(AFTER, clock_sm_hertz=1.0e9, pstate=8.0)
SLOWER = replace(AFTER, clock_sm_hertz=0.8e9, pstate=8.0)
LOW, GOOD = (Flag.LOW,), ()
USUAL: Rows = [(FEWEST_RUNS, AFTER, GOOD)]
DEVICE = Device(0, "GPU-0", "x", "0000:01:00.0", "8.9", 46, 1, 1)
DUE = Due(ProbeSpec("launch", Backend.CUDA, Pace.SMALL, Unit.SECONDS, (), 5.0, ""), DEVICE)


def flags(
    *after: Conditions,
    before: Conditions = BEFORE,
    past: Rows = USUAL,
    settled: bool = True,
    jumped: bool = False,
    context_s: float | None = None,
) -> list[tuple[Flag, ...]]:
    """The flags of runs in a row, by the conditions after them and the runs in the history."""
    looks = iter(after)
    rows = [(conditions.named("after", c), flags) for n, c, flags in past for _ in range(n)]

    async def look(_: str | None) -> Conditions:
        return next(looks)

    async def read(*_: object) -> list[Any]:
        return rows[::-1]

    observer, history = SimpleNamespace(look=look), SimpleNamespace(read=read)
    at = Instant(0.0, 1000.0)
    board = Board(snapshots.bare())
    gate = Gate(GateSettings(), cast("Any", observer), cast("Any", history), board, lambda: at)
    seen: dict[str, Condition] = {"settled": settled, "context_s": context_s}
    report = RunReport("launch", Backend.CUDA, DEVICE, conditions=seen)
    admission = Admission(None, before, at)

    async def runs() -> list[tuple[Flag, ...]]:
        return [(await gate.flagged(DUE, report, admission, at, jumped=jumped))[1] for _ in after]

    return asyncio.run(runs())


@pytest.mark.parametrize(
    ("after", "past", "flag"),
    [
        (AFTER, USUAL, None),  # though it used the GPU itself
        (replace(AFTER, memory_used_bytes=1128.0 * MIB), USUAL, None),
        (replace(AFTER, memory_used_bytes=1129.0 * MIB), USUAL, Flag.BUSY),
        (replace(AFTER, memory_used_bytes=871.0 * MIB), USUAL, Flag.BUSY),
        (replace(AFTER, memory_used_bytes=None), USUAL, None),
        (replace(AFTER, clock_sm_hertz=1.8e9), USUAL, None),
        (replace(AFTER, clock_sm_hertz=1.79e9), USUAL, Flag.LOW),
        (replace(AFTER, clock_sm_hertz=3.0e9), USUAL, None),
        (replace(AFTER, pstate=0.0), USUAL, None),
        (replace(AFTER, pstate=3.0), USUAL, Flag.LOW),
        (replace(AFTER, throttle_reasons=frozenset({"set_clocks", "sync_boost"})), USUAL, None),
        (replace(AFTER, throttle_reasons=frozenset({"hw_slowdown"})), USUAL, Flag.LOW),
        (NOTHING, USUAL, None),
        (SLOW, [(FEWEST_RUNS - 1, AFTER, GOOD), (20, NOTHING, GOOD)], None),
        (SLOW, [(100, AFTER, GOOD), (USUAL_RUNS, SLOW, GOOD)], None),
        (SLOW, [(100, SLOW, GOOD), (USUAL_RUNS, AFTER, GOOD)], Flag.LOW),
        (CAPPED, USUAL, Flag.LOW),
        (CAPPED, [(FEWEST_RUNS - 1, CAPPED, GOOD)], Flag.LOW),
        (CAPPED, [(FEWEST_RUNS, CAPPED, GOOD)], None),
        (CAPPED, [(25, AFTER, GOOD), (25, CAPPED, GOOD)], None),
        (CAPPED, [(100, CAPPED, GOOD), (26, AFTER, GOOD), (24, CAPPED, GOOD)], Flag.LOW),
        (CAPPED_AND_SLOW, [(FEWEST_RUNS, CAPPED, GOOD)], Flag.LOW),
        (CAPPED_AND_HOT, [(FEWEST_RUNS, CAPPED, GOOD)], Flag.LOW),
    ],
)
def test_flags_have_their_signs_and_what_is_unknown_or_at_the_limit_raises_none(
    after: Conditions, past: Rows, flag: Flag | None
) -> None:
    assert flags(after, past=past) == [() if flag is None else (flag,)]


def test_memory_of_the_context_that_a_run_has_opened_is_its_own() -> None:
    opened, more = (replace(AFTER, memory_used_bytes=mib * MIB) for mib in (1500.0, 1629.0))
    rounds = [opened, opened, more, opened, opened]
    assert flags(*rounds, context_s=0.1) == [(), (), (Flag.BUSY,), (Flag.BUSY,), ()]
    assert flags(opened) == [(Flag.BUSY,)]


def test_several_flags_come_in_one_order() -> None:
    busy = replace(BEFORE, utilization_gpu_ratio=0.051)
    (raised,) = flags(SLOW, before=busy, settled=False, jumped=True)
    assert raised == tuple(flag for flag in Flag if flag is not Flag.RESUME)


def test_gpu_that_is_slow_for_good_is_evaluated_again_and_a_restart_counts_on() -> None:
    past: Rows = [*USUAL, (LOW_RUNS - 3, SLOW, LOW)]
    assert flags(*[SLOW] * 5, SLOWER, past=past) == [LOW, LOW, LOW, (), (), LOW]
    in_between = flags(SLOW, SLOW, AFTER, *[SLOW] * 3, past=past)
    assert in_between == [LOW, LOW, (), LOW, LOW, LOW]
    busy: Rows = [*USUAL, (LOW_RUNS, SLOW, (Flag.BUSY, Flag.LOW))]
    assert flags(SLOW, past=busy) == [LOW]
