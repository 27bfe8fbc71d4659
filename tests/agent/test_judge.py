"""The judge with a real history: what a kill loses, what people hear, and what bends nothing."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpud.agent import commands
from gpud.agent.staterows import ASIDE
from gpud.agent.store import FILE
from gpud.core.commands import Choice
from gpud.core.detector import Parameters, State
from gpud.core.health import Level
from gpud.core.sample import Unit
from gpud.core.streams import StreamKey, key
from tests.agent.judging import FIRST_S, World, gpu, life

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.agent.store import Run

QUICK = Parameters(look_span_s=0.0, window_span_s=0.0)
SUBMIT = StreamKey("GPU-0", "launch", "submit")


def rows(folder: Path, question: str, *values: object) -> list[Any]:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return connection.execute(question, values).fetchall()


def change(folder: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(folder / FILE)) as connection, connection:
        connection.execute(statement, values)


def update(world: World, before: int = 100, after: int = 40, factor: float = 1.12) -> list[Run]:
    """An update that costs 12 %."""
    first = world.runs(before)
    return first + world.runs(after, driver="576.02", level=world.level * factor)


async def lived(folder: Path, runs: Sequence[Run], *, killed: bool = False) -> dict[str, Any]:
    """Give the states after a life in which these runs came."""
    async with life(folder, killed=killed, parameters=QUICK) as one:
        await one.keep(runs)
        await one.settled()
        return {str(name): state for name, state in one.states().items()}


def test_an_update_that_made_it_slower_is_told_with_both_drivers(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as one:
            await one.keep(update(World()))
            standing = one.standing()
        assert standing.verdict is not None
        assert standing.verdict.state is State.REGRESSED
        assert (standing.verdict.old_driver, standing.verdict.new_driver) == ("572.16", "576.02")
        assert [alarm.new_driver for alarm in standing.open] == ["576.02"]

    asyncio.run(story())


def test_what_was_found_is_an_alert_with_its_cause(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as one:
            await one.keep(update(World()))
            await one.settled()
            (alert,) = one.board.read().alerts
        assert alert.firing
        assert [(cause.kind, cause.old, cause.new) for cause in alert.causes][:1] == [
            ("driver", "572.16", "576.02")
        ]

    asyncio.run(story())
    ((stream, body),) = rows(tmp_path, "SELECT stream, body FROM alarms")
    assert key(stream) == SUBMIT
    assert json.loads(body)["new_driver"] == "576.02"
    ((verdict,),) = rows(tmp_path, "SELECT body FROM verdicts")
    assert json.loads(verdict)["state"] == "regressed"


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**16), st.lists(st.integers(0, 140), min_size=1, max_size=3))
def test_a_kill_after_any_run_loses_nothing_and_tells_nothing_twice(
    seed: int, kills: list[int]
) -> None:
    async def story(folder: Path) -> None:
        world = World(modes=("submit", "roundtrip"))
        world.rng.seed(seed)
        runs = update(world, factor=1.2)
        (folder / "straight").mkdir()
        (folder / "killed").mkdir()
        straight = await lived(folder / "straight", runs)
        places = sorted({0, *kills, len(runs)})
        for first, last in pairwise(places):
            broken = await lived(folder / "killed", runs[first:last], killed=True)
        assert broken == straight
        told = "SELECT stream, seq, at_s, body FROM alarms ORDER BY stream, seq"
        assert rows(folder / "killed", told) == rows(folder / "straight", told)
        alerts = "SELECT fingerprint, starts_s, ends_s FROM alerts"
        assert rows(folder / "killed", alerts) == rows(folder / "straight", alerts)

    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(story(Path(scratch)))


def test_runs_that_come_while_the_past_is_read_are_judged_after_it(tmp_path: Path) -> None:
    async def story() -> None:
        runs = update(World())
        (tmp_path / "straight").mkdir()
        straight = await lived(tmp_path / "straight", runs)
        (tmp_path / "busy").mkdir()
        await lived(tmp_path / "busy", runs[:90], killed=True)
        async with life(tmp_path / "busy", parameters=QUICK, begun=False) as one:
            keeping = asyncio.create_task(one.keep(runs[90:]))
            await one.begin()
            await keeping
            assert {str(name): state for name, state in one.states().items()} == straight

    asyncio.run(story())


def test_the_old_driver_back_ends_the_alert(tmp_path: Path) -> None:
    async def story() -> None:
        world = World()
        async with life(tmp_path, parameters=QUICK) as one:
            await one.keep(update(world, factor=1.2))
            await one.settled()
            assert [alert.firing for alert in one.board.read().alerts] == [True]
            await one.keep(world.runs(60, driver="572.16", level=12e-6))
            await one.settled()
            assert [alert.firing for alert in one.board.read().alerts] == [False]
            assert one.standing().open == ()

    asyncio.run(story())


def test_a_clock_that_is_set_back_a_day_bends_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        world = World()
        await lived(tmp_path, world.runs(100), killed=True)
        world.at_s -= 86400
        runs = world.runs(40, driver="576.02", level=12e-6 * 1.12)
        async with life(tmp_path, parameters=QUICK, killed=True) as one:
            await one.keep(runs)
            assert [alarm.new_driver for alarm in one.standing().open] == ["576.02"]
        async with life(tmp_path, parameters=QUICK) as one:
            assert len(one.standing().open) == 1
            await one.keep(world.runs(5))
            assert one.standing().seen == 145

    asyncio.run(story())


def test_numbers_of_runs_that_begin_anew_are_still_behind_the_states(tmp_path: Path) -> None:
    async def story() -> None:
        world = World()
        await lived(tmp_path, world.runs(50))
        change(tmp_path, "DELETE FROM samples")
        change(tmp_path, "DELETE FROM runs")  # the machine was off for longer than runs are kept
        await lived(tmp_path, world.runs(10), killed=True)
        async with life(tmp_path, parameters=QUICK) as one:
            assert one.standing().seen == 60

    asyncio.run(story())


@pytest.mark.parametrize("body", ["{", "[]", '{"detector": {"version": 0}}', "\x80"])
def test_a_damaged_state_is_set_aside_and_learnt_anew_alone(tmp_path: Path, body: str) -> None:
    async def story() -> None:
        world = World(modes=("submit", "roundtrip"))
        straight = await lived(tmp_path, world.runs(60))
        change(
            tmp_path,
            "UPDATE states SET body = CAST(? AS TEXT) WHERE name LIKE '%submit%'",
            body.encode("latin-1"),
        )
        async with life(tmp_path, parameters=QUICK) as one:
            assert {str(name): state for name, state in one.states().items()} == straight
            health = one.board.read().health["detector"]
            assert (health.level, health.reason) == (Level.DEGRADED, "state_set_aside")
            assert "submit" in (health.detail or "")

    asyncio.run(story())
    ((name,),) = rows(tmp_path, "SELECT name FROM states WHERE name LIKE ?", f"{ASIDE}%")
    assert "submit" in name


def test_without_the_contexts_all_is_learnt_anew_and_nothing_told_twice(tmp_path: Path) -> None:
    async def story() -> None:
        world = World()
        await lived(tmp_path, update(world, factor=1.2))
        change(tmp_path, "UPDATE states SET body = '{}' WHERE name = 'contexts'")
        async with life(tmp_path, parameters=QUICK) as one:
            await one.settled()
            assert len(one.standing().open) == 1
            assert len(one.board.read().alerts) == 1

    asyncio.run(story())
    assert len(rows(tmp_path, "SELECT seq FROM alarms")) == 1


def test_a_history_without_states_is_learnt_from_and_what_holds_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        await lived(tmp_path, update(World(), factor=1.2))
        for table in ("states", "alarms", "verdicts", "alerts"):  # as an older release left it
            change(tmp_path, f"DELETE FROM {table}")
        async with life(tmp_path, parameters=QUICK) as one:
            assert "detector" not in one.board.read().health
            await one.settled()
            assert [alert.firing for alert in one.board.read().alerts] == [True]

    asyncio.run(story())
    assert len(rows(tmp_path, "SELECT seq FROM alarms")) == 1


def test_while_nothing_can_be_written_judging_goes_on_and_is_written_later(tmp_path: Path) -> None:
    async def story() -> None:
        runs = update(World(), factor=1.2)
        (tmp_path / "straight").mkdir()
        straight = await lived(tmp_path / "straight", runs)
        (folder := tmp_path / "full").mkdir()
        async with life(folder, parameters=QUICK) as one:
            await one.keep(runs[:90])
            with closing(sqlite3.connect(folder / FILE, timeout=0)) as other:
                other.execute("BEGIN IMMEDIATE")  # as good as a full disk, and quicker
                await one.refused(runs[90:])
                assert len(one.standing().open) == 1
                await one.settled(refused=True)
                assert [alert.firing for alert in one.board.read().alerts] == [True]
            await one.settled()
        assert await lived(folder, []) == straight
        assert len(rows(folder, "SELECT id FROM runs")) == len(runs)
        assert len(rows(folder, "SELECT seq FROM alarms")) == 1

    asyncio.run(story())


def test_what_is_accepted_is_usual_and_its_alert_ends(tmp_path: Path) -> None:
    async def story() -> None:
        world = World()
        async with life(tmp_path, parameters=QUICK, killed=True) as one:
            await one.keep(update(world, factor=1.2))
            await one.settled()
            commands.accept(tmp_path, Choice(probe="launch"), now_s=world.at_s)
            await one.settled()
            assert one.standing().open == ()
            assert one.standing().slowdown == pytest.approx(1.0, rel=0.03)
            assert [alert.firing for alert in one.board.read().alerts] == [False]
            await one.keep(world.runs(20))
            straight = one.states()
        async with life(tmp_path, parameters=QUICK) as one:
            assert one.states() == straight

    asyncio.run(story())


def test_what_is_said_while_no_agent_runs_is_heard_at_its_place(tmp_path: Path) -> None:
    async def story() -> None:
        world = World()
        await lived(tmp_path, world.runs(50), killed=True)
        commands.reset(tmp_path, Choice(mode="submit"), now_s=world.at_s)
        async with life(tmp_path, parameters=QUICK, killed=True) as one:
            assert (one.standing().seen, one.standing().judged) == (50, 0)
            await one.keep(world.runs(30))
            straight = one.states()
        async with life(tmp_path, parameters=QUICK) as one:
            assert one.states() == straight

    asyncio.run(story())


def test_an_alarm_after_a_reset_is_another_one(tmp_path: Path) -> None:
    async def story() -> None:
        world = World()
        async with life(tmp_path, parameters=QUICK) as one:
            await one.keep(update(world, factor=1.2))
            await one.settled()
            commands.reset(tmp_path, Choice(), now_s=world.at_s)
            await one.settled()
            await one.keep(world.runs(100))
            await one.keep(world.runs(40, driver="580.88", level=world.level * 1.2))
            await one.settled()

    asyncio.run(story())
    seqs = [seq for (seq,) in rows(tmp_path, "SELECT seq FROM alarms ORDER BY id")]
    assert len(seqs) == 2
    assert seqs[0] < 140 <= seqs[1]


def test_streams_that_are_gone_leave_the_memory_and_come_back_as_they_were(tmp_path: Path) -> None:
    async def story() -> None:
        first, second = World(), World(device=gpu(1), unit=Unit.SECONDS)
        async with life(tmp_path, parameters=QUICK) as one:
            await one.keep(first.runs(30))
            second.at_s = FIRST_S + 9 * 86400
            await one.keep(second.runs(5))
            await one.judge._write()
            await one.settled()
            assert {stream.gpu for stream in one.board.read().streams} == {"GPU-1"}
            assert {stream.gpu for stream in one.states()} == {"GPU-1"}
            first.at_s = second.at_s
            await one.keep(first.runs(1))
            assert one.board.read().streams[SUBMIT].seen == 31
            await one.keep(second.runs(1))
        async with life(tmp_path, parameters=QUICK) as one:
            assert one.board.read().streams[SUBMIT].seen == 31

    asyncio.run(story())
