"""Who listens, from the kernel's own tables: ports and Unix sockets of this network namespace."""

from __future__ import annotations

import contextlib
from pathlib import Path

from gpud.core.proc import listening
from gpud.root import process

ACCEPTS = 0x10000  # __SO_ACCEPTCON in /proc/net/unix


def port(address: str) -> tuple[str, ...]:
    """Give the inodes that listen on the port of ``HOST:PORT``, whatever their address."""
    number = address.rpartition(":")[2]
    if not number.isascii() or not number.isdigit():
        return ()
    found = set[str]()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        found |= listening("\n".join(_lines(Path(table))), int(number))
    return tuple(sorted(found))


def unix(table: Path, paths: frozenset[str]) -> tuple[str, ...]:
    """Give the inodes that listen on sockets bound as one of ``paths``, by anybody in this
    network namespace: the other distributions of a WSL2 machine are in it.
    """  # noqa: D205
    found = []
    for line in _lines(table):
        fields = line.split()
        listens = len(fields) == 8 and int(fields[3], 16) & ACCEPTS  # noqa: PLR2004
        if listens and fields[7] in paths:
            found.append(fields[6])
    return tuple(sorted(found))


def holder(inode: str) -> int | None:
    """Find the process that has the socket open; None when it is out of our sight."""
    wanted = f"socket:[{inode}]"
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                for descriptor in (entry / "fd").iterdir():
                    with contextlib.suppress(OSError):
                        if str(descriptor.readlink()) == wanted:
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
