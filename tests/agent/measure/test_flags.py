"""Flags of a run, by the conditions around it and the runs before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpud.agent.measure.conditions import Conditions
from gpud.agent.measure.flags import FEWEST_RUNS, LOW_RUNS, USUAL_RUNS, Past, flags
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
NOTHING = Conditions()
CAPPED = replace(AFTER, throttle_reasons=frozenset({"power_cap", "idle"}))
SLOW = replace(AFTER, clock_sm_hertz=1.0e9, pstate=8.0)


def past(*runs: tuple[int, Conditions]) -> Past:
    made = Past()
    for count, after in runs:
        for _ in range(count):
            made.learn(after, ())
    return made


def raised(
    before: Conditions = BEFORE,
    after: Conditions = AFTER,
    before_it: Past | None = None,
    **more: Any,
) -> tuple[Flag, ...]:
    known = past((FEWEST_RUNS, AFTER)) if before_it is None else before_it
    return flags(
        before, after, known, **{"settled": True, "resumed": False, "jumped": False} | more
    )


@pytest.mark.parametrize(
    "run",
    [
        {},  # though it used the GPU itself
        {"after": replace(AFTER, memory_used_bytes=1128.0 * MIB)},
        {"after": replace(AFTER, clock_sm_hertz=1.8e9)},
        {"after": replace(AFTER, clock_sm_hertz=3.0e9)},
        {"after": replace(AFTER, pstate=0.0)},
        {"after": replace(AFTER, throttle_reasons=frozenset({"set_clocks", "sync_boost"}))},
        {"before": replace(BEFORE, memory_used_bytes=None)},
        {"after": replace(AFTER, memory_used_bytes=None)},
        {"before": NOTHING, "after": NOTHING, "before_it": Past()},
        {"after": NOTHING},
        {"after": SLOW, "before_it": past((FEWEST_RUNS - 1, AFTER), (20, NOTHING))},
        {"after": SLOW, "before_it": past((100, AFTER), (USUAL_RUNS, SLOW))},
    ],
)
def test_ordinary_unknown_and_at_the_limit_raise_no_flag(run: dict[str, Any]) -> None:
    assert raised(**run) == ()


@pytest.mark.parametrize(
    ("run", "flag"),
    [
        ({"before": replace(BEFORE, utilization_gpu_ratio=0.051)}, Flag.BUSY),
        ({"after": replace(AFTER, memory_used_bytes=1129.0 * MIB)}, Flag.BUSY),
        ({"after": replace(AFTER, memory_used_bytes=871.0 * MIB)}, Flag.BUSY),
        ({"after": replace(AFTER, clock_sm_hertz=1.79e9)}, Flag.LOW),
        ({"after": replace(AFTER, pstate=3.0)}, Flag.LOW),
        ({"after": CAPPED}, Flag.LOW),
        ({"after": replace(AFTER, throttle_reasons=frozenset({"idle", "thermal"}))}, Flag.LOW),
        ({"after": replace(AFTER, throttle_reasons=frozenset({"hw_slowdown"}))}, Flag.LOW),
        ({"after": SLOW, "before_it": past((100, SLOW), (USUAL_RUNS, AFTER))}, Flag.LOW),
        ({"resumed": True}, Flag.RESUME),
        ({"settled": False}, Flag.COLD),
        ({"jumped": True}, Flag.JUMPED),
    ],
)
def test_each_flag_has_its_signs(run: dict[str, Any], flag: Flag) -> None:
    assert raised(**run) == (flag,)


def test_several_flags_come_in_one_order() -> None:
    busy = replace(BEFORE, utilization_gpu_ratio=1.0)
    assert raised(busy, SLOW, settled=False, resumed=True, jumped=True) == tuple(Flag)


def test_a_throttle_reason_that_is_always_there_raises_nothing_and_slow_clocks_still_do() -> None:
    always = past((FEWEST_RUNS, CAPPED))
    assert raised(after=CAPPED, before_it=always) == ()
    slow, hot = replace(CAPPED, clock_sm_hertz=1.7e9), frozenset({"power_cap", "thermal"})
    assert raised(after=slow, before_it=always) == (Flag.LOW,)
    assert raised(after=replace(CAPPED, throttle_reasons=hot), before_it=always) == (Flag.LOW,)


@pytest.mark.parametrize(
    ("runs", "usual"),
    [
        ([(FEWEST_RUNS - 1, CAPPED)], frozenset()),
        ([(100, CAPPED), (26, AFTER), (24, CAPPED)], AFTER.throttle_reasons),
        ([(25, AFTER), (25, CAPPED)], CAPPED.throttle_reasons),
    ],
)
def test_throttle_reasons_of_half_the_last_runs_are_usual(
    runs: list[tuple[int, Conditions]], usual: frozenset[str]
) -> None:
    assert past(*runs).usual_throttles() == usual


def test_only_runs_that_were_nothing_but_slow_become_the_usual_in_the_end() -> None:
    busy, slow = past((FEWEST_RUNS, AFTER)), past((FEWEST_RUNS, AFTER))
    for _ in range(LOW_RUNS):
        busy.learn(SLOW, (Flag.BUSY, Flag.LOW))
        slow.learn(SLOW, (Flag.LOW,))
    assert raised(after=SLOW, before_it=busy) == (Flag.LOW,)
    assert raised(after=SLOW, before_it=slow) == ()
