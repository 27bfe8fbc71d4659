"""Whether gpud can read what a person has set, and who else can read what is secret in it."""

from __future__ import annotations

import grp
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.core.masking import secrets
from gpud.core.settings import config_path
from gpud.doctor.finding import Finding, advice, ok, problem, unknown

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = "settings"
ORDER = 7
SUMMARY = "gpud.toml can be read, says nothing that gpud does not know, and shows nobody a secret"
SYSTEM_USER = "gpud"


def look(machine: Machine) -> Finding:
    """Tell what reading them brought; with a broken file the other checks go by the defaults."""
    path = Path(config_path(machine.settings.home))
    if machine.trouble is not None:
        if isinstance(machine.trouble.__cause__, PermissionError):
            words = "is not for you to read: the other checks go by the defaults"
            return unknown(f"{path} {words}", "sudo gpud doctor")
        fix = (
            "mend that line; `gpud config check` reads the file again, `sudo gpud restart` uses it"
        )
        return problem(str(machine.trouble), machine.trouble.fix or fix)
    return exposed(machine, path) or ok(f"as in {path}, or as they are by default")


def exposed(machine: Machine, path: Path) -> Finding | None:
    """Judge whether anybody on the machine may read hashes, tokens or passwords in the file."""
    kept = secrets(machine.settings)
    try:
        loose = bool(kept) and bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return None
    if not loose:
        return None
    fix = f"chmod 600 {path}"
    if machine.installed:
        fix = f"sudo chown root:{group(machine)} {path} && sudo chmod 640 {path}"
    return advice(f"everybody may read {path}, and {' and '.join(kept)} are secret in it", fix)


def group(machine: Machine) -> str:
    """Name the group through which the agent reads the file: its user's first one, or its id."""
    try:
        gid = Path(machine.settings.run_dir, "agent").stat().st_gid
    except OSError:
        return machine.settings.agent.user or SYSTEM_USER
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
