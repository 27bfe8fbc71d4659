"""Whether this person may ask gpud's agent: history, alerts, baseline, probe, logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.core.settings import GROUP
from gpud.doctor.finding import Finding, advice, ok, problem

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = GROUP
ORDER = 115
SUMMARY = "whether you are in the group that may ask gpud without a password"


def look(machine: Machine) -> Finding:
    """Look into the group database, as the agent does at each connection."""
    person = machine.person
    if not machine.installed:
        return ok("a development run serves its own user")
    if person.uid == 0:
        return ok("root may ask")
    group = _entry(machine, "/etc/group", GROUP)
    if group is None:
        return problem(f"there is no group {GROUP}", "run deploy/install again")
    user = _entry(machine, "/etc/passwd", person.name)
    if person.name in group[-1].split(",") or (user is not None and user[3] == group[2]):
        return ok(f"you are in the group {GROUP}")
    fix = f"sudo usermod -aG {GROUP} {person.name} (works at once in shells that are open)"
    return advice(f"you are not in the group {GROUP}", fix)


def _entry(machine: Machine, path: str, name: str) -> list[str] | None:
    """Give the fields of a user or group; each has at least four."""
    for line in (machine.text(path) or "").splitlines():
        fields = line.split(":")
        if fields[0] == name and len(fields) >= len(("name", "password", "uid", "gid")):
            return fields
    return None
