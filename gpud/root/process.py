"""Processes by pid and start time, so that a recycled pid is never taken for another process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.core.report import ProcessRef

if TYPE_CHECKING:
    from collections.abc import Iterator

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
TICKS = os.sysconf("SC_CLK_TCK")


def prctl(option: int, value: int) -> None:
    """Set one attribute of the calling process.

    Errors: ``OSError`` with the kernel's errno.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")


def ref(pid: int) -> ProcessRef | None:
    """Look a living process up; None for none and for a zombie, which only waits to be reaped."""
    fields = stat(pid)
    if not fields or fields[0] in "ZX":
        return None
    return ProcessRef(pid, int(fields[19]))


def pids() -> Iterator[int]:
    """Give every process there is just now."""
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def alive(process: ProcessRef) -> bool:
    """Say whether this very process still lives."""
    return ref(process.pid) == process


def parent(pid: int) -> int | None:
    """Give the pid of the parent; None when there is no such process."""
    fields = stat(pid)
    return int(fields[1]) if fields else None


def name(pid: int) -> str:
    """Give the name of the program's file, else of the process; empty when there is none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/exe").readlink().name.removesuffix(" (deleted)")
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    return ""


def stat(pid: int | str) -> list[str]:
    """Give the fields of /proc/PID/stat from the third, the state, on; none without a process.

    Shapes: ``pid`` may also name a thread, as ``PID/task/TID``.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode("ascii", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the name may hold spaces and parentheses


def open_fd(process: ProcessRef) -> int | None:
    """Open a pidfd that becomes readable when the process ends; None when it is gone already."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return None
    if alive(process):
        return descriptor
    os.close(descriptor)
    return None


def send(process: ProcessRef, number: signal.Signals) -> bool:
    """Send a signal to this very process; False when it is gone."""
    descriptor = open_fd(process)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait(process: ProcessRef, within_s: float) -> bool:
    """Wait for the end of a process that need not be our child; False when time ran out."""
    descriptor = open_fd(process)
    return True if descriptor is None else _ended(descriptor, within_s)


def wait_child(pid: int, within_s: float) -> bool:
    """Wait until our own child can be reaped; False when time ran out."""
    return _ended(os.pidfd_open(pid), within_s)


def _ended(descriptor: int, within_s: float) -> bool:
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(within_s * 1000))
    finally:
        os.close(descriptor)


def end(process: ProcessRef, within_s: float) -> bool:
    """Ask a process to end, and after ``within_s`` kill it once; True once it is gone."""
    if not send(process, signal.SIGTERM) or wait(process, within_s):
        return True
    send(process, signal.SIGKILL)
    return wait(process, within_s)
