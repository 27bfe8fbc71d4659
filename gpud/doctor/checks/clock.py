"""Check of the clocks: the source, a second time daemon, and jumps."""

from __future__ import annotations

from gpud.doctor.finding import Finding, advice, check, combined, ok, problem
from gpud.doctor.machine import Machine

SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
DAEMONS = ("chronyd", "ntpd", "ntpd-ng", "systemd-timesyn", "openntpd")
OLDEST_S = 1_735_689_600.0
"""2025-01-01: a wall clock before that was never set."""
MANY_PER_HOUR = 12.0
LONG_ENOUGH_S = 600.0
JUMP_S = 5.0


@check(200, "clock")
def clock(machine: Machine) -> Finding:
    """Clock source, a second time daemon beside WSL's, jumps that the agent counted."""
    source = (machine.text(SOURCE) or "").strip() or "unknown"
    source_and_uptime = ok(f"source {source}{_uptime(machine)}")
    return combined(_wall(machine), source_and_uptime, _daemons(machine), _jumps(machine))


def _wall(machine: Machine) -> Finding | None:
    """Check the wall clock by itself, and against root's reading of both clocks seconds ago."""
    now, report = machine.now, machine.root
    if now.wall_s < OLDEST_S:
        return problem(f"the wall clock says {now.wall_s:.0f} s since 1970", "sudo hwclock -s")
    if report is None:
        return None
    offset_s = (now.wall_s - report.written_s) - (now.mono_s - report.beat_s)
    if abs(offset_s) <= JUMP_S:
        return None
    fix = "usual after sleep; if it stays wrong: sudo hwclock -s"
    return advice(f"the wall clock moved by {offset_s:+.0f} s just now", fix)


def _daemons(machine: Machine) -> Finding | None:
    """Find a time daemon that fights the one that WSL runs against the host's clock."""
    if machine.wsl != "2":
        return None
    names = set(machine.process_names())
    running = [name for name in DAEMONS if name in names]
    if not running:
        return None
    service = running[0].replace("systemd-timesyn", "systemd-timesyncd")
    evidence = f"{', '.join(running)} runs beside WSL's own time service, and they fight"
    return advice(evidence, f"sudo service {service} stop")


def _jumps(machine: Machine) -> Finding | None:
    """Check how often wall and monotonic time parted since the agent started."""
    if machine.agent.counters is None:
        return None
    jumps = machine.agent.counters.clock_jumps
    hours = max(machine.now.wall_s - machine.agent.started_s, 1.0) / 3600
    evidence = f"{jumps} jumps in {hours:.1f} h"
    if hours * 3600 >= LONG_ENOUGH_S and jumps / hours >= MANY_PER_HOUR:
        return advice(f"{evidence}: the host pauses this machine", "from Windows: wsl --update")
    return ok(evidence)


def _uptime(machine: Machine) -> str:
    try:
        seconds = float((machine.text("/proc/uptime") or "").split(maxsplit=1)[0])
    except (ValueError, IndexError):
        return ""
    return f", up {seconds / 3600:.1f} h"
