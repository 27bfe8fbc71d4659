"""Reading a small file never waits, whatever lies in its place."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud import regular_file
from gpud.agent import platform
from gpud.agent.telemetry import windows

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = "[automount]\nroot=/windows\n"


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


@pytest.mark.parametrize(
    "put",
    [
        os.mkfifo,
        bound,
        Path.mkdir,
        lambda path: path.symlink_to(path),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("/dev/ptmx"),
        lambda path: path.symlink_to("/proc/self/mem"),
    ],
    ids=["a pipe", "a socket", "a folder", "a loop", "zeros", "a terminal", "memory"],
)
def test_what_is_no_plain_file_has_no_text(put: Callable[[Path], object], tmp_path: Path) -> None:
    for name in ("etc/wsl.conf", "etc/os-release", "proc/sys/kernel/osrelease", "proc/mounts"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path)
        assert regular_file.text(path) is None
    assert platform.facts(str(tmp_path)) == {}
    assert windows.places(str(tmp_path), "x") == (str(tmp_path / "mnt/c/x"),)


def test_of_a_large_file_there_is_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "wsl.conf"
    with path.open("wb") as file:
        file.write(SETTINGS.encode() + b"\xff")
        file.truncate(1 << 30)
    said = regular_file.text(path)
    assert said is not None
    assert said.startswith(f"{SETTINGS}\ufffd")
    assert len(said) == regular_file.LARGEST


def test_a_file_of_the_kernel_is_one(tmp_path: Path) -> None:
    assert regular_file.text(Path("/proc/self/stat"))
    assert regular_file.text(tmp_path / "none") is None
