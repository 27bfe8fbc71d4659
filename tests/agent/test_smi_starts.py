"""When nvidia-smi is started, and when it is not: seldom, not in vain, never two."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gpud.agent import processes
from gpud.core.fields import WORTH_A_START
from gpud.core.sample import Absent
from gpud.core.smi import arguments, without
from gpud.core.telemetry import Answer, current
from tests.agent.smi_world import PLENTY, UTILIZATION, World, line, nvml, once, soon, values
from tests.fuse import stalling, usable


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_there_is_one_start_in_five_minutes_however_often_it_is_asked(world: World) -> None:
    path = world.says("bin/nvidia-smi", "", 9)

    async def story() -> None:
        source = world.source(path)
        for _ in range(120):
            await world.collect(source)
            world.later(10)
        await source.close()

    asyncio.run(story())
    assert len(world.starts) == world.counted == 4


def test_a_restart_of_the_agent_grants_no_start_and_a_wall_clock_set_back_none_either(
    world: World,
) -> None:
    path = world.says("bin/nvidia-smi", line() + "\n")
    once(world, path)

    async def again() -> Answer | None:
        source = world.source(path)
        answer = await world.collect(source)
        await source.close()
        return answer

    began_mono_s = world.mono_s
    for seconds in (1, 200, 98):
        world.later(seconds)
        world.wall_s -= 86_400
        kept = asyncio.run(again())
        assert kept is not None
        assert kept.taken_mono_s == began_mono_s
    assert len(world.starts) == 1
    world.later(40)
    assert asyncio.run(again()) is not None
    assert len(world.starts) == 2


def test_a_restart_after_a_sleep_does_not_show_what_was_said_before_it(world: World) -> None:
    path = world.says("bin/nvidia-smi", line() + "\n")
    assert once(world, path).reason is None
    world.wall_s += 8 * 3600  # while the machine slept, its monotonic clock did not run

    async def again() -> Answer | None:
        source = world.source(path)
        answer = await world.collect(source)
        await source.close()
        return answer

    world.later(1)
    assert asyncio.run(again()) is None
    assert len(world.starts) == 1


def test_a_restart_shows_what_was_said_as_old_as_it_is_and_not_for_longer(world: World) -> None:
    path = world.says("bin/nvidia-smi", line(power__draw="[Unknown Error]") + "\n")
    before = once(world, path)
    world.later(200)
    after = once(world, path)
    assert after == before
    world.later(131)
    path.unlink()
    assert once(world, path).reason == "absent"
    assert len(world.starts) == 1


@pytest.mark.parametrize(
    "kept",
    [
        "",
        "not json",
        '{"boot_id": "another", "started_mono_s": NOW}',
        '{"boot_id": "BOOT", "started_mono_s": 1e18}',
        '{"boot_id": "BOOT", "started_mono_s": -5}',
        '{"boot_id": "BOOT"}',
        '{"boot_id": "\udcff"}',
        '{"boot_id": "BOOT", "started_mono_s": -5, "x": ' + "[" * 100_000,
    ],
    ids=range(8),
)
def test_a_note_of_another_boot_or_of_none_holds_nobody_up(world: World, kept: str) -> None:
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    (world.own / "nvidia_smi.json").write_text(
        kept.replace("BOOT", boot_id).replace("NOW", str(world.mono_s - 1)),
        errors="surrogateescape",
    )
    assert once(world, world.says("bin/nvidia-smi", line() + "\n")).reason is None


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ('"power_watts"', '"no_such_field"'),
        ('"gpu":0,"field":"power_watts"', '"gpu":-1,"field":"power_watts"'),
        ('"taken_mono_s":', '"taken_mono_s":1e9,"x":'),
    ],
)
def test_an_answer_that_was_kept_and_cannot_have_been_said_is_not_shown(
    world: World, word: str, other: str
) -> None:
    path = world.says("bin/nvidia-smi", line() + "\n")
    once(world, path)
    note = world.own / "nvidia_smi.json"
    kept = note.read_text()
    assert word in kept
    note.write_text(kept.replace(word, other, 1))

    async def story() -> None:
        assert await world.source(path).collect(WORTH_A_START) is None

    asyncio.run(story())


def test_starts_that_cannot_be_limited_do_not_happen(world: World) -> None:
    path = world.says("bin/nvidia-smi", line() + "\n")
    world.own.rmdir()
    answer = once(world, path)
    assert answer.reason == "unlimited"
    assert str(world.own) in str(answer.fix)
    assert world.starts == []


def test_one_that_an_earlier_agent_left_running_is_waited_for(world: World) -> None:
    path = world.says("bin/nvidia-smi", line() + "\n")

    async def story() -> None:
        earlier = await asyncio.create_subprocess_exec("sleep", "100")
        process = processes.ref(earlier.pid)
        assert process is not None
        source = world.source(path)
        source._starts.begin()
        source._starts.began(process)
        await source.close()
        world.later(400)
        source = world.source(path)
        assert await world.collect(source) is None
        earlier.kill()
        await earlier.wait()
        await soon(source._starts.may, "the end of the process")
        assert await world.collect(source) is not None
        await source.close()

    asyncio.run(story())


@pytest.mark.skipif(not usable(), reason="needs root and /dev/fuse")
def test_one_in_state_d_is_left_alone_and_no_second_one_is_started(world: World) -> None:
    with stalling(world.root / "stuck") as stuck:
        path = world.program("bin/nvidia-smi", f"read _ <{stuck.path}")  # there at once

        async def story() -> None:
            source = world.source(path, deadline_s=1.0)
            answer = await world.collect(source)
            assert answer is not None
            assert answer.reason == "hung"
            assert "was killed and is still there (state D" in str(answer.detail)
            world.later(100_000)
            assert await world.collect(source) is None
            assert len(world.starts) == 1
            stuck.answer()
            await soon(source._starts.may, "the end of the process")
            assert await world.collect(source) is not None
            await source.close()

        asyncio.run(story())


@pytest.mark.parametrize("code", [0, 2, 6])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_what_it_does_not_know_is_left_out_at_the_next_start(
    world: World, code: int, encoding: str
) -> None:
    said = 'Field "memory.reserved" is not a valid field to query.\n'.encode(encoding)
    path = world.says("bin/nvidia-smi", said, code)
    left_out = without(frozenset(), "memory.reserved")

    async def story() -> None:
        source = world.source(path)
        answer = await world.collect(source)
        assert answer is not None
        assert answer.reason == ("no_device" if code == 6 else "invalid_argument")
        assert "memory.reserved" in str(answer.detail)
        world.says("bin/nvidia-smi", line(left_out) + "\n")
        world.later(301)
        assert values(await world.collect(source))["memory_reserved_bytes"] is Absent.UNSUPPORTED
        await source.close()

    asyncio.run(story())
    assert world.starts[-1] == " ".join(arguments(left_out))


def test_what_it_does_not_know_is_not_learned_again_after_a_restart(world: World) -> None:
    said = b'Field "memory.reserved" is not a valid field to query.\n'
    path = world.says("bin/nvidia-smi", said, 2)

    async def one_life() -> None:
        source = world.source(path)
        await world.collect(source)
        await source.close()

    asyncio.run(one_life())
    world.later(301)
    asyncio.run(one_life())
    assert world.starts[-1] == " ".join(arguments(without(frozenset(), "memory.reserved")))


def test_what_nobody_gives_starts_it_once_and_again_under_another_driver(world: World) -> None:
    path = world.says("bin/nvidia-smi", line(utilization__gpu="[N/A]") + "\n")

    async def story() -> None:
        source = world.source(path)
        for driver, starts in (("572.16", 1), ("576.02", 2)):
            for _ in range(500):
                nvml(world, **PLENTY | {"driver_version": driver})
                await world.collect(source, UTILIZATION)
                world.later(10)
            assert len(world.starts) == starts
        await source.close()

    asyncio.run(story())


def test_what_was_learned_outlives_a_restart_of_the_agent(world: World) -> None:
    path = world.says("bin/nvidia-smi", line(utilization__gpu="Insufficient Permissions") + "\n")
    nvml(world, **PLENTY)
    once(world, path)
    world.later(200)

    async def story() -> None:
        source = world.source(path)
        for _ in range(800):  # more than two hours
            nvml(world, **PLENTY)
            await world.collect(source, UTILIZATION)
            world.later(10)
        await source.close()

    asyncio.run(story())
    assert len(world.starts) == 1


def test_what_one_of_two_gpus_gives_is_asked_for_again(world: World) -> None:
    both = (
        f"{line(count='2')}\n{line(index='1', count='2', uuid='GPU-2', utilization__gpu='N/A')}\n"
    )
    path = world.says("bin/nvidia-smi", both)

    async def story() -> None:
        source = world.source(path)
        for _ in range(3):  # a laptop that was closed in between: nothing of it is shown
            assert await world.collect(source, UTILIZATION) is not None
            world.later(4000)
        await source.close()

    asyncio.run(story())
    assert len(world.starts) == 3


def test_another_driver_is_asked_for_everything(world: World) -> None:
    path = world.says("bin/nvidia-smi", 'Field "pstate" is not a valid field to query.\n', 2)

    async def story() -> None:
        source = world.source(path)
        nvml(world, driver_version="572.16")
        for _ in range(2):
            await world.collect(source)
            world.later(301)
        nvml(world, driver_version="576.02")
        await world.collect(source)
        await source.close()

    asyncio.run(story())
    without_it = " ".join(arguments(frozenset({"pstate"})))
    assert world.starts == [" ".join(arguments()), without_it, " ".join(arguments())]


def test_what_failed_is_asked_for_again_after_an_hour(world: World) -> None:
    path = world.says("bin/nvidia-smi", line(utilization__gpu="[Unknown Error]") + "\n")

    async def story() -> None:
        source = world.source(path)
        for _ in range(1100):  # three hours
            nvml(world, **PLENTY)
            await world.collect(source, UTILIZATION)
            world.later(10)
        await source.close()

    asyncio.run(story())
    assert len(world.starts) == 4


def test_as_long_as_it_is_needed_no_value_of_it_gets_too_old(world: World) -> None:
    path = world.says("bin/nvidia-smi", line() + "\n")

    async def story() -> None:
        source = world.source(path)
        for _ in range(200):
            readings = current(world.board.read().telemetry, world.mono_s)
            wanted = WORTH_A_START - {r.field for r in readings if not isinstance(r.value, Absent)}
            await world.collect(source, wanted)
            readings = current(world.board.read().telemetry, world.mono_s)
            assert not [r.field for r in readings if r.value is Absent.STALE]
            world.later(10)
        await source.close()

    asyncio.run(story())
    assert len(world.starts) == 7


def test_what_a_better_source_gives_is_no_reason_to_start_it(world: World) -> None:
    path = world.says("bin/nvidia-smi", line() + "\n")

    async def story() -> None:
        source = world.source(path)
        assert await world.collect(source, frozenset()) is None
        assert await world.collect(source) is not None
        for _ in range(100):
            nvml(world, **dict.fromkeys(WORTH_A_START, 0.5))
            world.later(10)
            assert await world.collect(source, frozenset()) is None
        await source.close()

    asyncio.run(story())
    assert len(world.starts) == 1
