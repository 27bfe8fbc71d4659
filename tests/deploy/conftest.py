"""What the tests of the installer share: a checkout with its wheelhouse, and one installation."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.deploy.installing import ROOT, fresh, install, leave_out_large_packages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.overlay import Machine


NEEDED = [
    "hatchling",
    "msgspec",
    "packaging",
    "pathspec",
    "pluggy",
    "shtab",
    "structlog",
    "tomlkit",
    "trove-classifiers",
]
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
        leave_out_large_packages(checkout)
        yield place


@pytest.fixture(scope="session")
def installed(shared: Path) -> Iterator[Machine]:
    """Installed and not started; other machines are layers above its files."""
    with fresh(shared) as made:
        made.well(*install(shared, "--no-start"))
        yield made


@pytest.fixture(scope="session")
def light(shared: Path) -> Path:
    """A folder with two checkouts, the second one newer, that need few packages."""
    place = shared / "light"
    for name in ("checkout", "newer"):
        shutil.copytree(shared / "checkout", place / name)
        file = place / name / "deploy/requirements.txt"
        pins = re.split(r"^(?=\w)", file.read_text(), flags=re.MULTILINE)
        file.write_text("".join(pin for pin in pins if pin.partition("==")[0] in NEEDED))
    with (place / "newer/gpud/core/text.py").open("a") as newer:
        newer.write("# newer\n")
    return place
