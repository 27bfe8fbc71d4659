"""Places of an installed gpud."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TREE: Final = Path("/opt/gpud")
COMMAND: Final = Path("/usr/local/bin/gpud")
CONFIG_DIR: Final = Path("/etc/gpud")
MANIFEST: Final = CONFIG_DIR / "manifest"
"""What was made, in order; root's own, unlike the state."""
STATE_DIR: Final = Path("/var/lib/gpud")
LOG_DIR: Final = Path("/var/log/gpud")
INSTALL_LOG: Final = LOG_DIR / "install.log"
RUN_DIR: Final = Path("/run/gpud")
AGENTS: Final = (STATE_DIR, LOG_DIR / "agent")
"""What user gpud writes into, and what outlives it."""
RULE: Final = Path("/etc/sudoers.d/gpud")
PEOPLE: Final = "gpud-users"
"""The group of who may ask the agent; gpud itself is the service's own."""
MANPAGE: Final = Path("/usr/local/share/man/man1/gpud.1")
COMPLETION: Final = {
    "bash": Path("/usr/local/share/bash-completion/completions/gpud"),
    "zsh": Path("/usr/local/share/zsh/site-functions/_gpud"),
    "fish": Path("/usr/local/share/fish/vendor_completions.d/gpud.fish"),
}
PACKAGE: Final = Path("/usr/lib/gpud/install")
"""Installer of the Debian package, there as long as the package is."""
UNIT: Final = Path("/etc/systemd/system/gpud-wsl.service")
"""Not gpud.service, which is another project's (ADR 6)."""
UNIT_ENABLED: Final = UNIT.parent / "multi-user.target.wants" / UNIT.name
SYSTEMD: Final = Path("/run/systemd/system")
"""Is there where systemd is the first process."""
LOCK: Final = Path("/run/gpud-install.lock")


def fresh(path: Path) -> Path:
    """Return the name of what is not in place yet; a dot makes sudo skip such a file."""
    return path.with_name(f"{path.name}.gpud-new")


BUILD: Final = TREE.with_name("gpud.gpud-build")
"""Beside the tree: what builds it."""
