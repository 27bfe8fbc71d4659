"""Lock on GPU work: a file that one child at a time has locked, and the line in it that names it.

A child inherits the descriptor, so the lock is held for just as long as the child lives. NVML's
helper has a lock of its own, of the same kind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpud import processes
from gpud.core.errors import DeniedError
from gpud.core.report import ProcessRef
from gpud.core.settings import GROUP, LOCK
from gpud.core.text import escaped

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_LINE: Final = 256
GOES_S: Final = 5.0
"""How long a child may take to go after its limit."""
SOMEBODY: Final = "another process"


@dataclass(frozen=True, slots=True)
class Holder:
    """The child that has the lock.

    Units: ``overdue_s`` is the CLOCK_MONOTONIC moment of this boot after which neither its own
    alarm nor its parent's kill can have left it alive, unless the kernel keeps it.
    """

    process: ProcessRef
    overdue_s: float
    what: str  # "launch on GPU-..."

    def __str__(self) -> str:
        """Name the process, what it does and for how long it has run."""
        age_s = processes.lived_s(self.process)
        return f"process {self.process.pid} ({escaped(self.what)}), which has run for {age_s:.0f} s"


def open_lock(path: Path) -> int:
    """Open the lock's file, making it if need be. Errors: ``OSError``."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o660)


def opened_anew(fd: int) -> int:
    """Open the file of a descriptor once more, without its lock. Errors: ``OSError``."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)


def take_lock(fd: int) -> bool:
    """Take the lock if it is free; never waits."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def note_holder(fd: int, process: ProcessRef | None, limit_s: float, what: str) -> None:
    """Write into the lock's file that a child has it that ends within ``limit_s``.

    For an agent that is started meanwhile. What the line said before is of a child that has ended.
    Errors: none; a full disk costs the line, and with it only what a later agent could tell.
    """
    if process is not None:
        overdue_s = time.monotonic() + limit_s + GOES_S
        line = f"{process.pid} {process.start_ticks} {overdue_s:.3f} {what}"
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{line[: LONGEST_LINE - 1]}\n".encode(), 0)


def lock_holder(fd: int) -> Holder | None:
    """Read who has the lock; None when the line names no process that lives."""
    try:
        text = os.pread(fd, LONGEST_LINE, 0).decode(errors="replace")
        pid, ticks, overdue_s, what = text.rstrip("\n").split(" ", 3)
        holder = Holder(ProcessRef(int(pid), int(ticks)), float(overdue_s), what)
    except (OSError, ValueError):
        return None
    return holder if processes.ref(holder.process.pid) == holder.process else None


def existing(run_dir: Path) -> Path | None:
    """Return the lock of the gpud that runs or ran here, None where none has since the boot.

    Errors: ``DeniedError`` for who may not take it.
    """
    path = run_dir / LOCK
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
    except FileNotFoundError:
        return None
    except PermissionError as error:
        fix = f"sudo usermod -aG {GROUP} $USER, then open a new terminal"
        raise DeniedError(f"you may not take {path}", fix=fix) from error
    return path


def holder_elsewhere(path: Path) -> str | None:
    """Name the process that has the lock; None where it is free, not there or may not be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return str(lock_holder(fd) or SOMEBODY)
    except OSError:  # a folder of Windows has no locks
        return None
    finally:
        os.close(fd)
    return None


def holder_of(lock: Path | None) -> str:
    """Name the process that has the lock; "another process" for one that cannot be read."""
    return (lock and holder_elsewhere(lock)) or SOMEBODY
