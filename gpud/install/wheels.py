"""Wheels: a folder of them for a machine without network, and the pip that installs them."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
import zipfile
from typing import TYPE_CHECKING

from gpud.install import pythons
from gpud.install.console import InstallError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gpud.install.console import Console
    from gpud.install.source import Source

    Words = list[str | Path]

QUIET = ("--disable-pip-version-check", "--no-input")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()


def listed(folder: Path) -> dict[Path, str | None]:
    """Return the wheels of a folder, of which no hash is known."""
    return dict.fromkeys(sorted(folder.glob("*.whl")))


def pinned_pip(wheels: Iterable[Path], source: Source) -> Path | None:
    """Return the pinned pip among some wheels, its hash checked."""
    pins = source.read("requirements-pip.txt").decode()
    for wheel in wheels:
        if wheel.name.startswith("pip-") and f"--hash=sha256:{digest(wheel)}" in pins:
            return wheel
    return None


def copied(wheels: Mapping[Path, str | None], folder: Path) -> Path:
    """Copy wheels, so that nobody exchanges one between its check and its use.

    Errors: ``InstallError`` where a copy does not have the hash that is known of it.
    """
    folder.mkdir(0o700)
    for wheel, known in wheels.items():
        shutil.copyfile(wheel, folder / wheel.name)
        if known is not None and digest(folder / wheel.name) != known:
            raise InstallError(f"{wheel} has changed since it was checked", "run this again")
    return folder


def make_pip(console: Console, python: Path, folder: Path, wheel: Path | None) -> Words:
    """Make a pip that is thrown away afterwards, from its wheel if there is one; how to run it."""
    if wheel is not None:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        return [python, "-I", folder / "pip"]
    console.run(python, "-I", "-m", "venv", "--without-pip", "--", folder)
    console.run(folder / "bin/python", "-I", "-m", "ensurepip")
    return [folder / "bin/python", "-I", "-m", "pip"]


def pip_of(console: Console, python: Path, folder: Path) -> Words:
    """Return the words that run a pip for a Python: ours, or one made in a folder.

    Errors: ``InstallError``.
    """
    if sys.prefix != sys.base_prefix and importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-I", "-m", "pip", "--python", python]  # of one's own environment
    why = f"{console.log} says why (the module ensurepip is in Debian's python3-venv)"
    found: Words = []
    console.step("tools", why, lambda: found.extend(make_pip(console, python, folder, None)))
    return found


def download(console: Console, pip: Words, folder: Path, *what: str | Path) -> None:
    """Download wheels into a folder, as the caller. Errors: ``InstallError``."""
    words = ("download", "--no-deps", "--only-binary", ":all:", "-d", folder, *what)
    console.step(
        f"wheels into {folder}",
        "the lines above say why; for want of a network check that it reaches the package index",
        lambda: console.run(*pip, *QUIET, *words, env=os.environ),
    )


def fill(
    console: Console, python: Path, source: Source, names: Iterable[str], folder: Path
) -> None:
    """Download the pinned packages of requirement files, and pip, for one Python.

    Errors: ``InstallError``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options: Words = ["--require-hashes"]
    for name in (*names, "requirements-pip.txt"):
        copy = console.log.with_name(name)
        copy.write_bytes(source.read(name))
        options += ["-r", copy]
    pip = pip_of(console, python, console.log.with_name("tools"))
    download(console, pip, folder, *options)


def make_wheelhouse(
    console: Console, source: Source, names: Iterable[str], folder: Path, command: str
) -> None:
    """Fill a folder for machines without network. Errors: ``InstallError``."""
    python = pythons.find() or pythons.own()
    fill(console, python, source, names, folder)
    console.say(
        f"{command} --wheelhouse {folder} needs no network for Python packages, on machines with"
        f" Python {pythons.version(python)} of this kind."
    )
