"""Copies made while another process writes as fast as it can."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from gpud.agent import bringing
from gpud.agent.history import backup
from gpud.agent.schema import FILE
from gpud.agent.store import Store
from gpud.core.errors import GpudError, StoreError
from tests.histories import BEGUN_S, hours, opened, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def written(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A history that a process writes to without a pause, and where that tells each run it kept."""
    state = tmp_path / "state"
    state.mkdir()
    with opened(state) as store:
        store.append(hours(100, each=10))
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            store = Store(state, now=str)
            store._connection.execute("PRAGMA synchronous=OFF")
            for number in range(1_000_000):
                store.append([run(BEGUN_S + number, probe="event")])
                os.write(writable, b".")
        finally:
            os._exit(1)
    os.close(writable)
    try:
        yield state, readable
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(readable)


def test_each_copy_is_whole_and_has_every_run_that_was_kept_before_it(
    written: tuple[Path, int], tmp_path: Path
) -> None:
    state, told = written
    kept = 0
    for number in range(4):
        kept += len(os.read(told, 1_000_000))
        target = tmp_path / f"{number}.db"
        assert backup.copy(state, target) == target.stat().st_size
        with closing(sqlite3.connect(target)) as copied:
            assert copied.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            (runs,) = copied.execute("SELECT count(*) FROM runs WHERE probe = 'event'").fetchone()
            (samples,) = copied.execute("SELECT count(*) FROM samples").fetchone()
        assert runs >= kept
        assert samples == runs + 1000
    assert kept > 0
    assert {path.suffix for path in tmp_path.iterdir()} == {"", ".db"}, "and nothing is left over"


def test_a_copy_of_a_damaged_history_is_none(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append(hours(500))
    with (tmp_path / FILE).open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * 40960)
    with pytest.raises(StoreError) as caught:
        backup.copy(tmp_path, tmp_path / "copy.db")
    assert caught.value.reason == "corrupt"
    assert {path.name for path in tmp_path.iterdir()} == {FILE}


def test_who_takes_the_name_meanwhile_keeps_it(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append(hours(5))
    part, target = tmp_path / "part", tmp_path / "copy.db"
    part.write_bytes(b"new")
    target.write_bytes(b"old")
    with pytest.raises(GpudError, match="is there already"):
        backup._named(part, target)
    assert target.read_bytes() == b"old"
    target.unlink()
    target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(GpudError, match="is there already"):
        backup.copy(tmp_path, target)


def test_what_a_killed_copy_left_beside_the_history_goes_with_the_next_one(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    with opened(state) as store:
        store.append(hours(2))
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    ended, at_work = (state / f".{FILE}.{pid}.part" for pid in (child, 1))
    for part in (ended, at_work):
        part.touch()
    backup.copy(state, tmp_path / "made", bringing.here)
    assert (ended.exists(), at_work.exists()) == (False, True)
