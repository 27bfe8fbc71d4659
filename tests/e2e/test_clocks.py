"""A wall clock that jumps under the running agent, as that of WSL2 does: libfaketime moves it.

The monotonic clock is left alone: a guest that was paused sees just that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.program import Program
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBFAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
NIGHT_S = 8 * 3600.0
HOURLY = {
    "telemetry_interval_s": 3600.0,
    "small_interval_s": 3600.0,
    "large_interval_s": 7200.0,
    "jitter_ratio": 0.0,
}


@dataclass
class Asleep(Program):
    """The agent alone, under a wall clock that the test moves."""

    @property
    def offset(self) -> Path:
        return self.home / "offset"

    def move(self, offset_s: float) -> None:
        """Set how far the wall clock is ahead of the true one."""
        fresh = self.offset.with_suffix(".new")
        fresh.write_text(f"{offset_s:+f}\n")
        fresh.rename(self.offset)

    def start(self) -> None:
        assert LIBFAKETIME is not None, "sudo apt-get install libfaketime"
        self.write_settings()
        self.move(0)
        with (self.home / "console.log").open("ab") as console:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-m", "gpud.agent", "--home", str(self.home)],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                cwd="/",
                start_new_session=True,
                env={
                    "PATH": os.environ["PATH"],
                    "LD_PRELOAD": str(LIBFAKETIME),
                    "FAKETIME_TIMESTAMP_FILE": str(self.offset),
                    "FAKETIME_NO_CACHE": "1",
                    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                },
            )

    def runs(self) -> float:
        return self.value("gpud_probe_runs_total", probe="cpu_call") or 0.0

    def jumps(self) -> float:
        return self.value("gpud_clock_jumps_total") or 0.0


@contextlib.contextmanager
def asleep(**schedule: float) -> Iterator[Asleep]:
    home = Path(tempfile.mkdtemp(prefix="gpud-clocks-"))
    made = Asleep(home=home, settings={"schedule": HOURLY | schedule})
    try:
        made.start()
        yield made
    finally:
        if made.process is not None:
            made.stop()
        shutil.rmtree(home, ignore_errors=True)


def test_after_a_night_asleep_there_is_one_catch_up_run_and_the_night_is_counted() -> None:
    with asleep() as gpud:
        until(lambda: gpud.runs() == 1, "the first run")
        gpud.move(NIGHT_S)
        until(lambda: gpud.jumps() == 1, "the jump")
        assert gpud.value("gpud_vm_paused_seconds_total") == pytest.approx(NIGHT_S, abs=1)
        assert gpud.runs() == 1, "a machine that just woke is not measured"
        until(lambda: gpud.runs() == 2, "the catch-up run", 30)
        gpud.move(NIGHT_S - 3600)
        until(lambda: gpud.jumps() == 2, "the step back")
        assert gpud.value("gpud_vm_paused_seconds_total") == pytest.approx(NIGHT_S, abs=1)
        assert gpud.runs() == 2


def test_a_clock_set_back_keeps_nobody_waiting() -> None:
    with asleep(small_interval_s=1.0) as gpud:
        until(lambda: gpud.runs() >= 1, "the first run")
        gpud.move(-3600)
        until(lambda: gpud.jumps() == 1, "the step back")
        seen = gpud.runs()
        until(lambda: gpud.runs() >= seen + 2, "two more runs")
        assert gpud.value("gpud_vm_paused_seconds_total") == 0


def test_a_run_across_a_jump_is_discarded_and_counted() -> None:
    with asleep(small_interval_s=1.0) as gpud:
        until(lambda: gpud.runs() >= 1, "the first run")
        offset_s = 0.0

        def discarded() -> float | None:
            nonlocal offset_s
            offset_s += 0.2  # a second's worth of them is no night, after which nothing is run
            gpud.move(offset_s)  # every run sees some of these steps
            return gpud.value("gpud_probe_skips_total", probe="cpu_call", reason="clock_jumped")

        until(discarded, "a discarded run", 40)
