"""The judge with a real history: what a kill loses, what people hear, and what bends nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gpud.core.detector import State
from tests.agent.judging import World, life

if TYPE_CHECKING:
    from pathlib import Path


def test_an_update_that_made_it_slower_is_told_with_both_drivers(tmp_path: Path) -> None:
    async def story() -> None:
        world = World()
        async with life(tmp_path) as one:
            await one.keep(world.runs(120))
            await one.keep(world.runs(40, driver="576.02", level=12e-6 * 1.12))
            standing = one.standing()
        assert standing.verdict is not None
        assert standing.verdict.state is State.REGRESSED
        assert (standing.verdict.old_driver, standing.verdict.new_driver) == ("572.16", "576.02")
        assert [alarm.new_driver for alarm in standing.open] == ["576.02"]

    asyncio.run(story())


def test_a_kill_in_the_middle_of_a_verdict_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        world = World()
        runs = [*world.runs(100), *world.runs(30, driver="576.02", level=12e-6 * 1.2)]
        async with life(tmp_path / "straight") as one:
            await one.keep(runs)
            straight = one.states()
        async with life(tmp_path / "killed", killed=True) as one:
            await one.keep(runs[:110])
        async with life(tmp_path / "killed", killed=True) as one:
            await one.keep(runs[110:115])
        async with life(tmp_path / "killed") as one:
            await one.keep(runs[115:])
            assert one.states() == straight
        async with life(tmp_path / "killed") as one:
            assert one.states() == straight

    (tmp_path / "straight").mkdir()
    (tmp_path / "killed").mkdir()
    asyncio.run(story())


def test_what_was_found_is_an_alert_with_its_cause(tmp_path: Path) -> None:
    async def story() -> None:
        world = World()
        async with life(tmp_path) as one:
            await one.keep(world.runs(120))
            await one.keep(world.runs(40, driver="576.02", level=12e-6 * 1.12))
            await one.settled()
            (alert,) = one.board.read().alerts
        assert alert.firing
        assert [(cause.kind, cause.old, cause.new) for cause in alert.causes][:1] == [
            ("driver", "572.16", "576.02")
        ]

    asyncio.run(story())
