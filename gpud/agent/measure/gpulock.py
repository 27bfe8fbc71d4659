"""The lock that each child inherits, and the line in it that says whose it is.

The kernel keeps the lock just as long as the child lives; the line tells an agent that was started
since whether that is a run in progress or a process that should have been gone long ago. Who wrote
it is compared with ``/proc``, so a line left over from an older boot names nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpud.agent import children
from gpud.core.report import ProcessRef

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_LINE = 256


@dataclass(frozen=True, slots=True)
class Holder:
    """The child that has the lock.

    Units: ``overdue_s`` is the CLOCK_MONOTONIC moment of this boot after which neither its own
    alarm nor its parent's kill can have left it alive, unless the kernel keeps it.
    """

    process: ProcessRef
    overdue_s: float
    what: str  # "launch on GPU-..."


def opened(path: Path) -> int:
    """Open the lock's file, making it if need be. Errors: ``OSError``."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o660)


def holder_in(path: Path) -> Holder | None:
    """Read who has the lock of this file. Errors: ``OSError``."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return holder(fd)
    finally:
        os.close(fd)


def taken(fd: int) -> bool:
    """Take the lock if nobody has it; never waits."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def note(fd: int, holder: Holder | None) -> None:
    """Write down who has the lock now, or that nobody does yet.

    Errors: none; a full disk costs the line, and with it only what a later agent could tell.
    """
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        if holder is not None:
            me = holder.process
            line = f"{me.pid} {me.start_ticks} {holder.overdue_s:.3f} {holder.what}"
            os.pwrite(fd, f"{line[: LONGEST_LINE - 1]}\n".encode(), 0)


def holder(fd: int) -> Holder | None:
    """Read who has the lock; None when the line names no process that lives."""
    try:
        text = os.pread(fd, LONGEST_LINE, 0).decode(errors="replace")
        pid, ticks, overdue_s, what = text.rstrip("\n").split(" ", 3)
        found = Holder(ProcessRef(int(pid), int(ticks)), float(overdue_s), what)
    except (OSError, ValueError):
        return None
    if not math.isfinite(found.overdue_s):
        return None
    return found if children.ref(found.process.pid) == found.process else None
