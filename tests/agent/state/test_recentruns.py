"""What the history gives back to the lines of small bars after a start."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

from gpud.agent.history.store import History, Store
from gpud.agent.state import recent
from gpud.agent.state.board import Board
from gpud.agent.state.recent import MOST
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
