"""Options of the installation and of the removal, for ``gpud`` and the scripts of ``deploy``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Row = tuple[tuple[str, ...], dict[str, Any]]
Table = tuple[Row, ...]


def _flag(name: str, text: str) -> Row:
    return (name,), {"action": "store_true", "help": text}


def _value(name: str, metavar: str, text: str, **how: Any) -> Row:  # noqa: ANN401  # as argparse
    return (name,), {"metavar": metavar, "help": text, **how}


DRY: Final = _flag("--dry-run", "say what would be done and change nothing")
WHEELHOUSE: Final = _value(
    "--wheelhouse", "DIR", "install Python packages from DIR, without the network"
)
INSTALL: Final[Table] = (
    _value("--user", "NAME", "whose shell starts gpud (default: who calls this)"),
    _flag("--no-bashrc", "leave the shell's files alone"),
    _flag("--no-docker", "do not install Docker where there is none"),
    _flag("--gpu-containers", "let containers use the GPU, and ask first"),
    _flag("--no-start", "install only"),
    _flag("--systemd", "start gpud at boot, as a unit of systemd"),
    _flag("--no-systemd", "take that unit away again"),
    _value(
        "--with",
        "EXTRA",
        "also apprise, for alerts; stays over upgrades",
        choices=("apprise",),
        dest="with_extra",
    ),
    WHEELHOUSE,
    _value("--make-wheelhouse", "DIR", "fill such a directory, and stop"),
    DRY,
)
UNINSTALL: Final[Table] = (
    _flag("--purge", "remove history, logs and changed settings as well"),
    _flag("--docker", "stop the dockerd that gpud started, too"),
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


class OptionParser(argparse.ArgumentParser):
    """Says in one line what is wrong, then the usage."""

    def error(self, message: str) -> NoReturn:
        """Print both on stderr and end with 2."""
        print(f"error: {ascii(message)[1:-1]}\n", file=sys.stderr)
        self.print_usage(sys.stderr)
        self.exit(2)


def read(verb: str, program: str, words: Sequence[str]) -> argparse.Namespace:
    """Read the words after a verb. Errors: ``SystemExit`` with 2."""
    parser = OptionParser(prog=program, description=TEXTS[verb], allow_abbrev=False)
    for names, how in INSTALL if verb == "install" else UNINSTALL:
        parser.add_argument(*names, **how)
    return parser.parse_args(words)
