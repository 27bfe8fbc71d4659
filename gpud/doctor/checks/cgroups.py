"""Check of the cgroups that dockerd will find."""

from __future__ import annotations

from gpud.doctor.finding import Finding, advice, ok, problem
from gpud.doctor.machine import Machine

TITLE = "cgroups"
ORDER = 50
SUMMARY = "version 2, version 1 or none: dockerd does not start without"
ROOT = "/sys/fs/cgroup"
FIX = "remove `cgroups=v1` from [automount] of /etc/wsl.conf, then from Windows: wsl --shutdown"


def look(machine: Machine) -> Finding:
    """Read what is mounted, and what ``wsl.conf`` and the kernel's command line ask for."""
    mounts = [line.split() for line in (machine.text("/proc/self/mounts") or "").splitlines()]
    kinds = {tuple(mount[1:3]) for mount in mounts}
    v1_wanted = machine.wsl_conf.get("automount", {}).get("cgroups", "") == "v1"
    if v1_wanted and "cgroup_no_v1=all" in (machine.text("/proc/cmdline") or ""):
        return problem("wsl.conf asks for version 1 and the kernel was started without it", FIX)
    if (ROOT, "cgroup2") in kinds:
        return ok("version 2")
    if any(mount[2:3] == ["cgroup"] for mount in mounts):
        why = " because wsl.conf asks for it" if v1_wanted else ""
        return advice(
            f"version 1{why}: new versions of Docker drop it",
            FIX if v1_wanted else "boot with systemd.unified_cgroup_hierarchy=1",
        )
    return problem("none is mounted: dockerd does not start", f"mount -t cgroup2 cgroup2 {ROOT}")
