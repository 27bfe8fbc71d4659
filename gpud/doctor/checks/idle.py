"""When Windows stops the distribution and the virtual machine although gpud runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpud.core import wsl
from gpud.doctor.finding import Finding, advice, combined, ok, unknown

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = "idle time-outs"
ORDER = 40
SUMMARY = "`instanceIdleTimeout` and `vmIdleTimeout` of Windows' .wslconfig against what keeps us"
INSTANCE_MS, VM_MS = 15_000, 60_000
FIX = "in Windows' %UserProfile%\\.wslconfig: [general] instanceIdleTimeout=-1; wsl --shutdown"
MOST_USERS = 64


def look(machine: Machine) -> Finding:
    """Read the settings of the Windows user; a drive that hangs is cut off by the runner."""
    if machine.wsl != "2":
        return ok("not WSL 2: nothing stops this machine")
    held = wsl.switch(machine.wsl_conf, "interop", "enabled") is not False and not machine.systemd
    if wsl.switch(machine.wsl_conf, "automount", "enabled") is False:
        return unknown("automount is off: Windows' .wslconfig cannot be read from here")
    users = f"{machine.mounts_at}/c/Users"
    names = machine.names(users)
    if not names:
        return unknown(f"{users} is not there: Windows' .wslconfig cannot be read from here")
    texts = {
        name: text
        for name in _likely(machine, names)
        if (text := machine.text(f"{users}/{name}/.wslconfig")) is not None
    }
    if not texts:
        return judged({}, "no .wslconfig: the defaults", held=held)
    return combined(
        *(
            judged(wsl.sections(text), f"{name}'s .wslconfig", held=held)
            for name, text in texts.items()
        )
    )


def _likely(machine: Machine, names: tuple[str, ...]) -> tuple[str, ...]:
    """Name the Windows user whose folders are on the PATH that WSL made, else all there are."""
    pattern = re.escape(f"{machine.mounts_at}/c/Users/") + "([^/:]+)/"
    found = re.search(pattern, machine.environ.get("PATH", ""))
    return (found[1],) if found and found[1] in names else names[:MOST_USERS]


def judged(said: wsl.Sections, origin: str, *, held: bool) -> Finding:
    """Judge the two time-outs; ``held`` says that a daemon of a shell keeps the distribution.

    Units: milliseconds in the file, negative for never. Source: WSL 2.5.9 and later.
    """
    instance = _milliseconds(said, "general", "instanceidletimeout", INSTANCE_MS)
    machine = _milliseconds(said, "wsl2", "vmidletimeout", VM_MS)
    if instance is None or machine is None:
        key = "instanceIdleTimeout" if instance is None else "vmIdleTimeout"
        return advice(f"{origin}: {key} is no number", "give it milliseconds, or -1 for never")
    evidence = f"{origin}: distribution {_shown(instance)}, virtual machine {_shown(machine)}"
    if instance < 0 <= machine and not held:
        evidence += " (which starts when no distribution is left)"
    if instance < 0 or held:
        return ok(evidence + ("; gpud keeps it up until then" if held and instance >= 0 else ""))
    if machine < 0:
        evidence += "; vmIdleTimeout alone does not keep the distribution"
    return advice(f"{evidence}; nothing keeps it up when the last terminal is closed", FIX)


def _milliseconds(said: wsl.Sections, section: str, key: str, default: int) -> int | None:
    text = said.get(section, {}).get(key)
    if text is None:
        return default
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,12}", text) else None


def _shown(milliseconds: int) -> str:
    return "never stops" if milliseconds < 0 else f"stops after {milliseconds / 1000:g} s idle"
