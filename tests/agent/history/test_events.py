"""Events in the history, on real files: kept in order, found by time and kind, never in part."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.history import queries, writes
from gpud.agent.history.queries import Window
from gpud.agent.history.records import Entry
from gpud.agent.history.schema import FILE, MIGRATIONS
from gpud.agent.regression.changes import DRIVER_VERSION, GPUS, KERNEL
from gpud.agent.state.presence import GPU_SEEN
from gpud.core.errors import StoreError
from tests.histories import opened

if TYPE_CHECKING:
    from pathlib import Path


def change(at_s: float, kind: str, old: str | None, new: str) -> Entry:
    return Entry(at_s, kind, {"old": old, "new": new, "boot_id": "boot", "level": 5})


FIRST = change(1.0, DRIVER_VERSION, None, "572.16")
SECOND = change(2.0, KERNEL, None, "6.6")
THIRD = change(3.0, DRIVER_VERSION, "572.16", "576.02")


def test_events_are_there_after_the_file_is_opened_again_the_newest_first(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.write(writes.events, [FIRST, SECOND])
        store.write(writes.events, [THIRD])
    with opened(tmp_path) as store:
        assert store.read(queries.events, Window()) == [THIRD, SECOND, FIRST]


@pytest.mark.parametrize(
    ("window", "found"),
    [
        (Window(since_s=2.0), [THIRD, SECOND]),
        (Window(until_s=3.0), [SECOND, FIRST]),
        (Window(since_s=2.0, until_s=3.0), [SECOND]),
        (Window(kinds=(DRIVER_VERSION,)), [THIRD, FIRST]),
        (Window(kinds=(GPUS,)), []),
        (Window(limit=1), [THIRD]),
        (Window(since_s=4.0), []),
    ],
)
def test_a_window_gives_what_lies_in_it(tmp_path: Path, window: Window, found: list[Entry]) -> None:
    with opened(tmp_path) as store:
        store.write(writes.events, [FIRST, SECOND, THIRD])
        assert store.read(queries.events, window) == found


def test_the_last_fact_of_each_kind_is_the_one_written_last_whatever_the_clock_said(
    tmp_path: Path,
) -> None:
    set_back = change(0.5, DRIVER_VERSION, "576.02", "580.88")
    with opened(tmp_path) as store:
        assert store.read(queries.last_changes) == {}
        store.write(
            writes.events, [FIRST, SECOND, THIRD, set_back, Entry(9.0, GPU_SEEN, {"uuid": "A"})]
        )
        assert store.read(queries.last_changes) == {DRIVER_VERSION: set_back, KERNEL: SECOND}


@pytest.mark.parametrize(
    ("at_s", "body"),
    [
        (9.0, "{not json"),
        (9.0, "[1]"),
        (9.0, b'{"new": "\xff"}'),
        (9.0, '{"new": ' + "[" * 990 + "]" * 990 + "}"),
        (9.0, '{"new": ' + "9" * 5000 + "}"),
        ("noon", '{"new": "9"}'),
        (float("inf"), '{"new": "9"}'),
    ],
    ids=["words", "a list", "bytes", "depth", "digits", "a time in words", "no time"],
)
def test_a_row_that_the_disk_spoilt_is_passed_over(
    tmp_path: Path, at_s: float | str, body: str | bytes
) -> None:
    seen = Entry(2.0, GPU_SEEN, {"uuid": "GPU-a", "name": "RTX 4070"})
    with opened(tmp_path) as store:
        store.write(writes.events, [FIRST, seen])
    spoil(tmp_path, [(at_s, kind, body) for kind in (DRIVER_VERSION, GPU_SEEN, GPUS)])
    with opened(tmp_path) as store:
        assert store.read(queries.last_changes) == {DRIVER_VERSION: FIRST}
        assert store.read(queries.events, Window()) == [seen, FIRST]
        assert store.read(queries.gpu_events) == [seen]


def spoil(folder: Path, rows: list[tuple[float | str, str, str | bytes]]) -> None:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.executemany("INSERT INTO events (at_s, kind, body) VALUES (?, ?, ?)", rows)
        connection.commit()


def test_a_batch_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        with pytest.raises(StoreError):
            store.write(writes.events, [FIRST, Entry(None, KERNEL)])  # type: ignore[arg-type]
        assert store.read(queries.events, Window()) == []


BODIES = st.dictionaries(
    st.text(max_size=5), st.one_of(st.none(), st.text(), st.integers(), st.booleans())
)


@given(st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), BODIES), max_size=5))
def test_any_event_comes_back_as_it_was(found: list[tuple[float, dict[str, str]]]) -> None:
    entries = [Entry(at_s, GPUS, body) for at_s, body in found]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(MIGRATIONS[0])
        writes.events(connection, entries)
        assert queries.gpu_events(connection) == entries
