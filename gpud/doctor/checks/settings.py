"""Check of the settings files: gpud can read them, and their secrets are not for everybody."""

from __future__ import annotations

from pathlib import Path

from gpud import settings_files
from gpud.core.errors import ConfigError
from gpud.core.settings import config_path
from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown
from gpud.doctor.machine import Machine

TITLE = "settings"
ORDER = 7
SUMMARY = "gpud.toml can be read, says nothing that gpud does not know, and shows nobody a secret"
BROKEN = "mend that line; `gpud config check` reads the file again, `sudo gpud restart` uses it"


def look(machine: Machine) -> Finding:
    """Report an error of reading them, with which the other checks go by the defaults."""
    home = machine.settings.home
    path = Path(config_path(home))
    if error := machine.settings_error:
        if isinstance(error.__cause__, PermissionError):
            words = "is not for you to read: the other checks go by the defaults"
            return unknown(f"{path} {words}", "sudo gpud doctor")
        return problem(str(error), error.fix or BROKEN)
    try:
        exposed = settings_files.exposed(path, home)
    except ConfigError as error:
        return problem(str(error), error.fix or "gpud config check says more")
    if exposed:
        return combined(*(advice(str(file), file.fix) for file in exposed))
    hidden = settings_files.unreadable_secrets(home)
    rest = "" if hidden is None else f"; {hidden} is for root and the agent to read"
    return ok(f"as in {path}, or as they are by default{rest}")
