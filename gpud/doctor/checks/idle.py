"""Check of the idle time-outs after which Windows stops the distribution although gpud runs."""

from __future__ import annotations

import re

from gpud.core import wsl
from gpud.doctor.finding import Finding, advice, combined, ok, unknown
from gpud.doctor.machine import Machine

TITLE = "idle time-outs"
ORDER = 40
SUMMARY = "`instanceIdleTimeout` and `vmIdleTimeout` of Windows' .wslconfig against what keeps us"
MAY_BLOCK = True  # a Windows drive
INSTANCE_MS, VM_MS = 15_000, 60_000
"""WSL's defaults. Source: WSL 2.5.9 and later."""
FIX = "in Windows' %UserProfile%\\.wslconfig: [general] instanceIdleTimeout=-1; wsl --shutdown"
MOST_USERS = 64


def look(machine: Machine) -> Finding:
    """Read the settings of the Windows users."""
    if machine.wsl != "2":
        return ok("not WSL 2: nothing stops this machine")
    if machine.wsl_switch("automount", "enabled") is False:
        return unknown("automount is off: Windows' .wslconfig cannot be read from here")
    users = f"{machine.drives}/c/Users"
    names = machine.names(users)
    if not names:
        return unknown(f"{users} is not there: Windows' .wslconfig cannot be read from here")
    # Interop's init is a daemon of a shell, and keeps the distribution while there is no systemd.
    kept = machine.wsl_switch("interop", "enabled") is not False and not machine.systemd
    texts = {name: machine.text(f"{users}/{name}/.wslconfig") for name in _likely(machine, names)}
    findings = [
        _time_outs(wsl.sections(text), f"{name}'s .wslconfig", kept=kept)
        for name, text in texts.items()
        if text is not None
    ]
    return combined(*(findings or [_time_outs({}, "no .wslconfig: the defaults", kept=kept)]))


def _likely(machine: Machine, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the Windows user whose folders are on the PATH that WSL made, else all users."""
    pattern = re.escape(f"{machine.drives}/c/Users/") + "([^/:]+)/"
    user = re.search(pattern, machine.environ.get("PATH", ""))
    return (user[1],) if user and user[1] in names else names[:MOST_USERS]


def _time_outs(settings: wsl.Sections, origin: str, *, kept: bool) -> Finding:
    """Check both; ``kept``: interop keeps the distribution. Units: milliseconds, -1 for never."""
    instance = _milliseconds(settings, "general", "instanceidletimeout", INSTANCE_MS)
    machine = _milliseconds(settings, "wsl2", "vmidletimeout", VM_MS)
    if instance is None or machine is None:
        key = "instanceIdleTimeout" if instance is None else "vmIdleTimeout"
        return advice(f"{origin}: {key} is no number", "give it milliseconds, or -1 for never")
    evidence = f"{origin}: distribution {_words(instance)}, virtual machine {_words(machine)}"
    if instance < 0 <= machine and not kept:
        evidence += " (which starts when no distribution is left)"
    if instance < 0 or kept:
        return ok(evidence + ("; gpud keeps it up until then" if kept and instance >= 0 else ""))
    if machine < 0:
        evidence += "; vmIdleTimeout alone does not keep the distribution"
    return advice(f"{evidence}; nothing keeps it up when the last terminal is closed", FIX)


def _milliseconds(settings: wsl.Sections, section: str, key: str, default: int) -> int | None:
    text = settings.get(section, {}).get(key)
    if text is None:
        return default
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,12}", text) else None


def _words(milliseconds: int) -> str:
    return "never stops" if milliseconds < 0 else f"stops after {milliseconds / 1000:g} s idle"
