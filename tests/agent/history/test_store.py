"""The history on real files: killed, full, read-only, old and new."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud.agent.history import queries, schema
from gpud.agent.history import store as store_module
from gpud.agent.history.records import Run
from gpud.agent.history.schema import FILE, MIGRATIONS
from gpud.agent.history.store import History, Store
from gpud.core import stats
from gpud.core.errors import StoreError
from gpud.core.sample import (
    Backend,
    Device,
    Flag,
    Peak,
    Point,
    RunReport,
    Unit,
)
from tests.histories import opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEVICE = Device(0, "GPU-1", "n", "0000:01:00.0", "8.9", 46, 1, 1)
SAMPLE = stats.summarised([1e-6, 2e-6], mode="submit", unit=Unit.SECONDS, null=[1e-7])
REPORT = RunReport("launch", Backend.CUDA, DEVICE, (SAMPLE,), conditions={"driver": "576.02"})

needs_mount = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting needs root"
)


def run(number: int = 0, report: RunReport = REPORT) -> Run:
    return Run(report, float(number), "boot")


def finished_s(folder: Path) -> list[float]:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return [row[0] for row in connection.execute("SELECT finished_s FROM runs ORDER BY id")]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    size = os.statvfs(disk)
    ballast.write_bytes(b"x" * (size.f_bavail * size.f_frsize))
    return ballast


def test_a_run_is_there_with_its_samples_after_the_file_is_opened_again(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append([run(7)])
    with opened(tmp_path) as store:
        assert store.read(queries.run_count) == 1
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        assert connection.execute("SELECT probe, gpu_uuid, conditions FROM runs").fetchall() == [
            ("launch", "GPU-1", '{"driver":"576.02"}')
        ]
        assert connection.execute("SELECT mode, n, median FROM samples").fetchall() == [
            ("submit", 2, SAMPLE.median)
        ]


def test_flags_peaks_and_a_curve_are_kept_beside_the_figures(tmp_path: Path) -> None:
    humps = replace(SAMPLE, peaks=(Peak(1e-6, 0.75), Peak(2e-6, 0.25)))
    report = replace(REPORT, samples=(humps,), curve=(Point(16, 1e-6, 2e-6),))
    with opened(tmp_path) as store:
        store.append([Run(report, 1.0, "boot", (Flag.BUSY, Flag.LOW))])
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        flags, curve = connection.execute("SELECT flags, curve FROM runs").fetchone()
        (peaks,) = connection.execute("SELECT peaks FROM samples").fetchone()
    assert json.loads(flags) == ["busy", "low"]
    assert json.loads(curve) == [{"n": 16, "cpu_s": 1e-6, "gpu_s": 2e-6}]
    assert [peak["share"] for peak in json.loads(peaks)] == [0.75, 0.25]


def told_until_killed(folder: Path, start: int, chance: random.Random) -> list[float]:
    """Let a process write runs, tell each that lasts, and kill it at any moment."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            store = Store(folder)
            for number in range(start, start + 100_000):
                assert store.append([run(number)]) == []
                os.write(writable, f"{number}\n".encode())
        finally:
            os._exit(1)
    os.close(writable)
    with open(readable) as said:  # noqa: PTH123  # a descriptor
        first = said.readline()
        time.sleep(chance.random() * 0.05)  # the moment is what is random here
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        # What it said before the signal reached it counts too; half a line does not.
        lines = [first, *said.read().splitlines(keepends=True)]
    return [float(line) for line in lines if line.endswith("\n")]


def test_every_run_told_as_kept_before_a_kill_is_there_afterwards(tmp_path: Path) -> None:
    chance = random.Random(1)
    told = [told_until_killed(tmp_path, kill * 1_000_000, chance) for kill in range(30)]
    with opened(tmp_path) as store:
        assert store.set_aside is None
        assert store.read(lambda c: c.execute("PRAGMA integrity_check").fetchall()) == [("ok",)]
        assert store.read(lambda c: c.execute("PRAGMA foreign_key_check").fetchall()) == []
    kept = finished_s(tmp_path)
    assert len(set(kept)) == len(kept)
    assert {number for numbers in told for number in numbers} <= set(kept)
    assert len(kept) <= sum(map(len, told)) + len(told), "one in flight each time"


def test_a_file_of_a_newer_gpud_is_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA user_version = 999")
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(StoreError, match="newer gpud") as caught:
        Store(tmp_path)
    assert caught.value.reason == "newer_schema"
    assert (tmp_path / FILE).read_bytes() == before
    assert list(tmp_path.glob("*corrupt*")) == []


def test_beside_a_file_of_a_newer_gpud_runs_wait_until_it_is_moved_away(tmp_path: Path) -> None:
    async def story() -> None:
        history = History(tmp_path)
        for number in range(2):
            with pytest.raises(StoreError) as caught:
                await history.append(run(number))
            assert (caught.value.reason, history.waiting) == ("newer_schema", number + 1)
            assert caught.value.fix == "upgrade gpud, or move the file away"
        (tmp_path / FILE).unlink()
        await history.append(run(2))
        await history.close()

    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("PRAGMA user_version = 999")
    asyncio.run(story())
    assert finished_s(tmp_path) == [0.0, 1.0, 2.0]


def test_a_step_that_fails_half_way_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path):
        pass
    broken = (*MIGRATIONS, "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1);")
    monkeypatch.setattr(schema, "MIGRATIONS", broken)
    with pytest.raises(StoreError):
        Store(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert (
            connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'half'").fetchall() == []
        )


def test_a_directory_that_is_missing_is_said_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        Store(tmp_path / "missing")
    assert (caught.value.reason, caught.value.fix) == (
        "no_directory",
        f"mkdir -p {tmp_path / 'missing'}",
    )


@needs_mount
def test_on_a_full_disk_runs_wait_and_are_written_in_order_when_there_is_room(
    small_disk: Path,
) -> None:
    async def story() -> None:
        history = History(small_disk)
        await history.append(run(0))
        ballast = fill(small_disk)
        said = []
        for number in range(1, 60):
            try:
                await history.append(run(number))
            except StoreError as error:
                said.append(error.reason)  # how many fit before is the disk's affair
        assert history.waiting > 0
        assert set(said) == {"disk_full"}
        ballast.unlink()
        await history.append(run(60))
        assert (history.waiting, history.dropped) == (0, 0)
        await history.close()

    asyncio.run(story())
    assert finished_s(small_disk) == [float(number) for number in range(61)]


@needs_mount
def test_on_a_read_only_disk_runs_wait_until_it_can_be_written_again(small_disk: Path) -> None:
    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", small_disk], check=True)

    async def story() -> None:
        history = History(small_disk)
        with pytest.raises(StoreError) as caught:
            await history.append(run(1))
        assert caught.value.reason == "read_only"
        remount("rw")
        await history.append(run(2))
        await history.close()

    with opened(small_disk) as store:
        store.append([run(0)])
    remount("ro")
    asyncio.run(story())
    assert finished_s(small_disk) == [0.0, 1.0, 2.0]


def test_more_than_can_wait_is_dropped_oldest_first_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "WAITING_LIMIT", 3)
    folder = tmp_path / "later"

    async def story() -> None:
        history = History(folder)
        for number in range(5):
            with pytest.raises(StoreError):
                await history.append(run(number))
        assert (history.waiting, history.dropped) == (3, 2)
        folder.mkdir()
        await history.append()
        await history.close()

    asyncio.run(story())
    assert finished_s(folder) == [2.0, 3.0, 4.0]


def test_a_run_that_can_never_be_stored_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    for impossible in (
        replace(REPORT, samples=(SAMPLE, SAMPLE)),
        replace(REPORT, samples=(replace(SAMPLE, n=2**70),)),
    ):

        async def story(impossible: RunReport = impossible) -> None:
            history = History(tmp_path)
            with pytest.raises(StoreError):
                await history.append(run(1), run(2, impossible), run(3))
            assert history.dropped == 1
            await history.append(run(4))
            await history.close()

        asyncio.run(story())
    assert finished_s(tmp_path) == [1.0, 3.0, 4.0] * 2


def test_a_cancelled_append_writes_its_run_once(tmp_path: Path) -> None:
    async def story() -> None:
        history = History(tmp_path)
        for number in range(20):
            appending = asyncio.create_task(history.append(run(number)))
            for _ in range(number % 4):
                await asyncio.sleep(0)
            appending.cancel()
            await asyncio.gather(appending, return_exceptions=True)
        await history.close()

    asyncio.run(story())
    kept = finished_s(tmp_path)
    assert len(set(kept)) == len(kept)
    assert len(kept) >= 15  # cancelled before its first step, nothing was asked for


def test_many_appends_at_once_write_each_run_once_and_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        history = History(tmp_path)
        await asyncio.gather(*(history.append(run(number)) for number in range(50)))
        await history.close()

    asyncio.run(story())
    assert finished_s(tmp_path) == [float(number) for number in range(50)]
