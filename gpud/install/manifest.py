"""Manifest of an installation: one line for everything that was made, written before it is made."""

from __future__ import annotations

from gpud.install.console import InstallError
from gpud.install.places import MANIFEST, PACKAGE, fresh


def lines() -> list[str]:
    """Return all lines in their order; none where there is no manifest."""
    try:
        return MANIFEST.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except (FileNotFoundError, PermissionError):
        return []


def values(kind: str) -> list[str]:
    """Return the values of one kind."""
    return [line.partition(" ")[2] for line in lines() if line.startswith(f"{kind} ")]


def note(line: str) -> None:
    """Add a line that is not there yet."""
    if line not in lines():
        _write([*lines(), line])


def forget(line: str) -> None:
    """Take a line out."""
    _write([each for each in lines() if each != line])


def owner() -> str:
    """Return the command that installed what is here, and mends and upgrades it."""
    return next(iter(values("owner")), "deploy/install")


def refuse_package(command: str) -> None:
    """Leave to the Debian package what it installed. Errors: ``InstallError``."""
    if owner() == str(PACKAGE) != command and PACKAGE.exists():
        raise InstallError(
            "gpud was installed by its Debian package, and only that changes it",
            f"{PACKAGE} mends it, a newer package upgrades it, sudo apt-get remove gpud removes it",
        )


def own(command: str) -> None:
    """Note which command installs and upgrades what is here, in place of the one before."""
    if values("owner") != [command]:
        others = (each for each in lines() if not each.startswith("owner "))
        _write([*others, f"owner {command}"])


def _write(kept: list[str]) -> None:
    """Write all or nothing: the first half of a line may name a directory of somebody else's."""
    if not MANIFEST.parent.is_dir():
        MANIFEST.parent.mkdir(0o755)
        kept = [f"dir {MANIFEST.parent}", *kept]
    text, new = "".join(f"{each}\n" for each in kept), fresh(MANIFEST)
    new.write_text(text, encoding="utf-8", errors="surrogateescape")
    new.replace(MANIFEST)
