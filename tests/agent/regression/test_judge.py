"""The judge with a real history: what a kill loses, what people hear, and what bends nothing."""

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
from gpud.agent.regression.commands import BASELINE_ACCEPTED, BASELINE_RESET, Choice, Command
from gpud.agent.regression.detector import Parameters
from gpud.agent.regression.streams import key
from gpud.core.health import Level
from gpud.core.sample import Backend, Flag, Inventory, Pace, ProbeSpec, StreamKey, Unit
from tests.agent.regression.judging import FIRST_S, World, gpu, life
from tests.events import inventory_taken, post, probes_listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpud.agent.history.records import Run
    from gpud.core.sample import Condition

QUICK = Parameters(look_span_s=0.0, window_span_s=0.0)
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
    async with life(folder, killed=killed, parameters=QUICK) as one:
        await one.keep(runs)
        await one.settled()
        return {str(name): state for name, state in one.states().items()}


def test_what_was_found_is_an_alert_with_its_cause(folder: Path) -> None:
    async def story() -> None:
        async with life(folder) as one:
            await one.keep(update(World(), after=60))
            await one.settled()
            (alert,) = one.board.read().alerts.alerts
        assert alert.firing
        assert [(cause.kind, cause.old, cause.new) for cause in alert.causes][:1] == [
            ("driver", "572.16", "576.02")
        ]

    asyncio.run(story())
    ((stream, body),) = rows(folder, "SELECT stream, body FROM alarms")
    assert key(stream) == SUBMIT
    assert json.loads(body)["new_driver"] == "576.02"
    ((verdict,),) = rows(folder, "SELECT body FROM verdicts")
    assert json.loads(verdict)["state"] == "regressed"


@settings(max_examples=6, deadline=None)
@given(
    st.integers(0, 2**16),
    st.dictionaries(st.integers(1, 139), st.booleans(), min_size=1, max_size=4),
)
def test_a_kill_or_a_stop_after_any_run_loses_nothing_and_tells_nothing_twice(
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


def test_runs_that_come_while_the_past_is_read_are_judged_after_it(folder: Path) -> None:
    async def story() -> None:
        runs = update(World())
        (folder / "straight").mkdir()
        straight = await lived(folder / "straight", runs)
        (folder / "busy").mkdir()
        await lived(folder / "busy", runs[:90], killed=True)
        async with life(folder / "busy", parameters=QUICK, begun=False) as one:
            keeping = asyncio.create_task(one.keep(runs[90:]))
            await one.begin()
            await keeping
            assert {str(name): state for name, state in one.states().items()} == straight

    asyncio.run(story())


def test_the_old_driver_back_ends_the_alert(folder: Path) -> None:
    async def story() -> None:
        world = World()
        async with life(folder, parameters=QUICK) as one:
            await one.keep(update(world, factor=1.2))
            await one.settled()
            assert [alert.firing for alert in one.board.read().alerts.alerts] == [True]
            await one.keep(world.runs(60, driver="572.16", level=12e-6))
            await one.settled()
            assert [alert.firing for alert in one.board.read().alerts.alerts] == [False]
            assert one.standing().open == ()

    asyncio.run(story())


def test_a_clock_that_is_set_back_a_day_bends_nothing(folder: Path) -> None:
    async def story() -> None:
        world = World()
        await lived(folder, world.runs(100), killed=True)
        world.at_s -= 86400
        runs = world.runs(40, driver="576.02", level=12e-6 * 1.12)
        async with life(folder, parameters=QUICK, killed=True) as one:
            await one.keep(runs)
            assert [alarm.new_driver for alarm in one.standing().open] == ["576.02"]
        async with life(folder, parameters=QUICK) as one:
            assert len(one.standing().open) == 1
            await one.keep(world.runs(5))
            assert one.standing().seen == 145

    asyncio.run(story())


def test_numbers_of_runs_that_begin_anew_are_still_behind_the_states(folder: Path) -> None:
    async def story() -> None:
        world = World()
        await lived(folder, world.runs(50))
        change(folder, "DELETE FROM samples")
        change(folder, "DELETE FROM runs")  # the machine was off for longer than runs are kept
        await lived(folder, world.runs(10), killed=True)
        async with life(folder, parameters=QUICK) as one:
            assert one.standing().seen == 60

    asyncio.run(story())


@pytest.mark.parametrize("body", ["{", "[]", '{"detector": {"version": 0}}', "\x80"])
def test_a_damaged_state_is_learnt_anew_alone(folder: Path, body: str) -> None:
    async def story() -> None:
        world = World(modes=("submit", "roundtrip"))
        straight = await lived(folder, world.runs(60))
        change(
            folder,
            "UPDATE states SET body = CAST(? AS TEXT) WHERE name LIKE '%submit%'",
            body.encode("latin-1"),
        )
        async with life(folder, parameters=QUICK) as one:
            assert {str(name): state for name, state in one.states().items()} == straight
            health = one.board.read().health["detector"]
            assert (health.level, health.reason) == (Level.DEGRADED, "state_damaged")
            assert "submit" in (health.detail or "")

    asyncio.run(story())


def test_without_the_contexts_all_is_learnt_anew_and_nothing_told_twice(folder: Path) -> None:
    async def story() -> None:
        world = World()
        await lived(folder, update(world, factor=1.2))
        change(folder, "UPDATE states SET body = '{}' WHERE name = 'contexts'")
        async with life(folder, parameters=QUICK) as one:
            await one.settled()
            assert len(one.standing().open) == 1
            assert len(one.board.read().alerts.alerts) == 1
            ((seq,),) = rows(folder, "SELECT seq FROM alarms")
            assert one.standing().seen == seq + 1 + 140  # no later alarm is taken for this one

    asyncio.run(story())
    assert len(rows(folder, "SELECT seq FROM alarms")) == 1


def test_a_history_without_states_is_learnt_from_and_what_holds_is_told(folder: Path) -> None:
    async def story() -> None:
        await lived(folder, update(World(), factor=1.2))
        for table in ("states", "alarms", "verdicts", "alerts"):  # as an older release left it
            change(folder, f"DELETE FROM {table}")  # noqa: S608  # ours
        async with life(folder, parameters=QUICK) as one:
            assert "detector" not in one.board.read().health
            await one.settled()
            assert [alert.firing for alert in one.board.read().alerts.alerts] == [True]

    asyncio.run(story())
    assert len(rows(folder, "SELECT seq FROM alarms")) == 1


def test_a_new_history_file_gets_the_states_of_all_streams(folder: Path) -> None:
    async def story() -> None:
        one_gpu, other = World(), World(device=gpu(1))
        async with life(folder, parameters=QUICK) as one:
            await one.keep(one_gpu.runs(30) + other.runs(30))
            await one.regression.save()
            for suffix in ("", "-wal", "-shm"):
                (folder / f"{FILE}{suffix}").unlink()
            await one.keep(other.runs(1))
            straight = one.states()
        async with life(folder, parameters=QUICK) as one:
            assert one.states() == straight

    asyncio.run(story())


def test_while_nothing_can_be_written_judging_goes_on_and_is_written_later(folder: Path) -> None:
    async def story() -> None:
        runs = update(World(), factor=1.2)
        (folder / "straight").mkdir()
        straight = await lived(folder / "straight", runs)
        (full := folder / "full").mkdir()
        async with life(full, parameters=QUICK) as one:
            await one.keep(runs[:90])
            size = os.statvfs(full)
            (ballast := full / "ballast").write_bytes(b"x" * (size.f_bavail * size.f_frsize))
            await one.refused(runs[90:])
            assert len(one.standing().open) == 1
            await one.settled(refused=True)
            assert [alert.firing for alert in one.board.read().alerts.alerts] == [True]
            assert rows(full, "SELECT count(*) FROM alarms") == [(0,)]
            ballast.unlink()
            await one.settled()
        assert await lived(full, []) == straight
        assert rows(full, "SELECT count(*) FROM runs") == [(len(runs),)]
        assert rows(full, "SELECT count(*) FROM alarms") == [(1,)]

    asyncio.run(story())


def test_what_is_accepted_is_usual_and_its_alert_ends(folder: Path) -> None:
    async def story() -> None:
        world = World()
        async with life(folder, parameters=QUICK, killed=True) as one:
            await one.keep(update(world, factor=1.2))
            await one.settled()
            one.mono_s = world.at_s - FIRST_S
            await one.regression.decide(BASELINE_ACCEPTED, 7, Choice(probe="launch"))
            body = json.loads(rows(folder, "SELECT body FROM events")[0][0])
            assert body == {"after_run": 140, "probe": "launch", "uid": 7}
            assert one.standing().open == ()
            assert one.standing().slowdown == pytest.approx(1.0, rel=0.03)
            assert [alert.firing for alert in one.board.read().alerts.alerts] == [False]
            await one.keep(world.runs(20))
            straight = one.states()
        async with life(folder, parameters=QUICK) as one:
            assert one.states() == straight

    asyncio.run(story())


def test_decision_in_the_history_of_version_one_is_taken_at_its_place(folder: Path) -> None:
    async def story() -> None:
        world = World()
        await lived(folder, world.runs(50), killed=True)
        reset_before(folder, Choice(mode="submit"), world.at_s)
        async with life(folder, parameters=QUICK, killed=True) as one:
            assert (one.standing().seen, one.standing().judged) == (50, 0)
            await one.keep(world.runs(30))
            straight = one.states()
        async with life(folder, parameters=QUICK) as one:
            assert one.states() == straight

    asyncio.run(story())


def test_decision_has_one_place_among_the_runs_live_and_in_a_replay(folder: Path) -> None:
    async def story() -> None:
        runs, choice = World().runs(80), Choice(mode="submit")
        (heard := folder / "heard").mkdir()
        async with life(heard, parameters=QUICK) as one:
            await one.keep(runs[:50])
            await one.regression.decide(BASELINE_RESET, 7, choice)
            await one.keep(runs[50:])
            straight = one.states()
        (found := folder / "found").mkdir()
        await lived(found, runs[:50], killed=True)
        reset_before(found, choice, runs[49].finished_s)
        async with life(found, parameters=QUICK) as one:
            await one.keep(runs[50:])
            assert one.states() == straight

    asyncio.run(story())


def test_an_alarm_after_a_reset_is_another_one(folder: Path) -> None:
    async def story() -> None:
        world = World()
        async with life(folder, parameters=QUICK) as one:
            await one.keep(update(world, factor=1.2))
            await one.settled()
            one.mono_s = world.at_s - FIRST_S
            await one.regression.decide(BASELINE_RESET, 7)
            await one.keep(world.runs(100))
            await one.keep(world.runs(40, driver="580.88", level=world.level * 1.2))
            await one.settled()

    asyncio.run(story())
    seqs = [seq for (seq,) in rows(folder, "SELECT seq FROM alarms ORDER BY id")]
    assert len(seqs) == 2
    assert seqs[0] < 140 <= seqs[1]


def test_a_stream_without_a_sample_for_a_week_is_hidden_and_returns_as_it_was(
    folder: Path,
) -> None:
    async def story() -> None:
        first, second = World(), World(device=gpu(1), unit=Unit.SECONDS)
        async with life(folder, parameters=QUICK) as one:
            await one.keep(first.runs(30))
            second.at_s = FIRST_S + 9 * 86400
            await one.keep(second.runs(5))
            await one.settled()
            assert {stream.gpu for stream in one.board.read().regression.streams} == {"GPU-1"}
            first.at_s = second.at_s
            await one.keep(first.runs(1))
            assert one.board.read().regression.streams[SUBMIT].seen == 31
            await one.keep(second.runs(1))
        async with life(folder, parameters=QUICK) as one:
            assert one.board.read().regression.streams[SUBMIT].seen == 31
        second.at_s += 9 * 86400
        await lived(folder, second.runs(5))
        first.at_s = second.at_s
        await lived(folder, first.runs(1), killed=True)
        async with life(folder, parameters=QUICK) as one:
            assert one.board.read().regression.streams[SUBMIT].seen == 32

    asyncio.run(story())


def test_more_slow_samples_are_explained_by_the_slow_ones(folder: Path) -> None:
    free: dict[str, Condition] = {
        "after.clock_sm_hertz": 2.4e9,
        "after.power_limit_watts": 115.0,
    }
    capped: dict[str, Condition] = {
        "after.clock_sm_hertz": 1.8e9,
        "after.power_limit_watts": 80.0,
    }

    async def story() -> None:
        world = World(modes=("roundtrip", "submit"))
        often = Parameters(window_span_s=0.0, share_window=20)
        async with life(folder, parameters=often) as one:
            await one.keep(world.runs(100, conditions=free))
            await one.keep([world.run(Flag.LOW, conditions=capped, level=15e-6) for _ in range(40)])
            await one.settled()
            (alert,) = one.board.read().alerts.alerts
        assert "more often in a slow power state" in alert.summary
        assert [(cause.kind, cause.old, cause.new) for cause in alert.causes] == [
            ("power_limit", "115 W", "80 W"),
            ("sm_clock", "2400 MHz", "1800 MHz"),
        ]

    asyncio.run(story())


@pytest.mark.parametrize("what", ["here", "gone", "newer"])
def test_what_nobody_can_measure_any_more_is_told_no_longer(folder: Path, what: str) -> None:
    async def story() -> None:
        slow, other = World(), World(device=gpu(1))
        async with life(folder, parameters=QUICK) as one:
            await one.keep(update(slow))
            await one.settled()
            devices = (gpu(1),) if what == "gone" else (gpu(0), gpu(1))
            post(one.board, inventory_taken(Inventory(devices), slow.at_s, 0.0))
            version = 2 if what == "newer" else 1
            spec = ProbeSpec(
                "launch", Backend.CUDA, Pace.SMALL, Unit.SECONDS, ("submit",), 1.0, "", version
            )
            post(one.board, probes_listed((spec,), {}, slow.at_s))
            other.at_s = slow.at_s + 3 * 86400
            await one.keep(other.runs(3))
            await one.regression.save()
            await one.settled()
            assert [alert.firing for alert in one.board.read().alerts.alerts] == [True]
            other.at_s = slow.at_s + 8 * 86400
            await one.keep(other.runs(3))
            await one.regression.save()
            await one.settled()
            assert [alert.firing for alert in one.board.read().alerts.alerts] == [what == "here"]

    asyncio.run(story())
