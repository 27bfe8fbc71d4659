"""A wall clock that jumps under the running agent, as that of WSL2 does."""

from __future__ import annotations

import pytest

from tests.e2e.program import Program, under_a_clock
from tests.waiting import until

NIGHT_S = 8 * 3600.0
HOURLY = {
    "telemetry_interval_s": 3600.0,
    "small_interval_s": 3600.0,
    "large_interval_s": 7200.0,
    "jitter_ratio": 0.0,
}


def jumps(gpud: Program) -> float:
    return gpud.value("gpud_clock_jumps_total") or 0.0


def test_after_a_night_asleep_there_is_one_catch_up_run_and_the_night_is_counted() -> None:
    with under_a_clock(schedule=HOURLY) as gpud:
        gpud.start()
        until(lambda: gpud.runs() == 1, "the first run")
        gpud.move(NIGHT_S)
        until(lambda: jumps(gpud) == 1, "the jump")
        assert gpud.value("gpud_vm_paused_seconds_total") == pytest.approx(NIGHT_S, abs=60)
        until(lambda: gpud.runs() == 2, "the catch-up run")
        gpud.move(NIGHT_S - 3600)
        until(lambda: jumps(gpud) == 2, "the step back")
        assert gpud.value("gpud_vm_paused_seconds_total") == pytest.approx(NIGHT_S, abs=60)
        assert gpud.runs() == 2
