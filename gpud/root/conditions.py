"""What has to change before a failed start is worth another try, as text that is compared."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.root import listeners, process
from gpud.root.dockerd_causes import GONE_IS_ENOUGH, SUBJECTS, Cause, Watch

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
    config: DaemonConfig, binary: str | None, cause: Cause | None, *, everything: bool
) -> Mapping[Watch, str]:
    """Tell what ``cause`` waits for and, with ``everything``, what is cheap to tell of the rest."""
    wanted = set() if cause is None else set(cause.watch)
    if everything:
        wanted |= set(Watch) - SUBJECTS - GONE_IS_ENOUGH
    places = (config.data_root, config.exec_root, config.pidfile)
    looks: dict[Watch, Callable[[], str]] = {
        Watch.CONFIG: lambda: f"{_file(config.file)} {_file(binary or '')}",
        Watch.PROGRAMS: _programs,
        Watch.SPACE: lambda: " ".join(map(_space, places)),
        Watch.MOUNTS: lambda: " ".join(map(_mount, places)),
        Watch.PORT: lambda: " ".join(listeners.port(cause.subject if cause else "")),
        Watch.PATH: lambda: _place(cause.subject if cause else ""),
        Watch.FIREWALL: lambda: f"{_chosen('iptables')} {_chosen('ip6tables')} {_modules()}",
        Watch.ADDRESSES: lambda: f"{_text('/proc/net/fib_trie')} {_text('/proc/net/if_inet6')}",
        Watch.CGROUPS: _cgroups,
        Watch.DAEMONS: lambda: " ".join(map(str, daemons())),
    }
    return {watch: looks[watch]() for watch in wanted}


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
    seen = _file(path)
    return seen if os.path.lexists(path) else f"{seen} {_existing(path)}"


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


def _chosen(program: str) -> str:
    found = shutil.which(program, path=PATH)
    return "-" if found is None else os.path.realpath(found)


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
