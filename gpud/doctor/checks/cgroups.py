"""Which cgroups dockerd will find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.doctor.finding import Finding, advice, ok, problem

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = "cgroups"
ORDER = 50
SUMMARY = "version 2, version 1 or none: dockerd does not start without"
ROOT = "/sys/fs/cgroup"
FIX = "remove `cgroups=v1` from [automount] of /etc/wsl.conf, then from Windows: wsl --shutdown"


def look(machine: Machine) -> Finding:
    """Read what is mounted, and what ``wsl.conf`` and the kernel's command line ask for."""
    mounts = [line.split()[:3] for line in (machine.text("/proc/self/mounts") or "").splitlines()]
    return judged(
        {(mount[1], mount[2]) for mount in mounts if len(mount) > len("at")},
        wanted=machine.wsl_conf.get("automount", {}).get("cgroups", ""),
        command_line=machine.text("/proc/cmdline") or "",
    )


def judged(mounts: set[tuple[str, str]], *, wanted: str = "", command_line: str = "") -> Finding:
    """Judge the mounts, each a place and a type of file system."""
    places = {kind: [at for at, found in mounts if found == kind] for kind in ("cgroup", "cgroup2")}
    if wanted == "v1" and "cgroup_no_v1=all" in command_line:
        return problem("wsl.conf asks for version 1 and the kernel was started without it", FIX)
    if ROOT in places["cgroup2"]:
        return ok("version 2")
    if places["cgroup"]:
        why = " because wsl.conf asks for it" if wanted == "v1" else ""
        return advice(
            f"version 1{why}: new versions of Docker drop it",
            FIX if wanted == "v1" else "boot with systemd.unified_cgroup_hierarchy=1",
        )
    return problem("none is mounted: dockerd does not start", f"mount -t cgroup2 cgroup2 {ROOT}")
