"""Check of the group whose members may ask gpud's agent: history, alerts, probe, logs."""

from __future__ import annotations

from gpud.core.settings import GROUP
from gpud.doctor.finding import Finding, advice, ok, problem
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
    group = machine.account("/etc/group", GROUP)
    if group is None:
        return problem(f"there is no group {GROUP}", "run deploy/install again")
    user = machine.account("/etc/passwd", person.name)
    if person.name in group[-1].split(",") or (user is not None and user[3] == group[2]):
        return ok(f"you are in the group {GROUP}")
    fix = f"sudo usermod -aG {GROUP} {person.name} (works at once in shells that are open)"
    return advice(f"you are not in the group {GROUP}", fix)
