"""Processes and sockets as ``/proc`` shows them; a recycled pid is never another process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpud import processes
from gpud.core import proc
from gpud.root.dockerd_facts import Activity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpud.core.report import ProcessRef

ref = processes.ref
"""Of a living process; None for none and for a zombie, which only waits to be reaped."""
TICKS = os.sysconf("SC_CLK_TCK")
ACCEPTS = 0x10000  # __SO_ACCEPTCON in /proc/net/unix
LISTENING = 1 << 10  # TCP_LISTEN
SOCK_DIAG, SOCK_DIAG_BY_FAMILY, DUMP = 4, 20, 0x301
ERROR, DONE = 2, 3
SHOW_UID, UID = 0x40, 7
LARGEST_PART = 1 << 16
IDLE = frozenset("STIXZ")
"""Thread states without work: asleep, stopped, ended. In all others a thread runs or waits for a
processor (R), waits for a disk (D), or is held by a debugger (t)."""
READS = 3
READ_EVERY_S = 0.02
"""An idle Go program runs for a moment now and then; one that is starved of CPU stays in R."""
RELAY = "docker-proxy"
"""dockerd's child for a published port: the traffic of a container is no work of dockerd's."""


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


def uid(pid: int) -> int | None:
    """Give the user of a process; None when there is none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}").stat().st_uid
    return None


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


def wait_child(pid: int, within_s: float) -> None:
    """Wait until our own child can be reaped, or time runs out."""
    _ended(os.pidfd_open(pid), within_s)


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


def tcp_listeners(address: str) -> tuple[str, ...]:
    """Give the inodes that listen on the port of ``HOST:PORT``, whatever their address."""
    number = address.rpartition(":")[2]
    if not number.isascii() or not number.isdigit():
        return ()
    inodes = set[str]()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        inodes |= proc.listening("\n".join(_lines(Path(table))), int(number))
    return tuple(sorted(inodes))


def unix_listeners(table: Path, paths: frozenset[str]) -> tuple[str, ...]:
    """Give the inodes that listen on sockets bound as one of ``paths``, by anybody in this
    network namespace: the other distributions of a WSL2 machine are in it.
    """  # noqa: D205
    inodes = []
    for line in _lines(table):
        fields = line.split()
        listens = len(fields) == 8 and int(fields[3], 16) & ACCEPTS  # noqa: PLR2004
        if listens and fields[7] in paths:
            inodes.append(fields[6])
    return tuple(sorted(inodes))


def socket_makers() -> dict[str, int] | None:
    """Give the uid that made each listening Unix socket, by inode; None where it is not known.

    That is sock_diag(7), of Linux 5.3 and later; /proc/net/unix does not name users. A user who is
    root in a namespace of their own has their own uid here.
    """
    request = struct.pack("=BBHIII8s", socket.AF_UNIX, 0, 0, LISTENING, 0, SHOW_UID, b"\xff" * 8)
    header = struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, DUMP, 0, 0)
    uids: dict[str, int] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as netlink:
            netlink.send(header + request)
            while True:
                part = netlink.recv(LARGEST_PART)
                while part:
                    length, kind = struct.unpack_from("=IH", part)
                    if kind in (ERROR, DONE):
                        return uids if kind == DONE else None
                    uid = _uid_in(part[32:length])
                    if uid is None:
                        return None
                    uids[str(struct.unpack_from("=I", part, 20)[0])] = uid
                    part = part[(length + 3) & ~3 :]
    except OSError:
        return None


def _uid_in(attributes: bytes) -> int | None:
    while attributes:
        length, kind = struct.unpack_from("=HH", attributes)
        if kind == UID:
            return int(struct.unpack_from("=I", attributes, 4)[0])
        attributes = attributes[(length + 3) & ~3 :]
    return None


def peer(connection: socket.socket) -> int:
    """Return the pid that listens on the other side; 0 for one outside our PID namespace."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
    return int(struct.unpack("iII", raw)[0])


def socket_holder(inode: str) -> int | None:
    """Find the process that has the socket open; None when it is out of our sight."""
    target = f"socket:[{inode}]"
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                for descriptor in (entry / "fd").iterdir():
                    with contextlib.suppress(OSError):
                        if str(descriptor.readlink()) == target:
                            return int(entry.name)
    return None


def described(pid: int | None) -> str:
    """Say who a process is, for a person; 0 and None are processes we cannot see."""
    if not pid:
        return "a process outside this distribution"
    return f"{name(pid) or 'a process'} (pid {pid})"


def _lines(table: Path) -> list[str]:
    try:
        return table.read_text(errors="replace").splitlines()[1:]
    except OSError:
        return []


def activity(main: int, others: Iterable[int] = ()) -> Activity | None:
    """Read what ``main``, ``others`` and their descendants do; None once ``main`` has ended."""
    reading = _activity(main, others)
    for _ in range(READS - 1):
        if reading is None or reading[0] - IDLE != {"R"}:
            break
        time.sleep(READ_EVERY_S)
        reading = _activity(main, others)
    if reading is None:
        return None
    states, ticks = reading
    return Activity(not states <= IDLE, ticks / TICKS, stopped=states == {"T"})


def _activity(main: int, others: Iterable[int]) -> tuple[set[str], int] | None:
    """Give the states of all threads and the clock ticks used; a stopped ``main`` counts alone."""
    states = _states(main)
    if not states:
        return None
    pids = [main] if states == {"T"} else _family({main, *others})
    ticks = 0
    for pid in pids:
        states |= _states(pid)
        ticks += sum(map(int, stat(pid)[11:15]))  # user, system, and of ended children
    return states, ticks


def _states(pid: int) -> set[str]:
    try:
        threads = [thread.name for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return set()
    return {fields[0] for thread in threads if (fields := stat(f"{pid}/task/{thread}"))}


def _family(roots: set[int]) -> list[int]:
    """Give ``roots`` and every process below them, without the relays of ports."""
    children: dict[int, list[int]] = {}
    for pid in pids():
        above = parent(pid)
        if above is not None:
            children.setdefault(above, []).append(pid)
    family, left = set[int](), list(roots)
    while left:
        pid = left.pop()
        if pid not in family and name(pid) != RELAY:
            family.add(pid)
            left += children.get(pid, [])
    return sorted(family)
