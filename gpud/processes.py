"""Processes of this machine, by pid and start: a recycled pid is another process."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gpud.core.proc import start_ticks
from gpud.core.report import ProcessRef


def ref(pid: int) -> ProcessRef | None:
    """Look a living process up; None for none and for a zombie, which only waits to be reaped."""
    try:
        ticks = start_ticks(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except OSError:
        return None
    return None if ticks is None else ProcessRef(pid, ticks)


def lived_s(process: ProcessRef) -> float:
    """Return for how long a process has lived, in seconds, with those that the machine slept."""
    since_s = process.start_ticks / os.sysconf("SC_CLK_TCK")
    return max(time.clock_gettime(time.CLOCK_BOOTTIME) - since_s, 0.0)
