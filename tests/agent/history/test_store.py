"""The history on real files: killed, full, read-only, damaged, taken away, of every schema."""

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
from gpud.agent.history.queries import Window
from gpud.agent.history.records import Entry
from gpud.agent.history.schema import FILE, FIRST, MIGRATIONS, NEWEST
from gpud.agent.history.store import History, Store
from gpud.core.errors import StoreError
from gpud.core.sample import Flag, Peak, Point, RunReport
from tests.histories import killing, memory, opened, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


needs_mount = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting needs root"
)


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


def test_run_is_there_with_all_its_figures_after_the_file_is_opened_again(tmp_path: Path) -> None:
    made = run(7.0, 1.5e-6, flags=(Flag.BUSY, Flag.LOW))
    (sample,) = made.report.samples
    humps = replace(sample, peaks=(Peak(1e-6, 0.75), Peak(2e-6, 0.25)))
    report = replace(made.report, samples=(humps,), curve=(Point(16, 1e-6, 2e-6),))
    with opened(tmp_path) as store:
        store.append([replace(made, report=report)])
    with opened(tmp_path) as store:
        assert store.read(queries.run_count) == 1
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        probe, gpu, conditions, flags, curve = connection.execute(
            "SELECT probe, gpu_uuid, conditions, flags, curve FROM runs"
        ).fetchone()
        mode, n, median, peaks = connection.execute(
            "SELECT mode, n, median, peaks FROM samples"
        ).fetchone()
    assert (probe, gpu, mode, n, median) == ("launch", "GPU-1", "submit", 1, 1.5e-6)
    assert json.loads(conditions) == {"probe_version": 1, "driver_version": "572.16"}
    assert json.loads(flags) == ["busy", "low"]
    assert json.loads(curve) == [{"n": 16, "cpu_s": 1e-6, "gpu_s": 2e-6}]
    assert [peak["share"] for peak in json.loads(peaks)] == [0.75, 0.25]


def written_until_killed(folder: Path, start: int, chance: random.Random) -> list[float]:
    """Let a process write runs, report each that lasts, and kill it at any moment."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            store = Store(folder)
            for number in range(start, start + 100_000):
                assert store.append([run(float(number))]) == []
                os.write(writable, f"{number}\n".encode())
        finally:
            os._exit(1)
    os.close(writable)
    with open(readable) as lines:  # noqa: PTH123  # a descriptor
        first = lines.readline()
        time.sleep(chance.random() * 0.05)  # the moment is what is random here
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        # What it reported before the signal reached it counts too; half a line does not.
        reported = [first, *lines.read().splitlines(keepends=True)]
    return [float(line) for line in reported if line.endswith("\n")]


def test_every_run_reported_as_written_before_a_kill_is_there_afterwards(tmp_path: Path) -> None:
    chance = random.Random(1)
    reported = [written_until_killed(tmp_path, kill * 1_000_000, chance) for kill in range(30)]
    with opened(tmp_path) as store:
        assert store.set_aside is None
        assert store.read(lambda c: c.execute("PRAGMA integrity_check").fetchall()) == [("ok",)]
        assert store.read(lambda c: c.execute("PRAGMA foreign_key_check").fetchall()) == []
    stored = finished_s(tmp_path)
    assert len(set(stored)) == len(stored)
    assert {number for numbers in reported for number in numbers} <= set(stored)
    assert len(stored) <= sum(map(len, reported)) + len(reported), "one in flight each time"


async def test_beside_a_file_of_a_newer_gpud_runs_wait_until_it_is_moved_away(
    tmp_path: Path,
) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("PRAGMA user_version = 999")
    before = (tmp_path / FILE).read_bytes()

    history = History(tmp_path)
    for number in range(2):
        with pytest.raises(StoreError, match="newer gpud") as caught:
            await history.append(run(float(number)))
        assert (caught.value.reason, history.waiting) == ("newer_schema", number + 1)
        assert caught.value.fix == "upgrade gpud, or move the file away"
    assert list(tmp_path.glob("*")) == [tmp_path / FILE]  # noqa: ASYNC240  # no other work
    assert (tmp_path / FILE).read_bytes() == before
    (tmp_path / FILE).unlink()
    await history.append(run(2.0))
    await history.close()
    assert finished_s(tmp_path) == [0.0, 1.0, 2.0]


def test_migration_that_fails_half_way_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path):
        pass
    broken = (*MIGRATIONS, "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1);")
    monkeypatch.setattr(schema, "MIGRATIONS", broken)
    with pytest.raises(StoreError):
        Store(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (NEWEST,)
        half = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'half'")
        assert half.fetchall() == []


@needs_mount
async def test_on_a_full_disk_runs_wait_and_are_written_in_order_when_there_is_room(
    small_disk: Path,
) -> None:
    history = History(small_disk)
    await history.append(run(0.0))
    size = os.statvfs(small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (size.f_bavail * size.f_frsize))
    reasons = set()
    for number in range(1, 60):
        try:
            await history.append(run(float(number)))
        except StoreError as error:
            reasons.add(error.reason)  # how many fit before is the disk's affair
    assert history.waiting > 0
    assert reasons == {"disk_full"}
    ballast.unlink()
    await history.append(run(60.0))
    assert (history.waiting, history.dropped) == (0, 0)
    await history.close()
    assert finished_s(small_disk) == [float(number) for number in range(61)]


@needs_mount
async def test_on_a_read_only_disk_runs_wait_until_it_can_be_written_again(
    small_disk: Path,
) -> None:
    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", small_disk], check=True)

    with opened(small_disk) as store:
        store.append([run(0.0)])
    remount("ro")
    history = History(small_disk)
    with pytest.raises(StoreError) as caught:
        await history.append(run(1.0))
    assert caught.value.reason == "read_only"
    remount("rw")
    await history.append(run(2.0))
    await history.close()
    assert finished_s(small_disk) == [0.0, 1.0, 2.0]


async def test_runs_beyond_those_that_can_wait_are_dropped_oldest_first_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "WAITING_LIMIT", 3)
    folder = tmp_path / "later"

    history = History(folder)
    for number in range(5):
        with pytest.raises(StoreError) as caught:
            await history.append(run(float(number)))
        assert (caught.value.reason, caught.value.fix) == ("no_directory", f"mkdir -p {folder}")
    assert (history.waiting, history.dropped) == (3, 2)
    folder.mkdir()
    await history.append()
    await history.close()
    assert finished_s(folder) == [2.0, 3.0, 4.0]


def twice_the_same(report: RunReport) -> RunReport:
    return replace(report, samples=report.samples * 2)


def too_large(report: RunReport) -> RunReport:
    return replace(report, samples=(replace(report.samples[0], n=2**70),))


@pytest.mark.parametrize("spoilt", [twice_the_same, too_large])
async def test_run_that_can_never_be_stored_does_not_keep_the_others_waiting(
    tmp_path: Path, spoilt: object
) -> None:
    impossible = replace(run(2.0), report=spoilt(run(2.0).report))  # type: ignore[operator]

    history = History(tmp_path)
    with pytest.raises(StoreError):
        await history.append(run(1.0), impossible, run(3.0))
    assert history.dropped == 1
    await history.append(run(4.0))
    await history.close()
    assert finished_s(tmp_path) == [1.0, 3.0, 4.0]


async def test_appends_that_are_cancelled_or_at_once_write_each_run_once_and_in_order(
    tmp_path: Path,
) -> None:
    history = History(tmp_path)
    for number in range(20):
        appending = asyncio.create_task(history.append(run(float(number))))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        appending.cancel()
        await asyncio.gather(appending, return_exceptions=True)
    await asyncio.gather(*(history.append(run(float(number))) for number in range(20, 70)))
    await history.close()
    stored = finished_s(tmp_path)
    assert stored == sorted(set(stored))
    assert len(stored) >= 65  # cancelled before its first step, no write was asked for


# Damage


def spoil(path: Path, *, n_bytes: int | None = None) -> None:
    """Overwrite the last bytes, or all but the first pages, as a disk does that is at its end."""
    size = path.stat().st_size
    n_bytes = size - 8192 if n_bytes is None else n_bytes
    with path.open("r+b") as file:
        file.seek(size - n_bytes)
        file.write(os.urandom(n_bytes))


def test_folder_in_the_files_place_is_named_with_its_fix(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(StoreError) as caught:
        Store(tmp_path)
    assert caught.value.reason == "not_a_file"
    assert caught.value.fix == f"move {tmp_path / FILE} away; gpud restart"


def test_corrupt_file_is_set_aside_whole_and_never_over_another(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append([run(float(number)) for number in range(500)])
    spoil(tmp_path / FILE)
    aside = {}
    for _ in range(2):
        spoilt = (tmp_path / FILE).read_bytes()
        with opened(tmp_path) as store:
            assert store.set_aside is not None
            assert store.set_aside.match(f"{FILE}.corrupt-2*Z*")
            aside[store.set_aside] = spoilt
            store.append([run(1.0)])
            assert store.read(queries.run_count) == 1
        (tmp_path / FILE).write_bytes(b"this was never a database" * 500)
    assert [path.read_bytes() for path in aside] == list(aside.values())
    assert len(aside) == 2


async def flushed(history: History) -> None:
    """Bring everything into the file, and forget it in memory."""
    for pragma in ("PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA shrink_memory"):
        await history.read(lambda c, pragma=pragma: c.execute(pragma).fetchall())  # type: ignore[misc]


async def test_damage_that_shows_while_it_runs_sets_the_file_aside_and_loses_no_run_in_flight(
    tmp_path: Path,
) -> None:
    history = History(tmp_path)
    await history.append(*(run(float(number)) for number in range(500)))
    await flushed(history)
    spoil(tmp_path / FILE)
    await history.append(run(1000.0))
    assert history.set_aside is not None
    assert history.set_aside.exists()
    assert (history.waiting, history.dropped) == (0, 0)
    await history.append(run(1001.0))
    await history.close()
    assert finished_s(tmp_path) == [1000.0, 1001.0]


OLD = range(FIRST, NEWEST)
ROWS = """
INSERT INTO runs VALUES (1, 5, 'b', 'launch', 'cuda', 'G', 1, NULL, '{}', '["busy"]', NULL);
INSERT INTO samples VALUES (1, 'm', 'seconds', 1, 2, 2, 2, 2, 2, 2, NULL, NULL, NULL, NULL);
INSERT INTO events (at_s, kind, body) VALUES (4.0, 'kernel', '{"new":"6.6"}');
INSERT INTO states VALUES ('judge', 1, 5.0, '{}');
INSERT INTO alarms VALUES (1, '[]', 1, 5.0, '{}');
INSERT INTO verdicts VALUES (1, '[]', 1.0, 5.0, '{}');
INSERT INTO alerts VALUES ('f', 1.0, 5.0, NULL, '{}');
"""
"""Written by a gpud of the first schema."""


def made_by(folder: Path, version: int) -> None:
    folder.mkdir(exist_ok=True)
    with closing(sqlite3.connect(folder / FILE)) as connection:
        for step, script in enumerate(MIGRATIONS[: version - FIRST + 1], start=FIRST):
            rows = ROWS if step == FIRST else ""
            connection.executescript(f"{script} PRAGMA user_version = {step}; {rows}")
        connection.commit()


def shape(folder: Path) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return connection.execute(
            "SELECT type, name, coalesce(sql, '') FROM sqlite_master ORDER BY name"
        ).fetchall()


@pytest.mark.parametrize("version", OLD)
def test_file_of_each_older_schema_is_migrated_with_its_rows(tmp_path: Path, version: int) -> None:
    made_by(tmp_path / "old", version)
    with opened(tmp_path / "old") as store:
        assert store.read(lambda c: c.execute("PRAGMA user_version").fetchone()) == (NEWEST,)
        assert store.read(queries.events, Window()) == [Entry(4.0, "kernel", {"new": "6.6"})]
        (flags,) = store.read(lambda c: c.execute("SELECT flags FROM runs").fetchone())
        assert flags == '["busy"]'
        for table in ("states", "alarms", "verdicts", "alerts"):
            count = store.read(lambda c, t=table: c.execute(f"SELECT * FROM {t}").fetchall())  # type: ignore[misc]  # noqa: S608
            assert len(count) == 1, table
        assert store.append([run(6.0)]) == []
        assert store.read(queries.run_count) == 2
    (copy,) = (tmp_path / "old").glob("gpud.db.schema-*")
    assert copy.name == f"gpud.db.schema-{version}"
    with closing(sqlite3.connect(copy)) as before:
        assert before.execute("PRAGMA user_version").fetchone() == (version,)
        assert before.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    (tmp_path / "new").mkdir()
    with opened(tmp_path / "new"):
        pass
    assert shape(tmp_path / "old") == shape(tmp_path / "new")


@pytest.mark.parametrize("version", OLD)
def test_migration_killed_at_any_statement_goes_on_at_the_next_start(
    version: int,
) -> None:
    with memory() as place:
        made_by(place / "old", version)
        moment = 1
        while led_on(shutil.copytree(place / "old", place / str(moment)), moment) != 0:
            moment += 1
    assert moment > 3


def led_on(folder: Path, moment: int) -> int:
    """Kill a process at the n-th statement of leading the file on, open it, say how that ended."""
    pid = os.fork()
    if pid == 0:
        try:
            migrated(folder, moment)
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in {0, -signal.SIGKILL}
    with opened(folder) as store:
        assert store.set_aside is None
        assert store.read(queries.run_count) == 1
        assert store.append([run(6.0)]) == []
    return code


def migrated(folder: Path, moment: int) -> None:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.set_trace_callback(killing(moment))
        schema.migrate(connection, folder / FILE)
