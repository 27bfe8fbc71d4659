"""What gpud says of itself: root's report and the agent's document, believed while fresh."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpud.core import wire
from gpud.core.errors import WireError
from gpud.core.proc import start_ticks
from gpud.core.report import STALE_AFTER_S, RootReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.clock import Instant
    from gpud.core.report import ProcessRef

LARGEST = 4 * 1024 * 1024
AHEAD_S = 1.0
"""Root may write between our look at the clock and our look at the file."""
AGENT_STALE_AFTER_S = 60.0
"""The agent writes after a change, at most once a second; root's beat is one every 5 s."""


def root(path: Path, now: Instant) -> tuple[RootReport | None, str]:
    """Give root's report, or why there is none. Errors: none."""
    try:
        report = wire.decode(_bytes(path), RootReport)
    except FileNotFoundError:
        return None, "gpud is not running"
    except OSError as error:
        return None, f"cannot read {path}: {error.strerror}"
    except WireError as error:
        return None, f"{path}: {error}"
    age_s = now.mono_s - report.beat_s
    if not -AHEAD_S <= age_s <= STALE_AFTER_S or not _lives(report.process):
        return None, "gpud is not running"
    return report, ""


def _lives(process: ProcessRef) -> bool:
    """Its last word outlives a supervisor that was killed."""
    try:
        stat = Path("/proc", str(process.pid), "stat").read_text()
    except OSError:
        return False
    return start_ticks(stat) == process.start_ticks


def agent(path: Path, now: Instant) -> Mapping[str, Any]:
    """Give the agent's document; empty when it cannot be had or is old. Errors: none."""
    try:
        document = json.loads(_bytes(path))
        fresh = abs(now.wall_s - document["written_s"]) <= AGENT_STALE_AFTER_S
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return {}
    return document if fresh else {}


def _bytes(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise WireError("not a regular file")
        return file.read(LARGEST)
