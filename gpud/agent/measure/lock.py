"""Lock on GPU work: a file that one child at a time has locked, and the line in it that names it.

A child inherits the descriptor, so the lock is held for just as long as the child lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpud.agent import children
from gpud.core.report import ProcessRef

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_LINE: Final = 256


@dataclass(frozen=True, slots=True)
class Holder:
    """The child that has the lock.

    Units: ``overdue_s`` is the CLOCK_MONOTONIC moment of this boot after which neither its own
    alarm nor its parent's kill can have left it alive, unless the kernel keeps it.
    """

    process: ProcessRef
    overdue_s: float
    what: str  # "launch on GPU-..."


def open_lock(path: Path) -> int:
    """Open the lock's file, making it if need be. Errors: ``OSError``."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o660)


def take_lock(fd: int) -> bool:
    """Take the lock if it is free; never waits."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def note_holder(fd: int, holder: Holder | None) -> None:
    """Write into the lock's file who has it now, for an agent that is started meanwhile.

    Errors: none; a full disk costs the line, and with it only what a later agent could tell.
    """
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        if holder is not None:
            process = holder.process
            line = f"{process.pid} {process.start_ticks} {holder.overdue_s:.3f} {holder.what}"
            os.pwrite(fd, f"{line[: LONGEST_LINE - 1]}\n".encode(), 0)


def lock_holder(fd: int) -> Holder | None:
    """Read who has the lock; None when the line names no process that lives."""
    try:
        text = os.pread(fd, LONGEST_LINE, 0).decode(errors="replace")
        pid, ticks, overdue_s, what = text.rstrip("\n").split(" ", 3)
        holder = Holder(ProcessRef(int(pid), int(ticks)), float(overdue_s), what)
    except (OSError, ValueError):
        return None
    return holder if children.ref(holder.process.pid) == holder.process else None
