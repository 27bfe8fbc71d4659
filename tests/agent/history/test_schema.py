"""Files of every schema there ever was, with rows in them, led to the newest one."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from gpud.agent.history import queries, schema
from gpud.agent.history.queries import Window
from gpud.agent.history.records import Entry
from gpud.agent.history.schema import FILE, FIRST, MIGRATIONS, NEWEST
from tests.histories import memory, opened, run

if TYPE_CHECKING:
    from pathlib import Path

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


def made(folder: Path, version: int) -> None:
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
    made(tmp_path / "old", version)
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
        made(place / "old", version)
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
    left = moment

    def count(_: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.set_trace_callback(count)
        schema.migrate(connection, folder / FILE)
