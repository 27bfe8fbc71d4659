"""Whether systemd runs, whether it will, and who starts Docker at boot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.core import wsl
from gpud.doctor.finding import Finding, advice, combined, ok, problem

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = "systemd"
ORDER = 20
SUMMARY = "on or off now and at the next start, and a `[boot] command` that fights it"
AGAIN = "close every shell, then from Windows: wsl --terminate NAME"


def look(machine: Machine) -> Finding:
    """Compare what runs with what ``wsl.conf`` says of the next start."""
    runs = machine.systemd
    if not machine.wsl:
        return ok("on" if runs else "off")
    said = machine.wsl_conf
    wanted = wsl.switch(said, "boot", "systemd")
    return combined(
        state(runs=runs, wanted=wanted),
        boot_command(said.get("boot", {}).get("command", ""), systemd=bool(wanted)),
    )


def state(*, runs: bool, wanted: bool | None) -> Finding:
    """Judge the two against each other; nothing said is whatever runs."""
    now = "on" if runs else "off"
    if wanted is None or wanted == runs:
        return ok(now)
    later = "on" if wanted else "off"
    return advice(f"{now}, and {later} from the next start on (wsl.conf)", AGAIN)


def boot_command(command: str, *, systemd: bool) -> Finding | None:
    """Judge ``[boot] command``: with systemd on, starting Docker there breaks its service."""
    if "docker" not in command:
        return None
    line = f"wsl.conf has [boot] command={command}"
    fix = "remove that line from /etc/wsl.conf"
    if systemd:
        return problem(f"{line}, and systemd=true: the two break `service docker start`", fix)
    return advice(f"{line}: gpud then only watches that dockerd", f"{fix}; gpud starts dockerd")
