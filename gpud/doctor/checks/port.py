"""Who listens on gpud's port: gpud, another process, or another distribution."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpud.core.proc import listening
from gpud.doctor.finding import Finding, ok, problem, unknown
from gpud.doctor.machine import Unreadable

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = "port"
ORDER = 190
SUMMARY = "gpud's address is served by gpud, or free; else who holds it"
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
MOST_DESCRIPTORS = 512


def look(machine: Machine) -> Finding:
    """Read the kernel's table of listeners; no connection is made."""
    http = machine.settings.http
    if http.port == 0:
        return ok("port 0: the kernel chooses one at each start")
    inodes = set[str]()
    for table in TABLES:
        inodes |= listening(machine.text(table) or "", http.port)
    served = machine.health("http")
    if machine.root is not None and served:
        if served.get("level"):
            fix = str(served.get("fix") or _elsewhere(http.port))
            return problem(str(served.get("detail") or f"{http.listen} cannot be had"), fix)
        return ok(f"{http.listen}, served by gpud's agent")
    if machine.root is not None:  # it may listen before it says so
        words = "the agent has not said yet whether it listens there"
        return unknown(f"{http.listen}: {words}", "ask again in a moment")
    if not inodes:
        return ok(f"{http.listen} is free")
    return problem(
        f"{http.listen} is held by {_holder(machine, inodes)}, and gpud is not running",
        _elsewhere(http.port),
    )


def _holder(machine: Machine, inodes: set[str]) -> str:
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for pid, name in machine.processes():
        folder = f"/proc/{pid}/fd"
        try:
            numbers = machine.names(folder)[:MOST_DESCRIPTORS]
        except Unreadable:
            continue  # another user's
        for number in numbers:
            try:
                target = os.readlink(machine.at(f"{folder}/{number}"))  # noqa: PTH115
            except OSError:
                continue
            if target in wanted:
                return f"{name} (process {pid})"
    if machine.wsl == "2":
        return "another user's process, or one of another distribution (they share the network)"
    return "another user's process"


def _elsewhere(port: int) -> str:
    return f'stop it, or choose another: [http] listen = "127.0.0.1:{port + 1 & 0xFFFF or 9946}"'
