"""Files that a running gpud leaves below its run directory, and whether they are of now."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from gpud import regular_file
from gpud.core import wire
from gpud.core.clock import Instant
from gpud.core.errors import WireError
from gpud.core.report import STALE_AFTER_S, ProcessRef, RootReport
from gpud.processes import lived_s, ref

if TYPE_CHECKING:
    from pathlib import Path

LARGEST: Final = 4 << 20
"""Bytes of root's report, many times over."""
CLOCK_TOLERANCE_S: Final = 1.0
"""Root may write between reading the clock and reading the file."""
NOT_RUNNING: Final = "gpud is not running"
SHORT: Final = "short"
"""In the agent's own directory: Unix time, exit code and words of `gpud status --short`."""


def supervisor(run_dir: Path) -> ProcessRef | None:
    """Return the supervisor that runs, by the pid and the start that it wrote. Errors: none."""
    try:
        pid, ticks = (run_dir / "root.pid").read_text().split()
        named = ProcessRef(int(pid), int(ticks))
    except (OSError, ValueError):
        return None
    return named if ref(named.pid) == named else None


def short_status(run_dir: Path, now_s: float) -> tuple[int, str] | None:
    """Return exit code and words of the agent's line; None if it is not of now. Errors: none."""
    text = regular_file.text(run_dir / "agent" / SHORT, 200) or ""
    line = re.fullmatch(r"([0-9]{1,12}) ([01]) ([ -~]+)\n", text)
    fresh = line and abs(now_s - int(line[1])) <= STALE_AFTER_S
    return (int(line[2]), line[3]) if line and fresh and supervisor(run_dir) else None


def latest_root_report(run_dir: Path) -> RootReport | None:
    """Return root's report if it is fresh. Errors: none."""
    return root_report(run_dir / "root.json", Instant(time.time(), time.monotonic()))[0]


def root_report(path: Path, now: Instant) -> tuple[RootReport | None, str]:
    """Return root's report if it is fresh, or why there is none. Errors: none."""
    try:
        report = wire.decode(regular_file.read(path, LARGEST), RootReport)
    except FileNotFoundError:
        return None, NOT_RUNNING
    except OSError as error:
        return None, f"cannot read {path}: {error.strerror}"
    except WireError as error:
        return None, f"{path}: {error}"
    age_s = now.mono_s - report.beat_s
    fresh = -CLOCK_TOLERANCE_S <= age_s <= STALE_AFTER_S
    # The report of a killed supervisor stays, so its process is looked up too.
    if not fresh or ref(report.process.pid) != report.process:
        return None, NOT_RUNNING
    return report, ""


def published_by(written_s: float, report: RootReport | None) -> bool:
    """Return whether the agent that root reports wrote a file then; yes where root reports none.

    A file of an earlier agent is older than the process, by clocks that no step parts for long.
    """
    if report is None:
        return True
    process = report.agent.process
    return process is not None and time.time() - written_s < lived_s(process)
