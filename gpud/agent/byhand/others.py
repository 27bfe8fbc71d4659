"""What else is at work on the GPU: who has the lock, and whether the agent's breaker is open."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.agent import gpulock
from gpud.core.breaker import State
from gpud.core.text import escaped

if TYPE_CHECKING:
    from gpud.core.report import ProcessRef

AGENT_STALE_AFTER_S = 60.0
LARGEST = 4 * 1024 * 1024
TICKS_PER_S: int = os.sysconf("SC_CLK_TCK")


def holder(lock: Path) -> str:
    """Name the process that has the lock, what it does, whose it is and for how long it has run.

    Errors: none; a holder that cannot be found out is "another process".
    """
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return "another process"
    try:
        found = gpulock.holder(fd)
    finally:
        os.close(fd)
    if found is None:
        return "another process"
    whose, age_s = _whose(found.process), _age_s(found.process)
    words = f"process {found.process.pid} ({escaped(found.what)}){whose}"
    return f"{words}, which has run for {age_s:.0f} s"


def breaker(run_dir: Path, *, now_s: float) -> tuple[str, str | None] | None:
    """Say what keeps the agent from GPU work, and the fix; None when nothing is known to.

    ``now_s`` is Unix time: the word of an agent that ended long ago counts for nothing.
    """
    try:
        path = run_dir / "agent" / "agent.json"
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            document = json.loads(file.read(LARGEST) or b"")
        standing = document["breaker"]
        fresh = abs(now_s - document["written_s"]) <= AGENT_STALE_AFTER_S
        state, detail, fix = State(standing["state"]), standing["detail"], standing["fix"]
        retry_s = standing["retry_s"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None
    if not fresh or state not in {State.OPEN, State.STUCK}:
        return None
    rest = ""
    if isinstance(retry_s, float) and retry_s > now_s:
        rest = f"; it tries again in {retry_s - now_s:.0f} s"
    words = f"the agent starts no GPU work ({state}): {detail or 'a probe hung'}{rest}"
    return escaped(words), escaped(str(fix)) if fix else None


def _whose(process: ProcessRef) -> str:
    """Tell a scheduled run from one by hand, by the command line of its parent."""
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_text(errors="replace")
        parent = int(stat.rpartition(")")[2].split()[1])
        # Of the parent: that of a process stuck in the kernel can make its reader wait too.
        words = Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError, IndexError):
        return ""
    if parent == os.getpid():
        return ""
    if b"gpud.agent" in words:
        return " of the agent"
    return " of another gpud probe" if b"probe" in words else ""


def _age_s(process: ProcessRef) -> float:
    """Give how long a process has run. Source: CLOCK_BOOTTIME, as ``/proc/PID/stat`` counts."""
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - process.start_ticks / TICKS_PER_S
    return max(age_s, 0.0)
