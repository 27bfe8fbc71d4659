"""Processes seen from outside: identity, what the kernel has them do, and notice of their end.

One that is left behind is watched through a descriptor that becomes readable when it ends: nobody
waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.core.proc import start_ticks
from gpud.core.report import ProcessRef

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable


def ref(pid: int) -> ProcessRef | None:
    """Look a living process up; None for none and for a zombie, which only waits to be reaped."""
    try:
        ticks = start_ticks(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except OSError:
        return None
    return None if ticks is None else ProcessRef(pid, ticks)


def signal_name(number: int) -> str:
    """Name a signal: SIGSEGV. Real-time ones between the first and the last have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def condition(process: ProcessRef) -> str | None:
    """Tell what the kernel has a process do, "state D in dxgvmb_send_sync_msg"; None when gone.

    Only files that are answered without touching the process's memory are read: ``cmdline`` and
    its like would wait for one that holds its own lock.
    """
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    if start_ticks(stat) != process.start_ticks:
        return None
    wchan = ""
    with contextlib.suppress(OSError):  # another user's
        wchan = Path(f"/proc/{process.pid}/wchan").read_text(errors="replace").strip()
    state = stat.rpartition(")")[2].split()[0]
    return f"state {state} in {wchan}" if wchan not in {"", "0"} else f"state {state}"


class Watch:
    """Calls ``gone`` once, from the running loop, when a process ends; ours or somebody else's."""

    def __init__(self, process: ProcessRef, gone: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._gone = gone
        self._pidfd = -1
        with contextlib.suppress(OSError):
            self._pidfd = os.pidfd_open(process.pid)
        if self._pidfd >= 0 and ref(process.pid) == process:
            self._loop.add_reader(self._pidfd, self._ended)
        else:
            self._loop.call_soon(self._ended)

    def _ended(self) -> None:
        self.close()
        reap()
        self._gone()

    def close(self) -> None:
        """Look no more; also good for one that has seen the end."""
        if self._pidfd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


_left_behind: list[subprocess.Popen[bytes]] = []
"""Processes of ours that outlived their call."""


def reap() -> None:
    """Take the exit codes of those that have ended since."""
    _left_behind[:] = [left for left in _left_behind if left.poll() is None]


def leave(process: subprocess.Popen[bytes]) -> None:
    """Keep one until its exit code can be taken: it may outlive its call."""
    _left_behind.append(process)
    reap()
