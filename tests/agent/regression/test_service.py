"""The regression service with a real history: kills, damage, commands and alerts."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpud.agent.history import records
from gpud.agent.history.schema import FILE
from gpud.agent.history.store import Store
from gpud.agent.regression.commands import BASELINE_ACCEPTED, BASELINE_RESET, Command
from gpud.agent.regression.detector import Spans
from gpud.agent.regression.evaluation import stream_key
from gpud.core.sample import Flag, Unit
from gpud.core.streams import Choice, StreamKey
from tests.agent.regression.lives import FIRST_S, World, gpu, life

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpud.agent.history.records import Run
    from gpud.core.sample import Condition

QUICK = Spans(0.0, 0.0)
SUBMIT = StreamKey("GPU-0", "launch", "submit")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A disk that can be filled, and that does not keep a test waiting."""
    (disk := tmp_path / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)  # a failed test left it open


def rows(folder: Path, question: str, *values: object) -> list[Any]:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return connection.execute(question, values).fetchall()


def change(folder: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(folder / FILE)) as connection, connection:
        connection.execute(statement, values)


def reset_before(folder: Path, choice: Choice, at_s: float) -> None:
    """Write a reset as version one's command line did, with no agent to do it."""
    command = Command(0, at_s, BASELINE_RESET, 0, choice)
    with closing(Store(folder)) as store:
        store.write(lambda rows: records.write_command(rows, command, 0))


def update(world: World, before: int = 100, after: int = 40, factor: float = 1.12) -> list[Run]:
    """An update that costs 12 %."""
    first = world.runs(before)
    return first + world.runs(after, driver="576.02", level=world.level * factor)


async def lived(folder: Path, runs: Sequence[Run], *, killed: bool = False) -> dict[str, Any]:
    """Give the states after a life in which these runs came."""
    async with life(folder, killed=killed, spans=QUICK) as agent:
        await agent.keep(runs)
        await agent.settled()
        return {str(name): state for name, state in agent.states().items()}


async def test_slower_driver_is_an_alert_with_its_cause(folder: Path) -> None:
    async with life(folder) as agent:
        await agent.keep(update(World(), after=60))
        await agent.settled()
        (alert,) = agent.board.read().alerts.alerts
    assert alert.firing
    assert [(cause.kind, cause.old, cause.new) for cause in alert.causes][:1] == [
        ("driver", "572.16", "576.02")
    ]
    ((stream, body),) = rows(folder, "SELECT stream, body FROM alarms")
    assert stream_key(stream) == SUBMIT
    assert json.loads(body)["new_driver"] == "576.02"
    ((verdict,),) = rows(folder, "SELECT body FROM verdicts")
    assert json.loads(verdict)["state"] == "regressed"


@settings(max_examples=6, deadline=None)
@given(
    st.integers(0, 2**16),
    st.dictionaries(st.integers(1, 139), st.booleans(), min_size=1, max_size=4),
)
def test_kill_or_stop_after_any_run_loses_nothing_and_repeats_no_alert(
    seed: int, ends: dict[int, bool]
) -> None:
    async def story(folder: Path) -> None:
        world = World(modes=("submit", "roundtrip"))
        world.rng.seed(seed)
        runs = update(world, factor=1.2)
        (folder / "straight").mkdir()
        (folder / "killed").mkdir()
        straight = await lived(folder / "straight", runs)
        for first, last in pairwise(sorted({0, *ends, len(runs)})):
            killed = ends.get(last, False)
            broken = await lived(folder / "killed", runs[first:last], killed=killed)
        assert broken == straight
        told = "SELECT stream, seq, at_s, body FROM alarms ORDER BY stream, seq"
        assert rows(folder / "killed", told) == rows(folder / "straight", told)
        alerts = "SELECT fingerprint, starts_s, ends_s FROM alerts"
        assert rows(folder / "killed", alerts) == rows(folder / "straight", alerts)

    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        asyncio.run(story(Path(scratch)))


async def test_return_of_the_old_driver_ends_the_alert(folder: Path) -> None:
    world = World()
    async with life(folder, spans=QUICK) as agent:
        await agent.keep(update(world, factor=1.2))
        await agent.settled()
        assert [alert.firing for alert in agent.board.read().alerts.alerts] == [True]
        await agent.keep(world.runs(60, driver="572.16", level=12e-6))
        await agent.settled()
        assert [alert.firing for alert in agent.board.read().alerts.alerts] == [False]
        assert agent.standing().open == ()


ALL = ("states", "alarms", "verdicts", "alerts")


@pytest.mark.parametrize(
    "changes",
    [
        ("UPDATE states SET body = '{}' WHERE name = 'contexts'",),
        ("UPDATE states SET body = '{}' WHERE name LIKE 'stream%'",),
        tuple(f"DELETE FROM {table}" for table in ALL),  # noqa: S608  # ours
    ],
    ids=["damaged contexts", "damaged streams", "as an older release left it"],
)
async def test_state_that_is_damaged_or_gone_is_learnt_again_and_repeats_and_ends_no_alert(
    folder: Path, changes: tuple[str, ...]
) -> None:
    world = World()
    await lived(folder, update(world, factor=1.2))
    for statement in changes:
        change(folder, statement)
    async with life(folder, spans=QUICK) as agent:
        await agent.settled()
        assert len(agent.standing().open) == 1
        (alert,) = agent.board.read().alerts.alerts
        ((seq,),) = rows(folder, "SELECT seq FROM alarms")
        assert alert.firing, "the GPU is as slow as it was"
        if not changes[0].startswith("DELETE"):  # no later alarm is taken for this one
            assert agent.standing().seen == seq + 1 + 140
        assert len(rows(folder, "SELECT seq FROM alarms")) == 1
        await agent.keep(world.runs(60, driver="572.16", level=12e-6))
        await agent.settled()
        assert [alert.firing for alert in agent.board.read().alerts.alerts] == [False]


async def test_damaged_state_of_a_stream_has_that_stream_alone_learnt_again(folder: Path) -> None:
    world = World(modes=("submit", "roundtrip"))
    runs = update(world, factor=1.2)
    async with life(folder, spans=QUICK) as agent:
        await agent.keep(runs[:50])
        await agent.regression.decide(BASELINE_RESET, 0, Choice(mode="submit"))
        await agent.keep(runs[50:])
        await agent.settled()
        before = {key.mode: state for key, state in agent.states().items()}
        judged = agent.standing("submit").judged
    change(folder, "UPDATE states SET body = '{}' WHERE name LIKE '%submit%'")
    async with life(folder, spans=QUICK) as agent:
        await agent.settled()
        after = {key.mode: state for key, state in agent.states().items()}
        assert after["roundtrip"] == before["roundtrip"]
        assert len(agent.standing("submit").open) == 1
        assert agent.standing("submit").judged == judged, "the reset counts again"
        assert [alert.firing for alert in agent.board.read().alerts.alerts] == [True]
    assert len(rows(folder, "SELECT seq FROM alarms")) == 2
    ((kept,),) = rows(folder, "SELECT body FROM states WHERE name LIKE '%submit%'")
    assert kept == after["submit"]


async def test_new_history_file_gets_the_states_of_all_streams(folder: Path) -> None:
    one_gpu, other = World(), World(device=gpu(1))
    async with life(folder, spans=QUICK) as agent:
        await agent.keep(one_gpu.runs(30) + other.runs(30))
        await agent.regression.save()
        for suffix in ("", "-wal", "-shm"):
            (folder / f"{FILE}{suffix}").write_bytes(b"no database")
        await agent.keep(other.runs(1))
        straight = agent.states()
    async with life(folder, spans=QUICK) as agent:
        assert agent.states() == straight


async def test_full_disk_stops_no_evaluation_and_results_are_written_later(folder: Path) -> None:
    runs = update(World(), factor=1.2)
    (folder / "straight").mkdir()
    straight = await lived(folder / "straight", runs)
    (full := folder / "full").mkdir()
    async with life(full, spans=QUICK) as agent:
        await agent.keep(runs[:90])
        size = os.statvfs(full)
        (ballast := full / "ballast").write_bytes(b"x" * (size.f_bavail * size.f_frsize))
        await agent.refused(runs[90:])
        assert len(agent.standing().open) == 1
        await agent.settled(refused=True)
        assert [alert.firing for alert in agent.board.read().alerts.alerts] == [True]
        assert rows(full, "SELECT count(*) FROM alarms") == [(0,)]
        ballast.unlink()
        await agent.settled()
    assert await lived(full, []) == straight
    assert rows(full, "SELECT count(*) FROM runs") == [(len(runs),)]
    assert rows(full, "SELECT count(*) FROM alarms") == [(1,)]


async def test_accepted_speed_is_the_baseline_and_its_alert_ends(folder: Path) -> None:
    world = World()
    async with life(folder, spans=QUICK, killed=True) as agent:
        await agent.keep(update(world, factor=1.2))
        await agent.settled()
        agent.mono_s = world.at_s - FIRST_S
        await agent.regression.decide(BASELINE_ACCEPTED, 7, Choice(probe="launch"))
        body = json.loads(rows(folder, "SELECT body FROM events")[0][0])
        assert body == {"after_run": 140, "probe": "launch", "uid": 7}
        assert agent.standing().open == ()
        assert agent.standing().slowdown == pytest.approx(1.0, rel=0.03)
        assert [alert.firing for alert in agent.board.read().alerts.alerts] == [False]
        await agent.keep(world.runs(20))
        straight = agent.states()
    async with life(folder, spans=QUICK) as agent:
        assert agent.states() == straight


async def test_command_has_one_place_among_the_runs_live_and_in_a_replay(folder: Path) -> None:
    runs, choice = World().runs(80), Choice(mode="submit")
    (heard := folder / "heard").mkdir()
    async with life(heard, spans=QUICK) as agent:
        await agent.keep(runs[:50])
        await agent.regression.decide(BASELINE_RESET, 7, choice)
        await agent.keep(runs[50:])
        straight = agent.states()
    (found := folder / "found").mkdir()
    await lived(found, runs[:50], killed=True)
    reset_before(found, choice, runs[49].finished_s)
    async with life(found, spans=QUICK) as agent:
        await agent.keep(runs[50:])
        assert agent.states() == straight


async def test_stream_without_a_sample_for_a_week_is_hidden_and_returns_as_it_was(
    folder: Path,
) -> None:
    first, second = World(), World(device=gpu(1), unit=Unit.SECONDS)
    async with life(folder, spans=QUICK) as agent:
        await agent.keep(first.runs(30))
        second.at_s = FIRST_S + 9 * 86400
        await agent.keep(second.runs(5))
        await agent.settled()
        assert {stream.gpu for stream in agent.board.read().streams} == {"GPU-1"}
        first.at_s = second.at_s
        await agent.keep(first.runs(1))
        assert agent.board.read().streams[SUBMIT].seen == 31
        await agent.keep(second.runs(1))
    async with life(folder, spans=QUICK) as agent:
        assert agent.board.read().streams[SUBMIT].seen == 31
    second.at_s += 9 * 86400
    await lived(folder, second.runs(5))
    first.at_s = second.at_s
    await lived(folder, first.runs(1), killed=True)
    async with life(folder, spans=QUICK) as agent:
        assert agent.board.read().streams[SUBMIT].seen == 32


async def test_more_slow_samples_are_explained_by_the_slow_ones(folder: Path) -> None:
    free: dict[str, Condition] = {
        "after.clock_sm_hertz": 2.4e9,
        "after.power_limit_watts": 115.0,
    }
    capped: dict[str, Condition] = {
        "after.clock_sm_hertz": 1.8e9,
        "after.power_limit_watts": 80.0,
    }

    world = World(modes=("roundtrip", "submit"))
    async with life(folder, spans=QUICK) as agent:
        await agent.keep(world.runs(480, conditions=free))
        await agent.keep([world.run(Flag.LOW, conditions=capped, level=15e-6) for _ in range(110)])
        await agent.settled()
        (alert,) = agent.board.read().alerts.alerts
    assert "more often in a slow power state" in alert.summary
    assert [(cause.kind, cause.old, cause.new) for cause in alert.causes] == [
        ("power_limit", "115 W", "80 W"),
        ("sm_clock", "2400 MHz", "1800 MHz"),
    ]


async def test_alert_of_a_stream_without_a_sample_for_a_week_ends(folder: Path) -> None:
    slow, other = World(), World(device=gpu(1))
    async with life(folder, spans=QUICK) as agent:
        await agent.keep(update(slow))
        await agent.settled()
        for days, uptime_h, fires in ((3, 2, True), (8, 2, True), (8, 3, False)):
            other.at_s = slow.at_s + days * 86400
            await agent.keep(other.runs(3))
            agent.mono_s = uptime_h * 3600.0
            await agent.regression.save()
            await agent.settled()
            assert [alert.firing for alert in agent.board.read().alerts.alerts] == [fires]
