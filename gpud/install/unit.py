"""Unit of systemd that starts gpud at boot: made where it was chosen, and other projects' seen."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.install import manifest
from gpud.install.console import InstallError, output
from gpud.install.places import STATE_DIR, SYSTEMD, UNIT, UNIT_ENABLED
from gpud.install.setup import Done, Step, removed

if TYPE_CHECKING:
    from gpud.install.console import Console
    from gpud.install.setup import Plan, Setup

OTHERS: Final = [
    Path(place, "systemd/system/gpud.service")
    for place in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
]
OTHER: Final = "belongs to another project that is called gpud"
OURS: Final = frozenset({"gpud.db", "machine-id", "cuda-cache"})
"""Of these the state directory has at least one once an agent has run."""


def check(setup: Setup) -> None:
    """Stop where another project of this name is, or systemd is not. Errors: ``InstallError``."""
    elsewhere = "keep one of the two on a machine: remove that one first"
    for path in filter(Path.exists, OTHERS):
        raise InstallError(f"{path} {OTHER}", elsewhere)
    check_state(elsewhere)
    if setup.options.systemd and not SYSTEMD.is_dir():
        raise InstallError(
            "systemd is not the first process here, so that it starts no unit",
            "install without --systemd: a shell starts gpud. In WSL, systemd=true below [boot] in"
            " /etc/wsl.conf and wsl --shutdown switch systemd on",
        )


def check_state(fix: str) -> None:
    """Stop where the state is another project's. Errors: ``InstallError``."""
    with suppress(OSError):  # for root to look at
        names = {path.name for path in STATE_DIR.iterdir()}
        if names and not names & OURS and not manifest.lines():
            raise InstallError(f"{STATE_DIR} {OTHER}: {min(names)!a} is not ours", fix)


def steps(setup: Setup) -> Plan:
    """Plan the unit, or that it goes."""
    noted = f"file {UNIT}" in manifest.lines()
    if noted and setup.options.no_systemd:
        yield Step(f"{UNIT} goes", lambda: _take_away(setup.console))
    elif noted or setup.options.systemd:
        text = setup.source.read(UNIT.name)
        made = [*setup.file(UNIT, text), *setup.link(UNIT_ENABLED, UNIT, "Move it away")]
        yield from made
        if SYSTEMD.is_dir() and not all(isinstance(item, Done) for item in made):
            yield Step("systemctl daemon-reload", lambda: reload(setup.console))


def waits() -> bool:
    """Return whether systemd is to run gpud and does not."""
    active = ("systemctl", "is-active", "--quiet", UNIT.name)
    return SYSTEMD.is_dir() and UNIT_ENABLED.exists() and output(*active) is None


def stop(console: Console) -> None:
    """Stop gpud where systemd runs it."""
    if SYSTEMD.is_dir() and UNIT_ENABLED.exists():
        console.run("systemctl", "stop", UNIT.name)


def reload(console: Console) -> None:
    """Let systemd read its units again, where it runs."""
    if SYSTEMD.is_dir():
        console.run("systemctl", "daemon-reload")


def _take_away(console: Console) -> None:
    stop(console)
    removed(UNIT_ENABLED, UNIT)
    reload(console)
    for line in (f"link {UNIT_ENABLED}", f"file {UNIT}"):
        manifest.forget(line)
