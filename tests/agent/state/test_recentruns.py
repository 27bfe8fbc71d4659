"""What the history gives back to the lines of small bars after a start."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from gpud.agent.history.store import History, Store
from gpud.agent.state import recent
from gpud.agent.state.board import Board
from gpud.agent.state.recent import HOUR_S, MOST
from gpud.agent.state.snapshot import RecentKey
from gpud.core.sample import Backend, Flag, Pace, ProbeSpec, Unit
from tests import snapshots
from tests.events import post, probes_listed
from tests.histories import BEGUN_S, failed, run

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.history.records import Run
    from gpud.agent.state.snapshot import Recent

SMALL = ProbeSpec("launch", Backend.CUDA, Pace.SMALL, Unit.SECONDS, ("submit",), 10, "x")


def recalled(directory: Path, runs: list[Run], spec: ProbeSpec = SMALL) -> dict[RecentKey, Recent]:
    with closing(Store(directory)) as store:
        store.append(runs)
    board = Board(snapshots.bare())

    async def start() -> None:
        history = History(directory)
        post(board, probes_listed((spec,), {}, 0.0))
        await asyncio.wait_for(recent.restore(history, board), 20)
        await history.close()

    asyncio.run(start())
    return dict(board.read().measure.recent)


def test_the_newest_clean_runs_come_back_whatever_lies_between(tmp_path: Path) -> None:
    runs = [
        one
        for n in range(MOST + 10)
        for one in (
            run(BEGUN_S + 60 * n, 1e-6 * (n + 1)),
            run(BEGUN_S + 60 * n + 20, 1.0, flags=(Flag.BUSY,)),
            failed(BEGUN_S + 60 * n + 40),
        )
    ]
    kept = recalled(tmp_path, runs)[RecentKey("GPU-1", "launch", "submit")]
    assert kept.at_s == tuple(BEGUN_S + 60.0 * n for n in range(10, MOST + 10))
    assert max(kept.medians) < 1e-4


def test_each_gpu_has_a_past_of_its_own(tmp_path: Path) -> None:
    runs = [
        run(BEGUN_S + n, float(n + 1), gpu=gpu) for n in range(70) for gpu in ("GPU-1", "GPU-2")
    ]
    found = recalled(tmp_path, runs)
    assert {series.gpu: len(one.at_s) for series, one in found.items()} == {
        "GPU-1": MOST,
        "GPU-2": MOST,
    }


def test_the_large_pace_comes_back_by_the_hour(tmp_path: Path) -> None:
    runs = [
        run(BEGUN_S + HOUR_S * hour + 900 * n, hour + 1.0) for hour in range(5) for n in range(4)
    ]
    found = recalled(tmp_path, runs, replace(SMALL, pace=Pace.LARGE))
    assert found[RecentKey("GPU-1", "launch", "submit")].medians == (1.0, 2.0, 3.0, 4.0, 5.0)


def test_rows_that_a_damaged_disk_gives_back_are_passed_over(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        store.append([run(BEGUN_S + n, n + 1.0) for n in range(4)])
        store.write(
            lambda rows: rows.executescript(
                "UPDATE samples SET median = 'x' WHERE run_id = 1;"
                "UPDATE samples SET unit = 'parsecs' WHERE run_id = 2;"
                "UPDATE runs SET conditions = '[' WHERE id = 3;"
            )
        )
    found = recalled(tmp_path, [])
    assert found[RecentKey("GPU-1", "launch", "submit")].medians == (3.0, 4.0)


def test_the_past_is_not_read_before_the_probes_are_listed(tmp_path: Path) -> None:
    board = Board(snapshots.bare())

    async def start() -> None:
        history = History(tmp_path)
        waiting = asyncio.create_task(recent.restore(history, board))
        done, _ = await asyncio.wait({waiting}, timeout=0.1)
        assert not done
        waiting.cancel()
        await history.close()

    asyncio.run(start())
    assert not board.changed.is_set()
