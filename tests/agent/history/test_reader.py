"""The history read beside its writer: of one moment, in bounded time, and left as it is."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent.history import reader
from gpud.agent.history.schema import FILE, FIRST, MIGRATIONS
from gpud.core.errors import StoreError
from tests.histories import hours, opened, run

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
needs_another_user = pytest.mark.skipif(os.geteuid() != 0, reason="becoming nobody needs root")


def count(connection: sqlite3.Connection) -> int:
    (runs,) = connection.execute("SELECT count(*) FROM runs").fetchone()
    return int(runs)


def state(folder: Path) -> dict[str, tuple[int, ...]]:
    """Everything of each file that a reader could have changed."""
    stats = {path.name: path.stat() for path in folder.iterdir()}
    return {
        name: (at.st_ino, at.st_uid, at.st_gid, at.st_mode, at.st_size, at.st_mtime_ns)
        for name, at in stats.items()
    }


def refusal(folder: Path) -> StoreError:
    with pytest.raises(StoreError) as caught:
        reader.read(folder, count)
    return caught.value


def killed(folder: Path) -> Path:
    """What a SIGKILL leaves: all three files, and no process that has them open."""
    (folder / "live").mkdir()
    with opened(folder / "live") as store:
        store.append([run(1.0)])
        return Path(shutil.copytree(folder / "live", folder / "left"))


def test_all_parts_of_a_query_are_of_one_moment(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append([run(1.0)])

        def twice(connection: sqlite3.Connection) -> tuple[int, int]:
            before = count(connection)
            store.append([run(2.0)])
            return before, count(connection)

        assert reader.read(tmp_path, twice) == (1, 1)
        assert reader.read(tmp_path, count) == 2


def test_query_that_takes_too_long_is_ended_and_says_so(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(StoreError, match=r"not read within 0\.2 s") as caught:
        reader.read(tmp_path, lambda c: c.execute(ENDLESS).fetchone(), patience_s=0.2)
    assert caught.value.reason == "slow"


def test_history_is_read_with_and_without_its_writer_and_no_file_is_changed(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as store:
        store.append([run(1.0), run(2.0)])
        before = state(tmp_path)
        assert set(before) == {FILE, f"{FILE}-wal", f"{FILE}-shm"}
        assert reader.read(tmp_path, count) == 2
        with pytest.raises(StoreError, match="readonly"):
            reader.read(tmp_path, lambda c: c.execute("DELETE FROM runs"))
        assert state(tmp_path) == before
    before = state(tmp_path)
    assert set(before) == {FILE}
    assert reader.read(tmp_path, count) == 2
    assert state(tmp_path) == before


def test_history_of_a_killed_agent_is_read_with_the_runs_of_its_wal(tmp_path: Path) -> None:
    left = killed(tmp_path)
    before = state(left)
    assert (left / f"{FILE}-wal").stat().st_size > 0
    assert reader.read(left, count) == 1
    assert state(left) == before
    with opened(left) as store:  # the next agent is not held up by anything
        store.append([run(2.0)])
    assert reader.read(left, count) == 2


def test_text_that_is_no_utf_8_arrives_with_replacements(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.write(
            lambda c: c.execute("INSERT INTO events VALUES (1, 1.0, CAST(x'6bff' AS TEXT), '{}')")
        )
        (kind,) = reader.read(tmp_path, lambda c: c.execute("SELECT kind FROM events").fetchone())
    assert kind == "k\ufffd"


def newer(folder: Path) -> None:
    with opened(folder):
        pass
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute("PRAGMA user_version = 999")


def older(folder: Path) -> None:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.executescript(f"{MIGRATIONS[0]} PRAGMA user_version = {FIRST};")


def no_database(folder: Path) -> None:
    (folder / FILE).write_bytes(b"this was never a database" * 500)


def overwritten_pages(folder: Path) -> None:
    with opened(folder) as store:
        store.append(hours(500))
    with (folder / FILE).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096 * 12)


def fifo(folder: Path) -> None:
    os.mkfifo(folder / FILE)


def link(folder: Path) -> None:
    (folder / FILE).symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (Path.exists, "no_history"),
        (newer, "newer_schema"),
        (older, "older_schema"),
        (no_database, "corrupt"),
        (overwritten_pages, "corrupt"),
        (fifo, "not_a_file"),
        (link, "not_a_file"),
    ],
)
def test_file_that_cannot_be_read_has_a_reason_and_is_left_alone(
    tmp_path: Path, made: object, reason: str
) -> None:
    made(tmp_path)  # type: ignore[operator]
    before = state(tmp_path) if reason != "not_a_file" else {}
    assert refusal(tmp_path).reason == reason
    if before:
        assert state(tmp_path) == before


@pytest.fixture
def passable() -> Iterator[Path]:
    """A folder that every user reaches, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="gpud-history-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@needs_another_user
def test_root_opens_no_history_of_another_user(passable: Path) -> None:
    """Its owner could put a pipe or a link in the place of what SQLite opens beside it."""
    with opened(passable):
        os.chown(passable / "gpud.db", 65534, 65534)
        assert refusal(passable).reason == "not_permitted"


@needs_another_user
@pytest.mark.parametrize("opened_by_the_agent", [True, False])
def test_user_without_permission_is_refused_and_leaves_nothing(
    passable: Path,
    opened_by_the_agent: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    with opened(passable) as store:
        store.append([run(1.0)])
        if not opened_by_the_agent:
            store.close()
        for path in passable.iterdir():
            path.chmod(0o640)
        before = state(passable)
        pid = os.fork()
        if pid == 0:
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            try:
                os._exit(0 if refusal(passable).reason == "not_permitted" else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert state(passable) == before
