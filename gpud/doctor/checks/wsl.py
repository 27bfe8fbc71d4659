"""Check of the WSL version."""

from __future__ import annotations

import re

from gpud.doctor.finding import Finding, advice, ok, problem, unknown
from gpud.doctor.machine import Machine

TITLE = "WSL version"
ORDER = 10
SUMMARY = "WSL 2, WSL 1, plain Linux or a container, with kernel and distribution"


def look(machine: Machine) -> Finding:
    """Tell by the kernel's name; a container shares its host's."""
    kernel = machine.kernel
    release = machine.text("/etc/os-release") or ""
    named = re.search(r'^PRETTY_NAME="?([^"\n]{1,80})', release, re.MULTILINE)
    distribution = named[1] if named else "a distribution without a name"
    if not kernel:
        return unknown("the kernel does not say its release: is /proc mounted?")
    if machine.container:
        return advice(
            f"a container on kernel {kernel}",
            "run gpud on the machine itself: in a container it sees neither dockerd nor wsl.conf",
        )
    if machine.wsl == "1":
        name = machine.environ.get("WSL_DISTRO_NAME", "NAME")
        return problem(
            f"WSL 1, kernel {kernel}: neither a GPU nor dockerd works there",
            f"from Windows: wsl --set-version {name} 2",
        )
    what = "WSL 2" if machine.wsl == "2" else "Linux, not WSL"
    return ok(f"{what}, kernel {kernel}, {distribution}")
