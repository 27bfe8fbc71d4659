"""Options of the installation and of the removal, for ``gpud`` and the scripts of ``deploy``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Option(NamedTuple):
    """One argument, as ``add_argument`` takes it."""

    names: Sequence[str]
    how: Mapping[str, Any]


def flag(names: str, text: str) -> Option:
    """Make an option without a value; its names are separated by blanks."""
    return Option(names.split(), {"action": "store_true", "help": text})


def value(names: str, metavar: str, text: str, **how: Any) -> Option:  # noqa: ANN401  # as argparse
    """Make an option with a value, or an argument without a name of its own."""
    return Option(names.split(), {"metavar": metavar, "help": text, **how})


DRY: Final = flag("--dry-run", "say what would be done and change nothing")
INSTALL: Final[tuple[Option, ...]] = (
    value("--user", "NAME", "whose shell starts gpud (default: who calls this)"),
    flag("--no-bashrc", "leave the shell's files alone"),
    flag("--no-docker", "do not install Docker where there is none"),
    flag("--gpu-containers", "let containers use the GPU, and ask first"),
    flag("--no-start", "install only"),
    flag("--systemd", "start gpud at boot, as a unit of systemd"),
    flag("--no-systemd", "take that unit away again"),
    value(
        "--with",
        "EXTRA",
        "also apprise, for alerts; stays over upgrades",
        choices=("apprise",),
        dest="with_extra",
    ),
    value("--wheelhouse", "DIR", "install Python packages from DIR, without the network"),
    value("--make-wheelhouse", "DIR", "fill such a directory, and stop"),
    DRY,
)
UNINSTALL: Final[tuple[Option, ...]] = (
    flag("--purge", "remove history, logs and changed settings as well"),
    flag("--docker", "stop the dockerd that gpud started, too"),
    DRY,
)
TEXTS: Final[Mapping[str, str]] = {
    "install": "Installs gpud below /opt/gpud, lets one user's shell start it without a password,"
    " and starts it. Run it again to upgrade or to mend: gpud restarts; dockerd and your containers"
    " do not. Needs root, and asks sudo for it; --dry-run needs none. pip reads /etc/pip.conf and"
    " nothing of your environment. docs/install.md lists what is made.",
    "uninstall": "Stops gpud and removes what the installation made. dockerd and your containers"
    " keep running, and the Debian packages that were installed stay. The history in"
    " /var/lib/gpud, the logs and a gpud.toml that you changed stay too.",
}


def read(verb: str, program: str, words: Sequence[str]) -> argparse.Namespace:
    """Read the words after a verb. Errors: ``SystemExit`` with 2."""
    parser = argparse.ArgumentParser(prog=program, description=TEXTS[verb], allow_abbrev=False)
    for names, how in INSTALL if verb == "install" else UNINSTALL:
        parser.add_argument(*names, **how)
    return parser.parse_args(words)
