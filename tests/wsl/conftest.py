from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.distribution import MEMORY
from tests.shell.world import USER
from tests.waiting import until
from tests.wsl.machine import Machine, machine

if TYPE_CHECKING:
    from collections.abc import Iterator

GREET = "docker run --rm --network none box /busybox echo hello from a container"
KEEP = "docker run -d --name kept --restart always --network none box /busybox sleep 99999"
SUDO_LOG = "/var/log/sudo.log"
PREPARED = f"""
gpasswd -a {USER} docker
echo 'Defaults logfile={SUDO_LOG}' >/etc/sudoers.d/log
echo 127.0.1.1 laptop >>/etc/hosts
cp /home/{USER}/.bashrc /run/snippet
cat /etc/skel/.bashrc /run/snippet >/home/{USER}/.bashrc
"""
"""What an installation does for a person, whose file begins as anybody's does."""


@dataclass(frozen=True, slots=True)
class FirstDay:
    """A distribution in which gpud was installed and one ``docker run`` was all that happened."""

    place: Path
    layers: tuple[Path, ...]
    greeting: tuple[int, str]


@pytest.fixture(scope="session")
def first_day(installed_layer: Path) -> Iterator[FirstDay]:
    """Use Docker in a window; then everything is shut down."""
    layers = (installed_layer, Path("/"))
    place = Path(tempfile.mkdtemp(prefix="gpud-wsl-", dir=MEMORY))
    try:
        with machine(place, *layers) as made:
            made.boot()
            made.run("sh", "-ec", PREPARED)
            window = made.terminal()
            until(lambda: made.report().get("dockerd", {}).get("up"), "a dockerd that answers")
            greeting = window.run(
                f"tar -cC /bin busybox | docker import - box && {GREET} && {KEEP}"
            )
        yield FirstDay(place, layers, greeting)
    finally:
        shutil.rmtree(place)


@pytest.fixture
def next_day(first_day: FirstDay) -> Iterator[Machine]:
    """That distribution, its disk as it was left; not booted yet."""
    place = Path(tempfile.mkdtemp(prefix="gpud-wsl-", dir=MEMORY))
    try:
        subprocess.run(["cp", "-a", first_day.place / "docker", place], check=True)
        with machine(place, first_day.place / "changes", *first_day.layers) as made:
            yield made
    finally:
        shutil.rmtree(place)
