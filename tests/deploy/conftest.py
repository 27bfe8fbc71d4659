"""What the tests of the installer share: a checkout with its wheelhouse, and one installation."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.deploy.installing import LARGE, ROOT, ask_for, fresh, install, project

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.overlay import Machine


NEEDED = {
    "hatchling",
    "msgspec",
    "packaging",
    "pathspec",
    "pluggy",
    "shtab",
    "structlog",
    "tomlkit",
    "trove-classifiers",
}
"""What an installation itself loads of its packages."""


@pytest.fixture(scope="session")
def shared() -> Iterator[Path]:
    """A checkout and a wheelhouse that every machine sees, and that nobody else can write.

    The checkout asks for fewer packages than the wheelhouse has: ``whole`` asks for all of them.
    """
    with tempfile.TemporaryDirectory(prefix="gpud-shared-", dir="/var/tmp") as folder:
        place = Path(folder)
        place.chmod(0o755)
        checkout = place / "checkout"
        ignored = shutil.ignore_patterns(
            "__pycache__", ".git", ".venv", ".gpud", ".*_cache", "tests"
        )
        shutil.copytree(ROOT, checkout, ignore=ignored)
        subprocess.run(
            [
                checkout / "deploy/install",
                "--with",
                "apprise",
                "--make-wheelhouse",
                place / "wheels",
            ],
            check=True,
        )
        ask_for(checkout, lambda name: name not in LARGE)
        yield place


@pytest.fixture(scope="session")
def installed(shared: Path) -> Iterator[Machine]:
    """Installed and not started; other machines are layers above its files."""
    with fresh(shared) as made:
        made.well(*install(shared, "--no-start"))
        yield made


@pytest.fixture(scope="session")
def light(shared: Path) -> Path:
    """The same with few packages, for what starts no agent; ``newer`` is a newer checkout."""
    place = shared / "light"
    (place / "wheels").mkdir(parents=True)
    for wheel in (shared / "wheels").iterdir():
        if project(wheel) in {*NEEDED, "pip"}:
            shutil.copy(wheel, place / "wheels")
    for name in ("checkout", "newer"):
        shutil.copytree(shared / "checkout", place / name)
        ask_for(place / name, NEEDED.__contains__)
    with (place / "newer/gpud/core/text.py").open("a") as newer:
        newer.write("# newer\n")
    return place


@pytest.fixture(scope="session")
def small(light: Path) -> Iterator[Machine]:
    """``installed`` with few packages: of gpud its commands run, its agent does not."""
    with fresh(light) as made:
        made.well(*install(light, "--no-start"))
        yield made
