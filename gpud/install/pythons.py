"""Pythons of a machine: root runs one for years, so never one that a user can change."""

from __future__ import annotations

import re
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.install.console import InstallError, output

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMES: Final = (
    *(f"/usr/bin/python3.{minor}" for minor in (14, 13, 12, 11)),
    "/usr/bin/python3",
    "/usr/local/bin/python3",
)
QUALIFIES: Final = "import sys; sys.exit(sys.version_info < (3, 11))"


def trusted(path: Path) -> bool:
    """Return whether nobody but root can change a file or a directory on the way to it."""
    real = path.resolve()
    facts = (each.stat() for each in (real, *real.parents))
    return not any(one.st_uid or one.st_mode & (stat.S_IWGRP | stat.S_IWOTH) for one in facts)


def find(wheels: Iterable[Path] = ()) -> Path | None:
    """Return root's Python with its version: what python3 is changes with the distribution.

    Where wheels are for certain versions, as numpy's are, it is one of those.
    """
    fits = {tag[1] for path in wheels if (tag := re.search(r"-cp3(\d+)-cp3\1-", path.name))}
    for path in map(Path, NAMES):
        if not (path.exists() and trusted(path)) or output(path, "-I", "-c", QUALIFIES) is None:
            continue
        if not fits or version(path).removeprefix("3.") in fits:
            return path.resolve()
    return None


def of_root(wheels: Iterable[Path] = ()) -> Path:
    """Return what ``find`` does. Errors: ``InstallError`` where there is none."""
    if (python := find(wheels)) is None:
        if wheels and find() is not None:
            raise InstallError(
                "the wheelhouse has nothing for a Python of this machine",
                "make it anew with this Python's version",
            )
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
