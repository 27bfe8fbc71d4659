"""The pass that keeps the history from growing: beside runs that are written, and killed anywhere.

The killed are real processes, forked, that SIGKILL themselves out of SQLite's own callbacks.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent.history import queries, retention, rollups
from gpud.agent.history.rollups import BELIEVED_HOURS
from gpud.agent.history.store import History, Store
from gpud.agent.state.board import Board
from gpud.core.sections import StoreSettings as Plan
from tests.events import made
from tests.histories import BEGUN_S, DAY_S, HOUR_S, done, hours, memory, opened, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PLAN = Plan(raw_days=2, rollup_days=3)
TABLES = ("runs", "samples", "rollups", "states")


def contents(folder: Path) -> dict[str, list[Any]]:
    with opened(folder) as store:
        assert store.set_aside is None
        return {
            table: store.read(
                lambda open_, table=table: open_.execute(f"SELECT * FROM {table}").fetchall()  # type: ignore[misc]  # noqa: S608
            )
            for table in TABLES
        }


def work(store: Store) -> None:
    done(store, rollups.roll_up)
    done(store, lambda open_: retention.forget_runs(open_, PLAN.raw_days))
    done(store, lambda open_: retention.forget_the_rest(open_, PLAN.rollup_days))


@pytest.fixture
def prepared() -> Iterator[Path]:
    """A history whose next pass has two hours to sum up, and runs and hours to delete."""
    with memory() as folder:
        (folder / "prepared").mkdir()
        with opened(folder / "prepared") as store:
            store.append(hours(9 * 24))
            done(store, rollups.roll_up)
            store.append(hours(2, since_s=BEGUN_S + 9 * DAY_S, each=3))
        yield folder / "prepared"


def killed_at(folder: Path, moment: int, watch: Callable[[Store, Callable[[], None]], None]) -> int:
    """Do the work in a process that kills itself at the n-th moment; give how it ended."""
    pid = os.fork()
    if pid == 0:
        try:
            left = moment

            def count() -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            store = Store(folder)
            store._connection.execute("PRAGMA synchronous=OFF")
            watch(store, count)
            work(store)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def each_statement(store: Store, count: Callable[[], None]) -> None:
    store._connection.set_trace_callback(lambda _: count())


def every_few_steps(store: Store, count: Callable[[], None]) -> None:
    store._connection.set_progress_handler(count, 300)


@pytest.mark.parametrize("watch", [each_statement, every_few_steps])
def test_killed_at_any_moment_no_run_is_lost_before_its_hour_and_the_next_pass_ends_it(
    prepared: Path, watch: Callable[[Store, Callable[[], None]], None]
) -> None:
    before = contents(prepared)
    whole = shutil.copytree(prepared, prepared.with_name("whole"))
    with opened(whole) as store:
        work(store)
    expected = contents(whole)
    assert len(expected["runs"]) < len(before["runs"])
    assert expected["rollups"] not in ([], before["rollups"])
    moment, ended = 0, -signal.SIGKILL
    while ended == -signal.SIGKILL:
        moment += 1
        folder = shutil.copytree(prepared, prepared.with_name(str(moment)))
        ended = killed_at(folder, moment, watch)
        left = contents(folder)
        kept = {row[0] for row in left["runs"]}
        gone = [at_s for run_id, at_s, *_ in before["runs"] if run_id not in kept]
        summed_up = {row[0] for row in (*before["rollups"], *left["rollups"])}
        assert {at_s // HOUR_S * HOUR_S for at_s in gone} <= summed_up
        assert {row[0] for row in left["samples"]} == {row[0] for row in left["runs"]}
        with opened(folder) as store:
            work(store)
        assert contents(folder) == expected
        shutil.rmtree(folder)
    assert ended == 0
    assert moment > 10


def test_a_pass_and_runs_that_finish_meanwhile_do_not_hinder_each_other(tmp_path: Path) -> None:
    async def story() -> None:
        history = History(tmp_path)
        await history.append(*hours(8 * 24))
        passing = asyncio.create_task(retention.keep(history, PLAN, rest_s=0))
        late_s = BEGUN_S + 8 * DAY_S
        for number in range(50):
            await history.append(run(late_s + number))
        await passing
        await retention.keep(history, PLAN, rest_s=0)
        await history.close()

    asyncio.run(story())
    found = contents(tmp_path)
    assert [row[1] for row in found["runs"]][-50:] == [BEGUN_S + 8 * DAY_S + n for n in range(50)]
    assert found["runs"][0][1] == BEGUN_S + (8 * 24 - BELIEVED_HOURS - 2 * 24) * HOUR_S
    assert len(found["rollups"]) > 0


def test_a_history_that_cannot_be_written_is_left_for_the_next_time(tmp_path: Path) -> None:
    async def story() -> None:
        history = History(tmp_path / "missing")
        await retention.keep(history, PLAN, rest_s=0)
        (tmp_path / "missing").mkdir()
        await history.append(*hours(3))
        await retention.keep(history, PLAN, rest_s=0)
        await history.close()

    asyncio.run(story())
    assert len(contents(tmp_path / "missing")["rollups"]) == 2


def test_how_large_it_is_is_told_and_nothing_while_it_cannot_be_read(tmp_path: Path) -> None:
    board = Board(made())

    async def story() -> None:
        history = History(tmp_path / "missing")
        await retention.measure(history, board)
        assert board.read().store is None
        (tmp_path / "missing").mkdir()
        await history.append(*hours(7))
        await retention.measure(history, board)
        await history.close()

    asyncio.run(story())
    size = board.read().store
    assert size is not None
    assert (size.runs, size.waiting, size.dropped) == (7, 0, 0)
    assert size.n_bytes > 4096 * 8, "what is in the log counts"
    assert size.first_s is not None


def test_the_oldest_moment_of_the_history_is_its_first_run_or_its_first_summed_hour(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as store:
        assert store.read(queries.first_s) is None
        store.append(hours(3))
        first_s = store.read(queries.first_s)
        assert first_s is not None
        work(store)
        assert store.read(queries.first_s) == first_s, "the hour of the first run begins before it"
        store.write(lambda t: t.executescript("DELETE FROM samples; DELETE FROM runs"))
        assert store.read(queries.first_s) == first_s // 3600 * 3600


def test_the_file_does_not_grow_once_as_much_is_deleted_as_is_written(tmp_path: Path) -> None:
    sizes = []
    with opened(tmp_path) as store:
        for day in range(24):
            store.append(hours(24, since_s=BEGUN_S + day * DAY_S, each=10))
            work(store)
            sizes.append(store.read(lambda open_: open_.execute("PRAGMA page_count").fetchone()[0]))
    assert sizes[5] > sizes[1]
    assert sizes[-1] <= sizes[12] * 1.02
