"""Check of interop: Windows programs can be started, which also keeps the distribution alive."""

from __future__ import annotations

from gpud.doctor.finding import Finding, advice, ok
from gpud.doctor.machine import Machine

TITLE = "interop"
ORDER = 30
SUMMARY = "`[interop] enabled`, and whether Windows programs are registered with the kernel"


def look(machine: Machine) -> Finding:
    """Compare ``wsl.conf`` with what the kernel has registered."""
    if not machine.wsl:
        return ok("not WSL: there is none")
    if machine.wsl_switch("interop", "enabled") is False:
        return advice(
            "off in wsl.conf: the distribution stops about 15 s after its last terminal closes, "
            "gpud and dockerd with it",
            "[interop] enabled=true in /etc/wsl.conf, or in Windows' .wslconfig "
            "[general] instanceIdleTimeout=-1",
        )
    if not machine.interop:
        return advice(
            "on, but Windows programs are not registered with the kernel (systemd-binfmt?)",
            "from Windows: wsl --shutdown; if it stays, mask systemd-binfmt.service",
        )
    return ok("on")
