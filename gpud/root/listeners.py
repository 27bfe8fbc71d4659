"""Listening ports and Unix sockets of this network namespace, from the kernel's own tables."""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path

from gpud.core.proc import listening
from gpud.root import process

ACCEPTS = 0x10000  # __SO_ACCEPTCON in /proc/net/unix
LISTENING = 1 << 10  # TCP_LISTEN
SOCK_DIAG, SOCK_DIAG_BY_FAMILY, DUMP = 4, 20, 0x301
ERROR, DONE = 2, 3
SHOW_UID, UID = 0x40, 7
LARGEST_PART = 1 << 16


def port(address: str) -> tuple[str, ...]:
    """Give the inodes that listen on the port of ``HOST:PORT``, whatever their address."""
    number = address.rpartition(":")[2]
    if not number.isascii() or not number.isdigit():
        return ()
    inodes = set[str]()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        inodes |= listening("\n".join(_lines(Path(table))), int(number))
    return tuple(sorted(inodes))


def unix(table: Path, paths: frozenset[str]) -> tuple[str, ...]:
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


def makers() -> dict[str, int] | None:
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


def holder(inode: str) -> int | None:
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


def named(pid: int | None) -> str:
    """Say who a process is, for a person; 0 and None are processes we cannot see."""
    if not pid:
        return "a process outside this distribution"
    return f"{process.name(pid) or 'a process'} (pid {pid})"


def _lines(table: Path) -> list[str]:
    try:
        return table.read_text(errors="replace").splitlines()[1:]
    except OSError:
        return []
