"""Every file in the log directory has an end: what structlog does not rotate, root does."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gpud.root import files
from gpud.root.dockerd import LARGEST_LOG
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.root.conftest import Supervised

BY_ROOT = ("dockerd.log", "agent.log", "root.err")
BY_STRUCTLOG = {"root.log"}
LINES = b"something went wrong again\n" * (LARGEST_LOG // 27 + 1000)


@pytest.fixture
def running(supervised: Supervised) -> Supervised:
    supervised.start()
    return supervised


def test_a_log_that_grew_too_large_is_set_aside_while_its_writer_goes_on(
    running: Supervised,
) -> None:
    logs = [running.home / "var/log/gpud" / name for name in BY_ROOT]
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(log.open("ab", buffering=0)) for log in logs]
        for writer in writers:
            writer.write(LINES)
        until(lambda: all(log.stat().st_size < LARGEST_LOG for log in logs), "emptied logs")
        for writer in writers:
            writer.write(b"and again\n")
    for log in logs:
        assert log.read_bytes().endswith(b"and again\n")
        assert log.stat().st_size < LARGEST_LOG
        assert log.with_name(f"{log.name}.1").stat().st_size <= LARGEST_LOG


def test_no_other_file_is_written_there(running: Supervised) -> None:
    until((running.home / "var/log/gpud/agent.log").exists, "the agent's log")
    result = {path.name for path in (running.home / "var/log/gpud").iterdir() if path.is_file()}
    assert result <= BY_STRUCTLOG | set(BY_ROOT)


def test_starts_that_always_fail_do_not_fill_the_disk(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    log = tmp_path / "var/log/gpud/root.err"
    log.parent.mkdir(parents=True)
    log.write_bytes(LINES)
    wrong = tmp_path / "etc/gpud/gpud.toml"
    wrong.parent.mkdir(parents=True)
    wrong.write_text("[paths]\nrun = '/proc/nowhere'\n")
    answer = subprocess.run(
        [sys.executable, "-I", "-m", "gpud", "--home", tmp_path, "up"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode != 0
    assert "/proc/nowhere" in answer.stderr
    assert log.stat().st_size < LARGEST_LOG


def test_a_full_disk_does_not_keep_a_log_full(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    log = tmp_path / "disk" / "dockerd.log"
    log.parent.mkdir()
    size = f"size={LARGEST_LOG + 1024 * 1024}"
    disk = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(log.parent)]
    subprocess.run(disk, check=True)
    try:
        with contextlib.suppress(OSError), log.open("ab", buffering=0) as writer:
            while True:
                writer.write(b"x" * 4096)
        files.rotate(log, LARGEST_LOG)
        assert list(log.parent.iterdir()) == [log]
        assert log.stat().st_size == 0
    finally:
        subprocess.run(["umount", log.parent], check=True)


def test_a_log_that_its_writer_made_enormous_is_cut_and_never_read_whole(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    with log.open("wb") as writer:
        writer.truncate(1 << 42)
        writer.seek(0, os.SEEK_END)
        writer.write(b"last words\n")
    files.rotate(log, 1024)
    assert log.stat().st_size == 0
    rest = (tmp_path / "agent.log.1").read_bytes()
    assert len(rest) == 1024
    assert rest.endswith(b"last words\n")
