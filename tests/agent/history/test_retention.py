"""Hours rolled up and old rows deleted: under wrong clocks, beside new runs, and killed anywhere.

The killed are real processes, forked, that SIGKILL themselves out of SQLite's own callbacks.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent.history import queries, records, retention
from gpud.agent.history.records import Entry
from gpud.agent.history.retention import BELIEVED_HOURS
from gpud.agent.history.store import History, Store
from gpud.agent.state.board import Board
from gpud.core.sample import Flag
from gpud.core.sections import StoreSettings as Plan
from tests import snapshots
from tests.histories import (
    BEGUN_S,
    DAY_S,
    HOUR_S,
    column,
    done,
    failed,
    hours,
    killing,
    memory,
    opened,
    run,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpud.agent.history.records import Run

PLAN = Plan(raw_days=2, rollup_days=3)
TABLES = ("runs", "samples", "rollups", "states")
YEAR_S = 365 * DAY_S
FIGURES = "hour_s, driver, version, n, flagged, median, p10, p90, minimum, maximum"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path) as made:
        yield made


def rows(store: Store, query: str) -> list[tuple[Any, ...]]:
    return store.read(lambda connection: connection.execute(query).fetchall())


def change(store: Store, query: str, *values: object) -> None:
    store.write(lambda connection: connection.execute(query, values))


def written(store: Store, *runs: Run) -> None:
    """Append runs, and roll up the hours that are over."""
    assert store.append(runs) == []
    done(store, retention.roll_up)


def forget(store: Store, *, raw_days: float = 30, rollup_days: float = 730) -> None:
    done(store, lambda open_: retention.forget_runs(open_, raw_days))
    done(store, lambda open_: retention.forget_the_rest(open_, rollup_days))


def summaries(store: Store) -> list[tuple[Any, ...]]:
    return rows(store, f"SELECT {FIGURES} FROM rollups ORDER BY hour_s, driver, version")  # noqa: S608


def rolled_hours(store: Store) -> list[object]:
    return column(store, "SELECT hour_s FROM rollups ORDER BY hour_s")


def run_times(store: Store) -> list[float]:
    return [float(str(at)) for at in column(store, "SELECT finished_s FROM runs ORDER BY id")]


def test_hour_that_is_over_is_rolled_up_by_driver_and_version_without_flagged_runs(
    store: Store,
) -> None:
    written(
        store,
        *(run(BEGUN_S + n, figure) for n, figure in enumerate((1e-5, 2e-5, 3e-5, 4e-5, 5e-5))),
        run(BEGUN_S + 6, 9e-5, flags=(Flag.BUSY,)),
        run(BEGUN_S + 7, 2e-5, driver_version="576.02"),
        run(BEGUN_S + 8, 3e-5, driver_version=None, probe_version=2),
    )
    assert summaries(store) == []
    only_flagged = run(BEGUN_S + HOUR_S, 9e-5, flags=(Flag.LOW, Flag.COLD))
    written(store, only_flagged, run(BEGUN_S + 2 * HOUR_S))
    p10, p90 = pytest.approx(1.4e-5), pytest.approx(4.6e-5)
    assert summaries(store) == [
        (BEGUN_S, "", 2, 1, 0, 3e-5, 3e-5, 3e-5, 3e-5, 3e-5),
        (BEGUN_S, "572.16", 1, 5, 1, 3e-5, p10, p90, 1e-5, 5e-5),
        (BEGUN_S, "576.02", 1, 1, 0, 2e-5, 2e-5, 2e-5, 2e-5, 2e-5),
        (BEGUN_S + HOUR_S, "572.16", 1, 0, 1, None, None, None, None, None),
    ]


def test_failed_runs_and_damaged_figures_are_skipped(store: Store) -> None:
    store.append([failed(BEGUN_S), run(BEGUN_S + 1), run(BEGUN_S + 2), run(BEGUN_S + HOUR_S)])
    change(store, "UPDATE samples SET median = 'many' WHERE run_id = 2")
    change(store, "UPDATE runs SET conditions = '{half' WHERE id = 3")
    written(store)
    assert [row[1:5] for row in summaries(store)] == [("", 1, 1, 0)]


@pytest.mark.parametrize("progress", ["[]", "{half", '{"hours":"many"}', '{"hours":[null]}'])
def test_rolled_up_again_from_a_damaged_progress_nothing_changes(
    store: Store, progress: str
) -> None:
    written(store, *hours(5, each=3))
    before = summaries(store)
    assert len(before) == 4
    change(store, "UPDATE states SET body = ?", progress)
    written(store)
    assert summaries(store) == before
    (body,) = column(store, "SELECT body FROM states")
    assert len(json.loads(str(body))["hours"]) == 4


def test_run_that_comes_late_is_added_to_its_hour_unless_the_others_are_deleted(
    store: Store,
) -> None:
    written(store, *hours(3, each=2))
    written(store, run(BEGUN_S + 7, 3e-5), *hours(40 * 24, since_s=BEGUN_S + 3 * HOUR_S))
    assert [row[3] for row in summaries(store)][:4] == [3, 2, 2, 1]
    forget(store)
    assert run_times(store)[0] > BEGUN_S + DAY_S
    written(store, run(BEGUN_S + 7, 9.0), *hours(2, since_s=BEGUN_S + 41 * DAY_S))
    assert summaries(store)[0][3] == 3


def test_runs_and_hours_go_by_their_own_age_and_no_run_before_its_hour(store: Store) -> None:
    store.append(hours(40 * 24))
    forget(store)
    assert len(run_times(store)) == 40 * 24, "nothing is rolled up yet"
    written(store)
    forget(store)
    believed_s = BEGUN_S + (40 * 24 - 1 - BELIEVED_HOURS) * HOUR_S  # the last hour goes on
    assert run_times(store)[0] == believed_s - 30 * DAY_S
    assert column(store, "SELECT count(*) FROM samples") == [len(run_times(store))]
    assert len(rolled_hours(store)) == 40 * 24 - 1
    forget(store, raw_days=2, rollup_days=10)
    assert rolled_hours(store)[0] == believed_s - 10 * DAY_S
    assert run_times(store)[0] == believed_s - 2 * DAY_S


@pytest.mark.parametrize("away_s", [YEAR_S, 40 * DAY_S, -DAY_S, -YEAR_S, -30 * YEAR_S])
def test_clock_that_is_wrong_for_two_days_deletes_nothing(store: Store, away_s: float) -> None:
    there_s = BEGUN_S + 20 * DAY_S
    written(store, *hours(20 * 24), *hours(48, since_s=there_s + away_s))
    forget(store)
    assert len(run_times(store)) == 22 * 24
    written(store, *hours(24, since_s=there_s + 2 * DAY_S))  # and it is set right again
    forget(store)
    assert len(run_times(store)) == 23 * 24
    assert set(range(BEGUN_S, there_s, HOUR_S)) <= set(rolled_hours(store))


def test_after_a_long_absence_old_runs_stay_until_gpud_has_run_for_three_days(
    store: Store,
) -> None:
    back_s = BEGUN_S + 100 * DAY_S
    written(store, *hours(10 * 24), *hours(BELIEVED_HOURS, since_s=back_s))
    forget(store)
    assert len(run_times(store)) == 10 * 24 + BELIEVED_HOURS
    written(store, *hours(2, since_s=back_s + BELIEVED_HOURS * HOUR_S))
    forget(store)
    assert run_times(store)[0] == back_s
    assert rolled_hours(store)[0] == BEGUN_S


def test_wrong_times_among_right_ones_stay_and_go_with_them(store: Store) -> None:
    early, late = 1.0, BEGUN_S + 9.0 * YEAR_S
    store.append([*hours(24), run(early), run(late), run(2.0), run(3.0)])
    change(store, "UPDATE runs SET finished_s = 9e999 WHERE finished_s = 2.0")
    change(store, "UPDATE runs SET finished_s = 'noon' WHERE finished_s = 3.0")
    written(store, *hours(20 * 24, since_s=BEGUN_S + DAY_S))
    forget(store)
    times = column(store, "SELECT finished_s FROM runs")
    assert {early, late, float("inf"), "noon"} <= set(times)
    written(store, *hours(30 * 24, since_s=BEGUN_S + 21 * DAY_S))
    forget(store)
    assert min(run_times(store)) > BEGUN_S + 2 * DAY_S
    assert late not in run_times(store)


def test_rows_that_must_last_are_never_deleted(store: Store) -> None:
    late_s = BEGUN_S + 39.0 * DAY_S
    events = [
        Entry(BEGUN_S, "gpu_seen", {"uuid": "GPU-1"}),
        Entry(BEGUN_S, "gpu_forgotten", {"uuid": "GPU-2"}),
        Entry(BEGUN_S + 1, "driver_version", {"old": "a", "new": "1"}),
        Entry(BEGUN_S + 2, "driver_version", {"old": "a", "new": "2"}),
        Entry(BEGUN_S + 3, "kernel", {"old": "a", "new": "3"}),
        Entry(BEGUN_S + 5, "baseline_accepted", {"after_run": 30}),
        Entry(BEGUN_S + 6, "baseline_accepted", {"after_run": 400}),
        Entry(BEGUN_S + 7, "baseline_accepted", {"after_run": 30}),
    ]
    store.write(records.write_events, events)
    for name, updated_s, ends_s in (
        ("fires", float(BEGUN_S), None),
        ("over", float(BEGUN_S), BEGUN_S + 5.0),
        ("under a clock set back", late_s, BEGUN_S + 5.0),
    ):
        values = (name, float(BEGUN_S), updated_s, ends_s, "{}")
        change(store, "INSERT INTO alerts VALUES (?, ?, ?, ?, ?)", *values)
    for at_s in (float(BEGUN_S), late_s):
        for table in ("alarms (stream, seq, at_s, body)", "verdicts (stream, since_s, at_s, body)"):
            change(store, f"INSERT INTO {table} VALUES ('[]', ?, ?, '{{}}')", int(at_s), at_s)  # noqa: S608
    change(store, "INSERT INTO states VALUES ('contexts', 300, 0, '{}'), ('other', 0, 0, '{}')")
    written(store, *hours(40 * 24))
    forget(store, raw_days=2, rollup_days=10)
    stay = [events[at] for at in (0, 1, 3, 4, 6, 7)]  # the detectors are at 300
    assert rows(store, "SELECT kind, body FROM events ORDER BY id") == [
        (entry.kind, records.encoded(entry.body)) for entry in stay
    ]
    fingerprints = column(store, "SELECT fingerprint FROM alerts ORDER BY 1")
    assert fingerprints == ["fires", "under a clock set back"]
    assert column(store, "SELECT at_s FROM alarms") == [late_s]
    assert column(store, "SELECT at_s FROM verdicts") == [late_s]
    names = column(store, "SELECT name FROM states ORDER BY name")
    assert names == ["contexts", "other", "rollups"]


# The whole pass


def contents(folder: Path) -> dict[str, list[Any]]:
    with opened(folder) as store:
        assert store.set_aside is None
        return {table: rows(store, f"SELECT * FROM {table}") for table in TABLES}  # noqa: S608


def work(store: Store) -> None:
    done(store, retention.roll_up)
    forget(store, raw_days=PLAN.raw_days, rollup_days=PLAN.rollup_days)


def killed_at(folder: Path, moment: int) -> int:
    """Do the work in a process that kills itself at the n-th statement; give how it ended."""
    pid = os.fork()
    if pid == 0:
        try:
            store = Store(folder)
            store._connection.execute("PRAGMA synchronous=OFF")
            store._connection.set_trace_callback(killing(moment))
            work(store)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_killed_at_any_statement_no_run_is_lost_before_its_hour_and_the_next_pass_ends_it() -> None:
    with memory() as place:
        prepared = place / "prepared"  # two hours to roll up, and runs and hours to delete
        prepared.mkdir()
        with opened(prepared) as store:
            written(store, *hours(9 * 24))
            store.append(hours(2, since_s=BEGUN_S + 9 * DAY_S, each=3))
        before = contents(prepared)
        whole = shutil.copytree(prepared, place / "whole")
        with opened(whole) as store:
            work(store)
        expected = contents(whole)
        assert len(expected["runs"]) < len(before["runs"])
        assert expected["rollups"] not in ([], before["rollups"])
        moment, ended = 0, -signal.SIGKILL
        while ended == -signal.SIGKILL:
            moment += 1
            folder = shutil.copytree(prepared, place / str(moment))
            ended = killed_at(folder, moment)
            left = contents(folder)
            stay = {row[0] for row in left["runs"]}
            gone = [at_s for run_id, at_s, *_ in before["runs"] if run_id not in stay]
            rolled_up = {row[0] for row in (*before["rollups"], *left["rollups"])}
            assert {at_s // HOUR_S * HOUR_S for at_s in gone} <= rolled_up
            assert {row[0] for row in left["samples"]} == stay
            with opened(folder) as store:
                work(store)
            assert contents(folder) == expected
            shutil.rmtree(folder)
    assert ended == 0
    assert moment > 10


async def test_pass_and_runs_that_finish_meanwhile_do_not_hinder_each_other(tmp_path: Path) -> None:
    late_s = BEGUN_S + 8 * DAY_S

    history = History(tmp_path)
    await history.append(*hours(8 * 24))
    passing = asyncio.create_task(retention.keep(history, PLAN, rest_s=0))
    for number in range(50):
        await history.append(run(late_s + number))
    await passing
    await retention.keep(history, PLAN, rest_s=0)
    await history.close()
    after = contents(tmp_path)
    assert [row[1] for row in after["runs"]][-50:] == [late_s + n for n in range(50)]
    assert after["runs"][0][1] == BEGUN_S + (8 * 24 - BELIEVED_HOURS - 2 * 24) * HOUR_S
    assert len(after["rollups"]) > 0


async def test_history_that_cannot_be_written_or_measured_is_left_for_the_next_time(
    tmp_path: Path,
) -> None:
    board = Board(snapshots.bare())

    history = History(tmp_path / "missing")
    await retention.keep(history, PLAN, rest_s=0)
    await retention.measure(history, board)
    assert board.read().store is None
    (tmp_path / "missing").mkdir()
    await history.append(*hours(7))
    await retention.keep(history, PLAN, rest_s=0)
    await retention.measure(history, board)
    await history.close()
    assert len(contents(tmp_path / "missing")["rollups"]) == 6
    size = board.read().store
    assert size is not None
    assert (size.runs, size.waiting, size.dropped) == (7, 0, 0)
    assert size.n_bytes > 4096 * 8, "what is in the log counts"


def test_oldest_moment_of_the_history_is_its_first_run_or_its_first_rolled_up_hour(
    store: Store,
) -> None:
    assert store.read(queries.first_s) is None
    written(store, *hours(3, since_s=BEGUN_S + 60))
    assert store.read(queries.first_s) == BEGUN_S + 60
    store.write(lambda t: t.executescript("DELETE FROM samples; DELETE FROM runs"))
    assert store.read(queries.first_s) == BEGUN_S
    written(store, run(BEGUN_S))
    change(store, "UPDATE runs SET finished_s = 'noon'")
    assert store.read(queries.first_s) is None, "a damaged row says nothing"


def test_file_does_not_grow_once_as_much_is_deleted_as_is_written(store: Store) -> None:
    sizes = []
    for day in range(24):
        store.append(hours(24, since_s=BEGUN_S + day * DAY_S, each=10))
        work(store)
        sizes.append(rows(store, "PRAGMA page_count")[0][0])
    assert sizes[5] > sizes[1]
    assert sizes[-1] <= sizes[12] * 1.02
