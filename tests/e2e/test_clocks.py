"""A wall clock that jumps under the running agent, as that of WSL2 does."""

from __future__ import annotations

import pytest

from tests.e2e.asleep import asleep
from tests.waiting import until

NIGHT_S = 8 * 3600.0
HOURLY = {
    "telemetry_interval_s": 3600.0,
    "small_interval_s": 3600.0,
    "large_interval_s": 7200.0,
    "jitter_ratio": 0.0,
}


def test_after_a_night_asleep_there_is_one_catch_up_run_and_the_night_is_counted() -> None:
    with asleep() as gpud:
        gpud.settings = {"schedule": HOURLY}
        gpud.start()
        until(lambda: gpud.runs() == 1, "the first run")
        gpud.move(NIGHT_S)
        until(lambda: gpud.jumps() == 1, "the jump")
        assert gpud.value("gpud_vm_paused_seconds_total") == pytest.approx(NIGHT_S, abs=1)
        assert gpud.runs() == 1, "a machine that just woke is not measured"
        until(lambda: gpud.runs() == 2, "the catch-up run", 90)
        gpud.move(NIGHT_S - 3600)
        until(lambda: gpud.jumps() == 2, "the step back")
        assert gpud.value("gpud_vm_paused_seconds_total") == pytest.approx(NIGHT_S, abs=1)
        assert gpud.runs() == 2


def test_runs_go_on_after_the_clock_is_set_back() -> None:
    with asleep() as gpud:
        gpud.settings = {"schedule": HOURLY | {"small_interval_s": 1.0}}
        gpud.start()
        until(lambda: gpud.runs() >= 1, "the first run")
        gpud.move(-3600)
        until(lambda: gpud.jumps() == 1, "the step back")
        seen = gpud.runs()
        until(lambda: gpud.runs() >= seen + 2, "two more runs")
        assert gpud.value("gpud_vm_paused_seconds_total") == 0


def test_a_run_across_a_jump_is_discarded_and_counted() -> None:
    with asleep() as gpud:
        gpud.settings = {"schedule": HOURLY | {"small_interval_s": 1.0}}
        gpud.start()
        until(lambda: gpud.runs() >= 1, "the first run")
        offset_s = 0.0

        def discarded() -> float | None:
            nonlocal offset_s
            offset_s += 0.2  # a second's worth of them is no night, after which nothing is run
            gpud.move(offset_s)  # every run sees some of these steps
            return gpud.value("gpud_probe_skips_total", probe="cpu_call", reason="clock_jumped")

        until(discarded, "a discarded run", 90)
