"""The agent alone, under a wall clock that a test moves with libfaketime.

The monotonic clock is left alone: a guest that was paused sees just that. Children have the true
clock, because the agent gives them an environment of their own.
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

from tests.e2e.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBFAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)


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

    def agent_pid(self) -> int | None:
        return None if self.process is None else self.process.pid


@contextlib.contextmanager
def asleep() -> Iterator[Asleep]:
    """A home and an agent to start in it, and nothing left afterwards."""
    made = Asleep(home=Path(tempfile.mkdtemp(prefix="gpud-clocks-")), settings={})
    try:
        yield made
    finally:
        if made.process is not None:
            made.stop()
        shutil.rmtree(made.home, ignore_errors=True)
