from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.wsl.machine import Machine, machine, make_distribution

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def distribution() -> Iterator[Path]:
    """What ``wsl --install`` leaves, made once; outside pytest's directories, which keep runs."""
    place = Path(tempfile.mkdtemp(prefix="gpud-wsl-"))
    try:
        make_distribution(place / "tree")
        yield place / "tree"
    finally:
        shutil.rmtree(place)


@pytest.fixture
def place() -> Iterator[Path]:
    """Where one machine keeps its changes."""
    made = Path(tempfile.mkdtemp(prefix="gpud-wsl-"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


@pytest.fixture
def fresh(place: Path, distribution: Path) -> Iterator[Machine]:
    """A distribution that has just been installed, and booted."""
    with machine(place, distribution) as made:
        made.boot()
        yield made
