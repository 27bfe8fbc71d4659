"""Readings of what must change before a failed start is tried again, as text to be compared."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.root import process
from gpud.root.dockerd_facts import GONE_IS_ENOUGH, SUBJECTS, DockerdCause, StartCondition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpud.root.daemonconfig import DaemonConfig

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HELPERS = ("containerd", "runc", "iptables", "ip6tables", "nft", "docker-init", "docker-proxy")
DAEMONS = frozenset({"dockerd", "containerd", "docker-containerd"})
SPACE_STEP = 64 * 1024 * 1024
INODE_STEP = 1000
MOST_STEPS = 16
"""Free space is told in steps up to here, smaller ones on a small disk: one with a gigabyte to
spare is not the trouble."""


def look(
    config: DaemonConfig, binary: str | None, cause: DockerdCause | None, *, everything: bool
) -> Mapping[StartCondition, str]:
    """Tell what ``cause`` waits for and, with ``everything``, what is cheap to tell of the rest."""
    conditions = set() if cause is None else set(cause.watch)
    if everything:
        conditions |= set(StartCondition) - SUBJECTS - GONE_IS_ENOUGH
    subject = cause.subject if cause else ""
    places = (config.data_root, config.exec_root, config.pidfile)
    looks: dict[StartCondition, Callable[[], str]] = {
        StartCondition.CONFIG: lambda: f"{_file(config.file)} {_file(binary or '')}",
        StartCondition.PROGRAMS: _programs,
        StartCondition.SPACE: lambda: " ".join(map(_space, places)),
        StartCondition.MOUNTS: lambda: " ".join(map(_mount, places)),
        StartCondition.PORT: lambda: " ".join(process.tcp_listeners(subject)),
        StartCondition.PATH: lambda: _place(subject),
        StartCondition.FIREWALL: lambda: (
            f"{_program('iptables')} {_program('ip6tables')} {_modules()}"
        ),
        StartCondition.ADDRESSES: lambda: (
            f"{_text('/proc/net/fib_trie')} {_text('/proc/net/if_inet6')}"
        ),
        StartCondition.CGROUPS: _cgroups,
        StartCondition.DAEMONS: lambda: " ".join(map(str, daemons())),
    }
    return {watch: looks[watch]() for watch in conditions}


def full(path: str) -> bool:
    """Say whether nothing can be written below ``path``: no block or no inode is free."""
    try:
        facts = os.statvfs(_existing(path))
    except OSError:
        return False
    return facts.f_bavail == 0 or (facts.f_files > 0 and facts.f_favail == 0)


def daemons() -> list[int]:
    """Give the pids of every dockerd and containerd in sight."""
    pids = process.pids()
    return sorted(pid for pid in pids if process.name(pid) in DAEMONS and process.ref(pid))


def _file(path: str) -> str:
    """Tell one version of a file from another; a link counts by what it leads to."""
    if not path:
        return "-"
    try:
        facts = os.stat(path)  # noqa: PTH116  # symmetrical with statvfs
    except OSError as error:
        return f"errno{error.errno}"
    return f"{facts.st_dev}:{facts.st_ino}:{facts.st_size}:{facts.st_mtime_ns}:{facts.st_mode}"


def _place(path: str) -> str:
    """Tell a file from another, and of an absent one how much of the way to it is there."""
    appearance = _file(path)
    return appearance if os.path.lexists(path) else f"{appearance} {_existing(path)}"


def _programs() -> str:
    """Tell what dockerd calls; a storage driver's helper has any name, so directories count."""
    helpers = (_file(shutil.which(helper, path=PATH) or "") for helper in HELPERS)
    return " ".join((*helpers, *map(_file, PATH.split(":"))))


def _space(path: str) -> str:
    try:
        facts = os.statvfs(_existing(path))
    except OSError as error:
        return f"errno{error.errno}"
    step = max(1, min(SPACE_STEP, facts.f_blocks * facts.f_frsize // MOST_STEPS))
    bytes_free = min(facts.f_bavail * facts.f_frsize // step, MOST_STEPS)
    inodes_free = min(facts.f_favail // INODE_STEP, MOST_STEPS)
    return f"{facts.f_fsid}:{bytes_free}:{inodes_free}"


def _mount(path: str) -> str:
    try:
        facts = os.statvfs(_existing(path))
    except OSError as error:
        return f"errno{error.errno}"
    return f"{facts.f_fsid}:{'ro' if facts.f_flag & os.ST_RDONLY else 'rw'}"


def _existing(path: str) -> str:
    """Climb to the nearest directory that is there: dockerd makes the rest."""
    place = Path(path)
    while not place.exists() and place != place.parent:
        place = place.parent
    return str(place)


def _program(program: str) -> str:
    path = shutil.which(program, path=PATH)
    return "-" if path is None else os.path.realpath(path)


def _modules() -> str:
    """Name the kernel's modules without their use counts, which change all the time."""
    return ",".join(sorted(line.split()[0] for line in _text("/proc/modules").splitlines()))


def _cgroups() -> str:
    lines = _text("/proc/self/mounts").splitlines()
    return "\n".join(sorted(line for line in lines if line.split()[2].startswith("cgroup")))


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
