"""Queries on real files: events by time and kind, what is usual, and rows that a disk spoilt."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gpud.agent.history import queries, records
from gpud.agent.history.queries import Window
from gpud.agent.history.records import Entry
from gpud.agent.history.schema import FILE, MIGRATIONS
from gpud.agent.state.facts import DRIVER_VERSION, GPUS, KERNEL
from gpud.agent.state.presence import GPU_SEEN
from gpud.core.errors import StoreError
from gpud.core.sample import Flag, Peak
from gpud.core.streams import StreamKey
from tests.histories import failed, opened, run

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.history.records import Run


def change(at_s: float, kind: str, old: str | None, new: str) -> Entry:
    return Entry(at_s, kind, {"old": old, "new": new, "boot_id": "boot", "level": 5})


FIRST = change(1.0, DRIVER_VERSION, None, "572.16")
SECOND = change(2.0, KERNEL, None, "6.6")
THIRD = change(3.0, DRIVER_VERSION, "572.16", "576.02")


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Window(), [THIRD, SECOND, FIRST]),
        (Window(since_s=2.0), [THIRD, SECOND]),
        (Window(since_s=2.0, until_s=3.0), [SECOND]),
        (Window(kinds=(DRIVER_VERSION,)), [THIRD, FIRST]),
        (Window(kinds=(GPUS,)), []),
        (Window(limit=1), [THIRD]),
    ],
)
def test_window_selects_events_newest_first(
    tmp_path: Path, window: Window, expected: list[Entry]
) -> None:
    with opened(tmp_path) as store:
        store.write(records.write_events, [FIRST, SECOND])
        store.write(records.write_events, [THIRD])
    with opened(tmp_path) as store:
        assert store.read(queries.events, window) == expected


def test_last_change_of_each_kind_is_the_one_written_last_whatever_the_clock_said(
    tmp_path: Path,
) -> None:
    set_back = change(0.5, DRIVER_VERSION, "576.02", "580.88")
    with opened(tmp_path) as store:
        assert store.read(queries.last_changes) == {}
        store.write(records.write_events, [FIRST, SECOND, THIRD, set_back])
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
def test_row_that_the_disk_spoilt_is_skipped(
    tmp_path: Path, at_s: float | str, body: str | bytes
) -> None:
    gpu = Entry(2.0, GPU_SEEN, {"uuid": "GPU-a", "name": "RTX 4070"})
    rows = [(at_s, kind, body) for kind in (DRIVER_VERSION, GPU_SEEN, GPUS)]
    with opened(tmp_path) as store:
        store.write(records.write_events, [FIRST, gpu])
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.executemany("INSERT INTO events (at_s, kind, body) VALUES (?, ?, ?)", rows)
        connection.commit()
    with opened(tmp_path) as store:
        assert store.read(queries.last_changes) == {DRIVER_VERSION: FIRST}
        assert store.read(queries.events, Window()) == [gpu, FIRST]
        assert store.read(queries.gpu_events) == [gpu]


def test_batch_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        with pytest.raises(StoreError):
            store.write(records.write_events, [FIRST, Entry(None, KERNEL)])  # type: ignore[arg-type]
        assert store.read(queries.events, Window()) == []


BODIES = st.dictionaries(
    st.text(max_size=5), st.one_of(st.none(), st.text(), st.integers(), st.booleans())
)


@given(st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), BODIES), max_size=5))
def test_any_event_comes_back_as_it_was(rows: list[tuple[float, dict[str, str]]]) -> None:
    entries = [Entry(at_s, GPUS, body) for at_s, body in rows]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(MIGRATIONS[0])
        records.write_events(connection, entries)
        assert queries.gpu_events(connection) == entries


def with_report(run: Run, **changes: object) -> Run:
    return replace(run, report=replace(run.report, **changes))  # type: ignore[arg-type]


def test_only_runs_that_compare_are_usual_together(tmp_path: Path) -> None:
    double = run(1.0, 8.0)
    (sample,) = double.report.samples
    peaks = (Peak(1.0, 0.5), Peak(5.0, 0.5))  # a median between them compares with nothing
    on_battery = run(1.0, 12.0)
    of_then = on_battery.report.conditions | {"after.ac": False}
    runs = [
        with_report(on_battery, conditions=of_then),
        run(1.0, 1.0),
        run(1.0, 2.0, gpu="GPU-2"),
        run(1.0, 3.0, probe_version=2),
        run(1.0, 11.0, peer="GPU-2"),
        run(-50.0, 4.0),
        run(1.0, 5.0, flags=(Flag.BUSY,)),
        run(1.0, 6.0, flags=(Flag.COLD, Flag.LOW)),
        failed(1.0),
        with_report(double, samples=(replace(sample, peaks=peaks),)),
        run(1.0, 9.0, probe="nbody"),
        run(1.0, 10.0),
    ]
    series = StreamKey("GPU-1", "launch", "submit", 1)
    with opened(tmp_path) as store:
        assert store.append(runs) == []
        store.write(lambda c: c.execute("UPDATE samples SET median = 'many' WHERE median = 10.0"))
        assert store.read(queries.usual, ["launch", "triad"], 0.0) == {
            series: (1.0,),
            structs.replace(series, gpu="GPU-2"): (2.0,),
            structs.replace(series, version=2): (3.0,),
            structs.replace(series, peer="GPU-2"): (11.0,),
            structs.replace(series, on_battery=True): (12.0,),
        }


AT_ONCE = """
import sys, threading, typing
from gpud.agent.history.records import typed

sys.setswitchinterval(1e-6)
for number in range(100):
    kind = typing.NamedTuple(f"Row{number}", [(f"c{n}", typing.Optional[int]) for n in range(30)])
    together = threading.Barrier(4)

    def read():
        together.wait()
        assert len(list(typed([(1,) * 30], kind))) == 1

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_that_read_rows_of_a_new_type_at_once_do_not_end_the_process() -> None:
    """msgspec stores what it knows of a type before it has all of it, and a second thread falls."""
    ended = subprocess.run([sys.executable, "-c", AT_ONCE], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
