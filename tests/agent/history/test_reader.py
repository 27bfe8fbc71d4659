"""Questions put to the history beside its writer: of one moment, in bounded time, changing nothing.

The ways in, and what each refusal says, are in test_usual.py.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from gpud.agent.history import reader, writes
from gpud.agent.history.records import Entry
from gpud.agent.history.schema import FILE, MIGRATIONS
from gpud.core.errors import StoreError
from tests.histories import opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpud.agent.history.store import Store

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path) as made:
        yield made


def count(connection: sqlite3.Connection) -> int:
    (events,) = connection.execute("SELECT count(*) FROM events").fetchone()
    return int(events)


def test_all_parts_of_a_question_are_answered_of_one_moment(tmp_path: Path, store: Store) -> None:
    store.write(writes.events, [Entry(1.0, "kernel")])

    def twice(connection: sqlite3.Connection) -> tuple[int, int]:
        before = count(connection)
        store.write(writes.events, [Entry(2.0, "kernel")])
        return before, count(connection)

    assert reader.read(tmp_path, twice) == (1, 1)
    assert reader.read(tmp_path, count) == 2


def test_a_question_that_takes_too_long_is_ended_and_says_so(tmp_path: Path, store: Store) -> None:
    with pytest.raises(StoreError, match=r"not read within 0\.2 s") as caught:
        reader.read(tmp_path, lambda c: c.execute(ENDLESS).fetchone(), patience_s=0.2)
    assert caught.value.reason == "slow"


def test_nothing_can_be_changed_through_it(tmp_path: Path, store: Store) -> None:
    store.write(writes.events, [Entry(1.0, "kernel")])
    with pytest.raises(StoreError, match="readonly"):
        reader.read(tmp_path, lambda c: c.execute("DELETE FROM events"))
    assert reader.read(tmp_path, count) == 1


def test_text_that_is_no_utf_8_arrives_with_replacements(tmp_path: Path, store: Store) -> None:
    store.write(
        lambda c: c.execute("INSERT INTO events VALUES (1, 1.0, CAST(x'6bff' AS TEXT), '{}')")
    )
    (kind,) = reader.read(tmp_path, lambda c: c.execute("SELECT kind FROM events").fetchone())
    assert kind == "k\ufffd"


def test_a_file_of_an_older_schema_waits_for_the_agent_that_migrates_it(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.executescript(f"{MIGRATIONS[0]} PRAGMA user_version = 1;")
    with pytest.raises(StoreError) as caught:
        reader.read(tmp_path, count)
    assert caught.value.reason == "older_schema"
