"""Lock of a run directory: one supervisor at a time, and its pid for shells."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from gpud import regular_file
from gpud.core.errors import AlreadyRunning
from gpud.reports import supervisor
from gpud.root import files, process

if TYPE_CHECKING:
    from pathlib import Path

STOPPED = "stopped"
"""A file that says: stopped by a person. An opened shell leaves it at that; /run forgets it."""


class Lock:
    """``run_dir/root.lock``, locked until ``release`` or the end of this process.

    Errors: ``AlreadyRunning`` with the pid of the holder.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._descriptor = _take(run_dir)

    def renew(self) -> bool:
        """Take it again where somebody removed its file; return whether that was so.

        A removed ``root.pid`` is written again. Errors: ``AlreadyRunning`` where another supervisor
        was quicker; ``OSError``.
        """
        files.directory(self._run_dir, 0o755)
        path = self._run_dir / "root.lock"
        if path.exists() and os.path.samestat(path.stat(), os.fstat(self._descriptor)):
            if supervisor(self._run_dir) is None:
                _write_pid(self._run_dir)
            return False
        fresh = _take(self._run_dir)
        self.release()
        self._descriptor = fresh
        return True

    def release(self) -> None:
        """Let another supervisor take it."""
        os.close(self._descriptor)


def _take(run_dir: Path) -> int:
    descriptor = os.open(run_dir / "root.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        running = supervisor(run_dir)
        raise AlreadyRunning(running.pid if running else None) from None
    try:
        _write_pid(run_dir)
    except OSError:
        os.close(descriptor)
        raise
    (run_dir / STOPPED).unlink(missing_ok=True)
    return descriptor


def _write_pid(run_dir: Path) -> None:
    me = process.ref(os.getpid())
    if me is None:  # /proc is not mounted
        raise FileNotFoundError("/proc/self/stat")
    regular_file.replace(run_dir / "root.pid", f"{me.pid} {me.start_ticks}\n".encode())
