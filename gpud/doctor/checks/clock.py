"""The clocks: which source, who else sets them, and how often they jumped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpud.doctor.finding import Finding, advice, combined, ok, problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.clock import Instant
    from gpud.core.report import RootReport
    from gpud.doctor.machine import Machine

TITLE = "clock"
ORDER = 200
SUMMARY = "the clock source, a second time daemon beside WSL's, jumps that the agent counted"
SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
DAEMONS = ("chronyd", "ntpd", "ntpd-ng", "systemd-timesyn", "openntpd")
OLDEST_S = 1_735_689_600.0
"""2025-01-01: a wall clock before that was never set."""
OFTEN_PER_HOUR = 12.0
LONG_ENOUGH_S = 600.0
JUMPED_S = 5.0


def look(machine: Machine) -> Finding:
    """Compare what can be compared from here; WSL's own chronyd is out of our sight."""
    source = (machine.text(SOURCE) or "").strip()
    names = {name for _, name in machine.processes()} if machine.wsl == "2" else set()
    return combined(
        wall(machine.now, machine.root),
        ok(f"source {source or 'unknown'}{_uptime(machine.text('/proc/uptime') or '')}"),
        daemons([name for name in DAEMONS if name in names]),
        jumps(machine.agent, machine.now),
    )


def wall(now: Instant, report: RootReport | None) -> Finding | None:
    """Judge the wall clock by itself, and against what root saw on both clocks seconds ago."""
    if now.wall_s < OLDEST_S:
        return problem(f"the wall clock says {now.wall_s:.0f} s since 1970", "sudo hwclock -s")
    if report is None:
        return None
    offset_s = (now.wall_s - report.written_s) - (now.mono_s - report.beat_s)
    if abs(offset_s) <= JUMPED_S:
        return None
    return advice(
        f"the wall clock moved by {offset_s:+.0f} s just now",
        "usual after sleep; if it stays wrong: sudo hwclock -s",
    )


def daemons(running: list[str]) -> Finding | None:
    """WSL runs a chronyd of its own against the host's clock; a second one fights it."""
    if not running:
        return None
    return advice(
        f"{', '.join(running)} runs beside WSL's own time service, and they fight",
        f"sudo service {running[0].replace('systemd-timesyn', 'systemd-timesyncd')} stop",
    )


def jumps(document: Mapping[str, Any], now: Instant) -> Finding | None:
    """Judge how often the agent saw wall and monotonic time part, since it started."""
    counters = document.get("counters")
    counted = counters.get("clock_jumps") if isinstance(counters, dict) else None
    started_s = document.get("started_s")
    if not isinstance(counted, int) or not isinstance(started_s, int | float):
        return None
    lasted_s = max(now.wall_s - started_s, 0.0)
    evidence = f"{counted} jumps in {lasted_s / 3600:.1f} h"
    if lasted_s >= LONG_ENOUGH_S and counted / (lasted_s / 3600) >= OFTEN_PER_HOUR:
        return advice(f"{evidence}: the host pauses this machine", "from Windows: wsl --update")
    return ok(evidence)


def _uptime(text: str) -> str:
    try:
        return f", up {float(text.split(maxsplit=1)[0]) / 3600:.1f} h"
    except (ValueError, IndexError):
        return ""
