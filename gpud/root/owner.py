"""Owner of a dockerd, from what cannot be faked or forgotten: marks, links, cgroups, uids, peers.

Only what is nobody's or gpud's is kept; ``auto`` stands back from everything else. The order of
the questions is the order of certainty.
"""

from __future__ import annotations

import functools
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpud import regular_file
from gpud.core import wsl
from gpud.core.report import Owner
from gpud.root import process
from gpud.root.daemonconfig import DEFAULT_SOCKETS

if TYPE_CHECKING:
    from gpud.core.report import ProcessRef

MARK = "GPUD_KEEPER"
INIT = 1
ROOT = 0
MOST_LISTENERS = 16
_UNITS = (
    "etc/systemd/system/multi-user.target.wants/docker.service",
    "etc/systemd/system/sockets.target.wants/docker.socket",
)
_SERVICE = re.compile(
    r"^\d+:(?:name=systemd)?:/system\.slice/(?:.*/)?[^/\n]+\.service$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Scene:
    """What owners are told by: the socket, who listens on it, and which dockerd was found.

    ``listener`` is the pid that listens: 0 outside our PID namespace, None when nobody does or
    the kernel will not say.
    """

    socket: str
    run_dir: str
    sysroot: Path
    process: ProcessRef | None
    listener: int | None
    listens: bool


def owner(scene: Scene) -> Owner:
    """Say whose dockerd this is, or who would own the next one."""
    pid = scene.process.pid if scene.process is not None else None
    if pid is not None and marked(pid, scene.run_dir):
        return Owner.GPUD
    if _desktop(scene):
        return Owner.DOCKER_DESKTOP
    if _systemd(scene, pid):
        return Owner.SYSTEMD
    if pid is not None:
        uid = process.uid(pid)
        return Owner.OTHER if uid in (None, 0, os.geteuid()) else Owner.OTHER_USER
    if _wsl(scene.sysroot) and _unseen(scene):
        return Owner.OTHER_DISTRIBUTION
    return Owner.OTHER if scene.listens else Owner.NONE


def marked(pid: int, run_dir: str) -> bool:
    """Say whether a process was started by the supervisor of this run directory.

    The mark survives any crash of the supervisor, needs no file and cannot be confused by a
    recycled pid. Anybody can set it for a program of their own, so the process must be of our own
    user, and not by a setuid bit: such a program keeps its caller's environment. Nor may it be root
    of a container, which has other pids.
    """
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        setuid = Path(f"/proc/{pid}/exe").stat().st_mode & stat.S_ISUID
        inside = Path(f"/proc/{pid}/ns/pid").readlink() != Path("/proc/self/ns/pid").readlink()
    except OSError:
        return False
    ours = process.uid(pid) == os.geteuid() and not setuid and not inside
    return ours and f"{MARK}={run_dir}".encode() in environment.split(b"\0")


def desktop_root(sysroot: Path) -> str:
    """Name where Docker Desktop mounts its own, as ``etc/wsl.conf`` below ``sysroot`` says."""
    return wsl.docker_desktop(wsl.sections(regular_file.text(sysroot / "etc/wsl.conf") or ""))


def _desktop(scene: Scene) -> bool:
    theirs = desktop_root(scene.sysroot)
    if _below(os.path.realpath(scene.socket), theirs):
        return True
    try:
        program = Path(f"/proc/{scene.listener}/exe").readlink() if scene.listener else ""
    except OSError:
        return False
    return _below(str(program), theirs)


def _systemd(scene: Scene, pid: int | None) -> bool:
    if not (scene.sysroot / "run/systemd/system").is_dir():
        return False
    if pid is not None:
        groups = regular_file.text(scene.sysroot / f"proc/{pid}/cgroup") or ""
        return _SERVICE.search(groups) is not None
    if scene.listener == INIT:
        return True  # its socket unit: dockerd starts with the first request
    enabled = any(os.path.lexists(scene.sysroot / unit) for unit in _UNITS)
    return enabled and scene.socket in DEFAULT_SOCKETS and not scene.listens


def _unseen(scene: Scene) -> bool:
    """Say whether a process out of our sight listens: here, or by our name in mounts of its own."""
    if scene.listens:
        return scene.listener == 0
    return any(maker in (None, ROOT) for maker in _hidden(scene).values())


def suspects(scene: Scene) -> frozenset[str]:
    """Give the inodes of listeners by our name, out of our sight, that root did not make.

    Any user can bind that name in mounts of their own and let no process hold the socket. The
    dockerd of another distribution, which shares the network with ours, is root's.
    """
    if not _wsl(scene.sysroot):
        return frozenset()
    return frozenset(inode for inode, uid in _hidden(scene).items() if uid not in (None, ROOT))


def _hidden(scene: Scene) -> dict[str, int | None]:
    """Give who made each listener by our name that no process in sight holds; None: not known.

    A user may make any number of them, so that root's come first and a few of the others count.
    """
    names = DEFAULT_SOCKETS if scene.socket in DEFAULT_SOCKETS else frozenset({scene.socket})
    inodes = process.unix_listeners(scene.sysroot / "proc/net/unix", names)
    makers = process.socket_makers() if inodes else {}
    if makers is not None:
        inodes = tuple(sorted(makers.keys() & set(inodes), key=lambda inode: makers[inode] != ROOT))
    hidden = filter(_out_of_sight, inodes[:MOST_LISTENERS])
    return {inode: None if makers is None else makers[inode] for inode in hidden}


@functools.lru_cache(maxsize=2 * MOST_LISTENERS)
def _out_of_sight(inode: str) -> bool:
    """Say whether none of our processes has a socket; asked once each, the answer costs 10 ms."""
    return process.socket_holder(inode) is None


def _wsl(sysroot: Path) -> bool:
    return wsl.version(regular_file.text(sysroot / "proc/sys/kernel/osrelease") or "") != ""


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")
