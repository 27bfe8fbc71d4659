"""Pythons of a machine: root runs one for years, so never one that a user can change."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Final

from gpud.install.console import InstallError, output

NAMES: Final = (
    "/usr/bin/python3.14",
    "/usr/bin/python3.13",
    "/usr/bin/python3.12",
    "/usr/bin/python3.11",
    "/usr/bin/python3",
    "/usr/local/bin/python3",
)
QUALIFIES: Final = "import sys; sys.exit(sys.version_info < (3, 11))"


def trusted(path: Path) -> bool:
    """Return whether nobody but root can change a file or a directory on the way to it."""
    real = path.resolve()
    for each in (real, *real.parents):
        facts = each.stat()
        if facts.st_uid != 0 or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
    return True


def find() -> Path | None:
    """Return root's Python with its version: what python3 is changes with the distribution."""
    for path in map(Path, NAMES):
        if path.exists() and trusted(path) and output(path, "-I", "-c", QUALIFIES) is not None:
            return path.resolve()
    return None


def of_root() -> Path:
    """Return what ``find`` does. Errors: ``InstallError`` where there is none."""
    if (python := find()) is None:
        raise InstallError(
            "no Python 3.11 or newer that belongs to root below /usr",
            "sudo apt-get install python3.11 python3.11-venv, or any newer one",
        )
    return python


def own() -> Path:
    """Return the Python that runs this, without the environment it may belong to."""
    return Path(sys.executable).resolve()


def has_ensurepip(python: Path) -> bool:
    """Return whether a Python can make a pip by itself."""
    return output(python, "-I", "-c", "import ensurepip") is not None


def version(python: Path) -> str:
    """Return ``3.11`` of a Python."""
    text = output(python, "-I", "-c", 'import sys; print("%d.%d" % sys.version_info[:2])')
    return (text or "3").strip()
