"""Whether Windows programs can be started, which is also what keeps the distribution alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.core import wsl
from gpud.doctor.finding import Finding, advice, ok

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = "interop"
ORDER = 30
SUMMARY = "`[interop] enabled`, and whether Windows programs are registered with the kernel"
REGISTERED = ("WSLInterop", "WSLInterop-late")
DIES = "the distribution stops about 15 s after its last terminal closes, gpud and dockerd with it"


def look(machine: Machine) -> Finding:
    """Compare ``wsl.conf`` with what the kernel has registered."""
    if not machine.wsl:
        return ok("not WSL: there is none")
    texts = [machine.text(f"/proc/sys/fs/binfmt_misc/{name}") for name in REGISTERED]
    registered = any(text is not None and text.startswith("enabled") for text in texts)
    return judged(wanted=wsl.switch(machine.wsl_conf, "interop", "enabled"), registered=registered)


def judged(*, wanted: bool | None, registered: bool) -> Finding:
    """Off is the person's choice; what it costs is said all the same."""
    if wanted is False:
        return advice(
            f"off in wsl.conf: {DIES}",
            "[interop] enabled=true in /etc/wsl.conf, or in Windows' .wslconfig "
            "[general] instanceIdleTimeout=-1",
        )
    if not registered:
        return advice(
            "on, but Windows programs are not registered with the kernel (systemd-binfmt?)",
            "from Windows: wsl --shutdown; if it stays, mask systemd-binfmt.service",
        )
    return ok("on")
