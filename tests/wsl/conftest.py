from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.wsl.machine import PASSWORD, Machine, machine, make_distribution

if TYPE_CHECKING:
    from collections.abc import Iterator

INSTALL = "~/gpud/deploy/install"
GREET = "docker run --rm --network none box /bin/busybox echo hello from a container"
KEEP = "docker run -d --name kept --restart always --network none box /bin/busybox sleep 99999"


@pytest.fixture(scope="session")
def distribution() -> Iterator[Path]:
    """What ``wsl --install`` leaves, made once; outside pytest's directories, which keep runs."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("debootstrap", "busybox"))):
        pytest.skip("needs root, debootstrap and busybox-static")
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


@dataclass(frozen=True, slots=True)
class FirstDay:
    """A distribution on which ``deploy/install`` and one ``docker run`` were all that happened."""

    place: Path
    tree: Path
    installed: tuple[int, str]
    greeting: tuple[int, str]


@pytest.fixture(scope="session")
def first_day(distribution: Path) -> FirstDay:
    """Install in one window and use Docker in a new one; then everything is shut down."""
    place = distribution.with_name("first-day")
    with machine(place, distribution) as made:
        made.boot()
        made.connect()
        installed = made.terminal().run(INSTALL, password=PASSWORD)
        fresh_shell = made.terminal()
        greeting = fresh_shell.run(f"docker import /box.tar box && {GREET} && {KEEP}")
    return FirstDay(place, distribution, installed, greeting)


@pytest.fixture
def next_day(place: Path, first_day: FirstDay) -> Iterator[Machine]:
    """That distribution, its disk as it was left; not booted yet."""
    subprocess.run(["cp", "-a", first_day.place / "docker", place], check=True)
    with machine(place, first_day.place / "changes", first_day.tree) as made:
        yield made
