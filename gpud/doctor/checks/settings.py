"""Whether gpud can read what a person has set, and who else can read what is secret in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpud import settings_files
from gpud.core.errors import ConfigError
from gpud.core.settings import config_path
from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = "settings"
ORDER = 7
SUMMARY = "gpud.toml can be read, says nothing that gpud does not know, and shows nobody a secret"


def look(machine: Machine) -> Finding:
    """Tell what reading them brought; with a broken file the other checks go by the defaults."""
    home = machine.settings.home
    path = Path(config_path(home))
    if machine.trouble is not None:
        if isinstance(machine.trouble.__cause__, PermissionError):
            words = "is not for you to read: the other checks go by the defaults"
            return unknown(f"{path} {words}", "sudo gpud doctor")
        fix = (
            "mend that line; `gpud config check` reads the file again, `sudo gpud restart` uses it"
        )
        return problem(str(machine.trouble), machine.trouble.fix or fix)
    try:
        found = settings_files.exposed(path, home)
    except ConfigError as error:
        return problem(str(error), error.fix or "gpud config check says more")
    if found:
        return combined(*(advice(str(one), one.fix) for one in found))
    hidden = settings_files.unreadable_secrets(home)
    rest = "" if hidden is None else f"; {hidden} is for root and the agent to read"
    return ok(f"as in {path}, or as they are by default{rest}")
