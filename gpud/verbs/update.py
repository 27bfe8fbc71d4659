"""``gpud update --check``: whether the index or a folder has a newer gpud, and what changes."""

from __future__ import annotations

import re
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import gpud
from gpud.arguments import OK
from gpud.core.errors import GpudError
from gpud.install import manifest, pythons, wheels
from gpud.install.console import Console, InstallError
from gpud.install.places import PACKAGE
from gpud.install.source import Wheel
from gpud.output import say

if TYPE_CHECKING:
    import argparse

    from gpud.place import Place

NAME: Final = re.compile(r"gpud-(\d+(?:\.\d+)*)-py3-none-any\.whl")
HEADING: Final = re.compile(r"^## \[(\d+(?:\.\d+)*)\]", re.MULTILINE)
NO_INDEX: Final = (
    "no public index has gpud yet: bring your checkout up to date, or name a folder of wheels, "
    "gpud update --check --wheelhouse DIR"
)
OWN_WHEEL: Final = "pipx upgrade gpud, or pip install the wheel; then gpud install"
WAYS: Final = {
    "deploy/install": "update the checkout, then deploy/install",
    str(PACKAGE): "sudo apt-get install ./FILE, the newer Debian package",
}
"""What upgrades an installation, by the command that made it."""
OWN_FOLDER: Final = "name a folder that has the wheel: gpud update --check --wheelhouse DIR"


def run(options: argparse.Namespace, _: Place) -> int:
    """Print what is newer. Errors: ``GpudError`` where there is nothing to compare with."""
    with tempfile.TemporaryDirectory(prefix="gpud-update-") as folder:
        place = _fetched(Path(folder)) if options.wheelhouse is None else Path(options.wheelhouse)
        wheels_by_number = {
            _number(name[1]): each
            for each in place.glob("*.whl")
            if (name := NAME.fullmatch(each.name))
        }
        if not wheels_by_number:
            raise GpudError(f"there is no wheel of gpud in {place}", fix=OWN_FOLDER)
        newest = max(wheels_by_number)
        try:
            changes = Wheel(wheels_by_number[newest]).read("CHANGELOG.md").decode()
        except (KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise GpudError(
                f"{wheels_by_number[newest].name} is not of this project", fix=OWN_FOLDER
            ) from error
    here = _number(gpud.__version__)
    if newest <= here:
        say(f"gpud {gpud.__version__} is the newest")
        return OK
    say(f"gpud {'.'.join(map(str, newest))} is there; this is {gpud.__version__}\n")
    say(news(changes, here, newest))
    way = WAYS.get("".join(manifest.values("owner")), OWN_WHEEL)
    say(f"To upgrade: {way}")
    return OK


def news(changes: str, above: tuple[int, ...], upto: tuple[int, ...]) -> str:
    """Return the sections of a changelog for the versions between two, the second included."""
    _, *parts = HEADING.split(changes)
    sections = zip(parts[::2], parts[1::2], strict=True)
    newer = (f"{number}{text}" for number, text in sections if above < _number(number) <= upto)
    return "".join(newer).strip() or "The changelog does not say what it changes."


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _fetched(folder: Path) -> Path:
    """Fetch the newest wheel of the index into a folder."""
    console = Console(folder / "log")
    try:
        pip = wheels.pip_of(console, pythons.find() or pythons.own(), folder / "tools")
        wheels.download(console, pip, folder, "gpud")
    except InstallError as error:
        raise GpudError("the index gave no wheel of gpud: pip says why", fix=NO_INDEX) from error
    return folder
