"""Source of the gpud that is to be installed: a checkout, or a wheel."""

from __future__ import annotations

import shutil
import zipfile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TypeAlias

    Source: TypeAlias = "Checkout | Wheel"

FILES: Final = {
    "requirements.txt": "deploy/requirements.txt",
    "requirements-pip.txt": "deploy/requirements-pip.txt",
    "requirements-apprise.txt": "deploy/requirements-apprise.txt",
    "gpud.toml": "deploy/gpud.toml",
    "secrets.toml": "deploy/secrets.toml",
    "gpud-command": "deploy/gpud-command",
    "gpud-start": "deploy/gpud-start",
    "gpud.1": "deploy/gpud.1",
    "uninstall": "deploy/uninstall",
    "bashrc.snippet": "bashrc.snippet",
    "zshrc.snippet": "deploy/zshrc.snippet",
    "config.fish.snippet": "deploy/config.fish.snippet",
    "sudoers.snippet": "sudoers.snippet",
    "gpud-wsl.service": "deploy/gpud-wsl.service",
    "CHANGELOG.md": "CHANGELOG.md",
}
"""What an installation puts in place beside the package, and where a checkout has it."""
INSIDE: Final = "gpud/install/files"
"""Where a wheel has it."""
FOLDERS: Final = ("gpud", "docs/runbooks")
DETAILS: Final = ("pyproject.toml", "README.md", "LICENSE")
"""What a wheel is made from in a checkout, beside ``FILES``."""


class Checkout:
    """A checkout, which root runs when told to: that is what ``sudo deploy/install`` means."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, name: str) -> bytes:
        """Return one of ``FILES``."""
        return (self.root / FILES[name]).read_bytes()

    def parts(self) -> Iterator[tuple[str, bytes]]:
        """Return everything that the tree is made from."""
        for name in FILES:
            yield name, self.read(name)
        for name in (*DETAILS, *FOLDERS):
            for path in (self.root / name, *sorted((self.root / name).rglob("*"))):
                if path.is_file() and path.suffix != ".pyc":
                    yield str(path.relative_to(self.root)), path.read_bytes()

    def installer(self) -> dict[str, bytes]:
        """Return the modules of this package."""
        paths = [self.root / "gpud/__init__.py", *sorted((self.root / "gpud/install").glob("*.py"))]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in paths}

    def prepared(self, folder: Path) -> Path:
        """Return a copy of what the wheel is made from."""
        copy = folder / "checkout"
        ignored = shutil.ignore_patterns("__pycache__")
        for name in FOLDERS:
            shutil.copytree(self.root / name, copy / name, ignore=ignored)
        (copy / "deploy").mkdir()
        for name in (*DETAILS, *FILES.values()):
            shutil.copyfile(self.root / name, copy / name)
        return copy


class Wheel:
    """A wheel of gpud's, in a folder that only who installs can write."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes:
        """Return one of ``FILES``."""
        with zipfile.ZipFile(self.path) as archive:
            return archive.read(f"{INSIDE}/{name}")

    def parts(self) -> Iterator[tuple[str, bytes]]:
        """Return everything in it but its list of contents."""
        with zipfile.ZipFile(self.path) as archive:
            for name in sorted(archive.namelist()):
                if not name.endswith("/RECORD"):
                    yield name, archive.read(name)

    def installer(self) -> dict[str, bytes]:
        """Return the modules of this package."""
        return {
            name: text
            for name, text in self.parts()
            if name == "gpud/__init__.py" or name.rpartition("/")[0] == "gpud/install"
        }

    def prepared(self, folder: Path) -> Path:
        """Return itself."""
        del folder
        return self.path
