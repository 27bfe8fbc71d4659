"""Whether gpud can read what a person has set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.core.settings import config_path
from gpud.doctor.finding import Finding, ok, problem

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = "settings"
ORDER = 7
SUMMARY = "gpud.toml can be read and says nothing that gpud does not know"


def look(machine: Machine) -> Finding:
    """Tell what reading them brought; with a broken file the other checks go by the defaults."""
    if machine.trouble is not None:
        fix = (
            "mend that line; `gpud config check` reads the file again, `sudo gpud restart` uses it"
        )
        return problem(str(machine.trouble), machine.trouble.fix or fix)
    return ok(f"as in {config_path(machine.settings.home)}, or as they are by default")
