"""The library file: loaded by path, and noticed when another one takes its place on disk."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from gpud.core import advice
from gpud.core.errors import TelemetryError

if TYPE_CHECKING:
    from gpud.core.advice import Platform

NAME = "libnvidia-ml"
"""What the file is called, and in WSL the one that its loader opens in the driver's folder."""

Identity: TypeAlias = tuple[int, int, int, int] | None
"""Device, inode, modification time and size of a file; None for none."""


@dataclass(frozen=True, slots=True)
class Library:
    """A loaded library: what exports its functions, and the files it consists of."""

    exports: ctypes.CDLL
    files: dict[str, Identity]

    def replaced(self) -> bool:
        """Return whether another file lies where one was loaded from, or none."""
        return any(_identity(path) != identity for path, identity in self.files.items())

    def watched(self) -> Library:
        """Return it with the files that it consists of by now: WSL's opens another when asked."""
        return Library(self.exports, {**self.files, **_mapped(), **self.files})

    @property
    def real(self) -> str:
        """The path the loader really opened; the last one is the one that does the work."""
        return next(reversed(self.files), "")


def load(candidates: list[str], where: Platform) -> Library:
    """Open the library by the first path that works, so that ``pynvml`` finds it by its SONAME.

    Errors: ``TelemetryError`` with the loader's own words for every path tried.
    """
    words = []
    for path in candidates:
        try:
            exports = ctypes.CDLL(path)
        except OSError as error:
            words.append(str(error))
            continue
        # A link may be turned to another file while the old one stays.
        linked = {path: _identity(path)} if path.startswith("/") else {}
        return Library(exports, {**linked, **_mapped()})
    fix = advice.words(advice.Situation.LIBRARY_MISSING, where)
    if len(candidates) == 1:  # the configured path: no driver mends that
        fix = "correct [nvml] library in gpud.toml, or leave it out"
    raise TelemetryError("; ".join(dict.fromkeys(words)), reason="library_missing", fix=fix)


def _mapped() -> dict[str, Identity]:
    """Return the files of NVML that this process has mapped. Source: /proc/self/maps."""
    lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    paths = (line.split(maxsplit=5)[5:] for line in lines)
    names = dict.fromkeys(path[0].removesuffix(" (deleted)") for path in paths if path)
    return {path: _identity(path) for path in names if Path(path).name.startswith(NAME)}


def _identity(path: str) -> Identity:
    try:
        file = Path(path).stat()
    except OSError:
        return None
    return file.st_dev, file.st_ino, file.st_mtime_ns, file.st_size
