"""Reading of a regular file never waits, whatever lies in its place."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud import regular_file
from gpud.agent import platform
from gpud.agent.telemetry import windows

if TYPE_CHECKING:
    from collections.abc import Callable

IN_OPEN = 0x20


@pytest.mark.parametrize(
    "put",
    [
        os.mkfifo,
        Path.mkdir,
        lambda path: path.symlink_to(path),
        lambda p: p.symlink_to("/dev/zero"),
    ],
    ids=["a pipe", "a folder", "a loop", "zeros"],
)
def test_path_of_something_else_has_no_text(put: Callable[[Path], object], tmp_path: Path) -> None:
    for name in ("etc/wsl.conf", "etc/os-release", "proc/sys/kernel/osrelease", "proc/mounts"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path)
        assert regular_file.text(path) is None
    assert platform.facts(str(tmp_path)) == {}
    assert windows.place(str(tmp_path), "x") == str(tmp_path / "mnt/c/x")


@pytest.mark.parametrize("name", ["pipe", "link"])
def test_pipe_in_the_place_of_a_file_is_not_opened(name: str, tmp_path: Path) -> None:
    """Some devices do things when they are opened, and whoever wrote the link has no right to."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    path = tmp_path / name
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert libc.inotify_add_watch(watch, os.fsencode(path), IN_OPEN) >= 0
    try:
        with pytest.raises(regular_file.NotRegularError):
            regular_file.opened(path)
        with pytest.raises(BlockingIOError):  # nobody has opened it
            os.read(watch, 4096)
    finally:
        os.close(watch)


def test_beginning_of_a_large_file_and_a_file_of_the_kernel_are_read(tmp_path: Path) -> None:
    path = tmp_path / "wsl.conf"
    path.write_bytes(b"[automount]\n\xff")
    os.truncate(path, 1 << 30)
    text = regular_file.text(path) or ""
    assert (text[:13], len(text)) == ("[automount]\n\ufffd", regular_file.LARGEST)
    assert regular_file.text(Path("/proc/self/stat"))
    assert regular_file.text(tmp_path / "none") is None
