"""Lock of a run directory: one supervisor each; ``root.pid`` names it to everybody else."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from gpud.core.errors import AlreadyRunning
from gpud.core.report import ProcessRef
from gpud.root import files, process

if TYPE_CHECKING:
    from pathlib import Path

STOPPED = "stopped"
"""A file that says: stopped by a person. An opened shell leaves it at that; /run forgets it."""


def take(run_dir: Path) -> int:
    """Lock ``run_dir/root.lock`` until this process ends, and write ``root.pid``.

    Errors: ``AlreadyRunning`` with the pid of the holder.
    """
    descriptor = os.open(run_dir / "root.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        running = holder(run_dir)
        raise AlreadyRunning(running.pid if running else None) from None
    me = process.ref(os.getpid())
    if me is None:  # /proc is not mounted
        os.close(descriptor)
        raise FileNotFoundError("/proc/self/stat")
    (run_dir / STOPPED).unlink(missing_ok=True)
    files.replace(run_dir / "root.pid", f"{me.pid} {me.start_ticks}\n".encode())
    return descriptor


def holder(run_dir: Path) -> ProcessRef | None:
    """Give the supervisor that runs, by what it wrote and what ``/proc`` says of it."""
    try:
        pid, start_ticks = (run_dir / "root.pid").read_text().split()
        supervisor = ProcessRef(int(pid), int(start_ticks))
    except (OSError, ValueError):
        return None
    return supervisor if process.alive(supervisor) else None
