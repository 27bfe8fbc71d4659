"""Check of systemd: whether it runs now and after the next start, and who starts Docker at boot."""

from __future__ import annotations

from gpud.doctor.finding import Finding, advice, combined, ok, problem
from gpud.doctor.machine import Machine

TITLE = "systemd"
ORDER = 20
SUMMARY = "on or off now and at the next start, and a `[boot] command` that fights it"


def look(machine: Machine) -> Finding:
    """Compare what runs with what ``wsl.conf`` says of the next start."""
    now = "on" if machine.systemd else "off"
    if not machine.wsl:
        return ok(now)
    configured = machine.wsl_switch("boot", "systemd")
    if configured is None or configured == machine.systemd:
        state = ok(now)
    else:
        later = "on" if configured else "off"
        fix = "close every shell, then from Windows: wsl --terminate NAME"
        state = advice(f"{now}, and {later} from the next start on (wsl.conf)", fix)
    return combined(state, _boot_command(machine, systemd=bool(configured)))


def _boot_command(machine: Machine, *, systemd: bool) -> Finding | None:
    command = machine.wsl_conf.get("boot", {}).get("command", "")
    if "docker" not in command:
        return None
    line = f"wsl.conf has [boot] command={command}"
    fix = "remove that line from /etc/wsl.conf"
    if systemd:
        return problem(f"{line}, and systemd=true: the two break `service docker start`", fix)
    return advice(f"{line}: gpud then only watches that dockerd", f"{fix}; gpud starts dockerd")
