"""nvidia-smi as the agent meets it: real programs, each misbehaving in its own way."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent import children, smi
from gpud.agent.telemetry import nvidia_smi
from gpud.core import fields
from gpud.core.breaker import Standing, State
from gpud.core.events import BreakerChanged, SourceAnswered
from gpud.core.fields import WORTH_A_START
from gpud.core.sample import Absent, Reading
from gpud.core.smi import arguments, without
from gpud.core.telemetry import LEVELS, Answer, current
from tests.agent.smi_world import WSL2, World, line, soon, values
from tests.agent.ticking import ticking
from tests.fuse import stalling, usable
from tests.waiting import until

if TYPE_CHECKING:
    from gpud.agent.smi import Smi

UTILIZATION = frozenset({"utilization_gpu_ratio"})
PLENTY: dict[str, float | str | Absent] = dict.fromkeys(WORTH_A_START - UTILIZATION, 0.5) | {
    "driver_version": "572.16",
    "utilization_gpu_ratio": Absent.UNSUPPORTED,
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def once(world: World, path: Path, *, deadline_s: float = 10.0) -> Answer:
    async def story() -> Answer:
        source = world.source(path, deadline_s=deadline_s)
        answer = await world.collect(source)
        assert answer is not None
        await source.close()
        return answer

    return asyncio.run(story())


def nvml(world: World, **known: float | str | Absent) -> None:
    """Let NVML say so."""
    readings = tuple(
        Reading(None if fields.FIELDS[name].machine else 0, name, value, "nvml")
        for name, value in known.items()
    )
    answer = Answer("nvml", LEVELS.index("nvml"), world.wall_s, world.mono_s, readings)
    world.board.post(SourceAnswered(answer, world.wall_s))


def test_what_it_says_arrives_with_the_time_it_was_asked(world: World) -> None:
    answer = once(world, world.says("bin/nvidia-smi", line() + "\n"))
    assert values(answer)["utilization_gpu_ratio"] == 0.07
    assert values(answer)["power_watts"] is Absent.UNSUPPORTED
    assert (answer.taken_s, answer.holds_s) == (world.wall_s, 330)
    assert world.starts == [" ".join(arguments())]
    assert world.counted == 1


def test_it_gets_a_clean_environment_and_its_own_folder(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "1")
    seen = world.root / "seen"
    path = world.program("bin/nvidia-smi", f"pwd >{seen}; env >>{seen}; exit 9")
    once(world, path)
    folder, *environment = seen.read_text().splitlines()
    assert folder == str(path.parent)
    assert not [name for name in environment if name.startswith("SECRET")]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (1, "failed"),
        (2, "invalid_argument"),
        (3, "not_supported"),
        (4, "not_permitted"),
        (6, "no_device"),
        (9, "driver_not_loaded"),
        (12, "library_missing"),
        (15, "gpu_is_lost"),
        (126, "not_executable"),
        (127, "absent"),
        (255, "failed"),
    ],
)
def test_each_exit_code_is_a_reason_in_its_own_words(world: World, code: int, reason: str) -> None:
    answer = once(world, world.says("bin/nvidia-smi", "It \x1b[31mfailed.\nMore.\n", code))
    assert answer.reason == reason
    assert "It \\x1b[31mfailed." in str(answer.detail)
    assert not answer.readings


@pytest.mark.parametrize(
    ("script", "reason", "words"),
    [
        ("kill -SEGV $$", "crashed", "SIGSEGV"),
        ("kill -KILL $$", "crashed", "SIGKILL"),
        ("echo 'Aucun GPU, helas'", "bad_output", "Aucun GPU"),
        ("exit 0", "bad_output", "said nothing"),
        ("echo 'a, b'; echo 'c'", "bad_output", "a, b"),
        ("printf 'N\\0V\\0'", "bad_output", "breaks off"),
    ],
)
def test_whatever_else_it_does_is_told_by_name(
    world: World, script: str, reason: str, words: str
) -> None:
    answer = once(world, world.program("bin/nvidia-smi", script))
    assert answer.reason == reason
    assert words in str(answer.detail)


def test_what_windows_writes_is_read(world: World) -> None:
    said = f"{line()}\r\n".encode("utf-16")
    assert values(once(world, world.says("bin/nvidia-smi", said)))["pstate"] == 8


def test_one_that_is_not_there_is_told_once_counted_as_no_start_and_found_later(
    world: World,
) -> None:
    async def story() -> None:
        path = world.root / "bin/nvidia-smi"
        source = world.source(path)
        answer = await world.collect(source)
        assert answer is not None
        assert (answer.reason, world.counted) == ("absent", 0)
        assert str(path) in str(answer.detail)
        spawned = world.spawned
        world.later(10)
        assert await world.collect(source) is None
        assert world.spawned == spawned, "it was looked for again at once"
        world.later(300)
        assert await world.collect(source) is None
        world.says("bin/nvidia-smi", line() + "\n")
        world.later(300)
        assert values(await world.collect(source))["pstate"] == 8
        await source.close()

    asyncio.run(story())


def test_one_that_went_away_is_looked_for_in_the_other_places(world: World) -> None:
    first = world.says("usr/lib/wsl/lib/nvidia-smi", line() + "\n")
    world.says("usr/bin/nvidia-smi", line(pstate="P2") + "\n")

    async def story() -> None:
        source = linux(world)
        assert values(await world.collect(source))["pstate"] == 8
        first.unlink()
        world.later(301)
        answer = await world.collect(source)
        assert answer is not None
        assert answer.reason == "absent"
        world.later(301)
        assert values(await world.collect(source))["pstate"] == 2
        await source.close()

    asyncio.run(story())


def test_a_folder_or_a_plain_file_in_its_place_is_none(world: World) -> None:
    assert once(world, world.file("bin/nvidia-smi", "text")).reason == "absent"
    (world.root / "bin/folder").mkdir()
    world.later(301)
    assert once(world, world.root / "bin/folder").reason == "absent"


def test_one_that_hangs_is_ended_once_and_rests_for_longer_each_time(world: World) -> None:
    pids = world.root / "pids"
    path = world.program("bin/nvidia-smi", f"echo $$ >>{pids}\nexec sleep 100")

    async def story() -> None:
        source = world.source(path, deadline_s=0.2)
        rests = []
        for _ in range(6):
            async with ticking() as gap:
                answer = await world.collect(source)
            assert answer is not None
            assert answer.reason == "hung"
            assert gap.largest_s < 0.05
            began = world.mono_s
            while not source._starts.may():
                world.later(50)
            rests.append(world.mono_s - began)
        assert rests == [300, 600, 1200, 2400, 3600, 3600]
        world.says("bin/nvidia-smi", line() + "\n")
        assert values(await world.collect(source))["pstate"] == 8
        world.later(301)
        world.program("bin/nvidia-smi", f"echo $$ >>{pids}\nexec sleep 100")
        assert await world.collect(source) is not None
        world.later(301)
        assert source._starts.may(), "an answer in between ends the row"
        await source.close()

    asyncio.run(story())
    for pid in pids.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def peak_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def test_a_gigabyte_of_output_costs_no_memory_and_ends_the_program(world: World) -> None:
    path = world.program("bin/nvidia-smi", f"echo $$ >{world.root}/pid\nexec yes {line()!r}")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before_kib = peak_kib()
    began_s = time.monotonic()
    answer = once(world, path)
    assert answer.reason == "bad_output"
    assert "was ended" in str(answer.detail)
    assert time.monotonic() - began_s < 5, "it was listened to until the deadline"
    assert peak_kib() - before_kib < 16 << 10
    with pytest.raises(ProcessLookupError):
        os.kill(int((world.root / "pid").read_text()), 0)


def test_a_gigabyte_of_complaints_costs_no_memory_either(world: World) -> None:
    path = world.program("bin/nvidia-smi", "head -c 50000000 /dev/zero >&2\nexit 9")
    Path("/proc/self/clear_refs").write_text("5")
    before_kib = peak_kib()
    assert once(world, path).reason == "driver_not_loaded"
    assert peak_kib() - before_kib < 16 << 10


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
        process = children.ref(earlier.pid)
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
        path = world.program(
            "bin/nvidia-smi", f'exec python3 -c \'open("{stuck.path}", "rb", 0).read(1)\''
        )

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


def linux(world: World) -> Smi:
    source = nvidia_smi.create(world.context())
    assert isinstance(source, smi.Smi)
    return source


@pytest.mark.parametrize(
    ("release", "present", "expected"),
    [
        ("6.1.0-28-amd64\n", ["usr/bin/nvidia-smi"], "usr/bin/nvidia-smi"),
        (WSL2, ["usr/lib/wsl/lib/nvidia-smi"], "usr/lib/wsl/lib/nvidia-smi"),
        (
            WSL2,
            ["usr/bin/nvidia-smi", "usr/lib/wsl/lib/nvidia-smi"],
            "usr/lib/wsl/lib/nvidia-smi",
        ),
        (WSL2, ["usr/bin/nvidia-smi"], None),
    ],
)
def test_a_stray_one_is_never_started_in_wsl(
    world: World, release: str, present: list[str], expected: str | None
) -> None:
    world.kernel(release)
    for name in present:
        world.program(name, f"echo {name} >>{world.root}/which; exit 9")
    answer = asyncio.run(world.collect(linux(world)))
    assert answer is not None
    which = world.root / "which"
    assert (which.read_text().strip() if which.exists() else None) == expected
    assert (answer.reason == "absent") is (expected is None)


def test_the_configured_one_is_the_only_one(world: World) -> None:
    world.says("usr/bin/nvidia-smi", line() + "\n")
    other = world.says("opt/nvidia-smi", line(pstate="P2") + "\n")
    world.settings = f'[telemetry]\nnvidia_smi = "{other}"\n'
    assert values(asyncio.run(world.collect(linux(world))))["pstate"] == 2


def test_advice_is_that_of_the_machine(world: World) -> None:
    world.says("usr/bin/nvidia-smi", "", 9)
    on_linux = asyncio.run(world.collect(linux(world)))
    world.kernel(WSL2)
    world.says("usr/lib/wsl/lib/nvidia-smi", "", 9)
    world.later(301)
    in_wsl = asyncio.run(world.collect(linux(world)))
    assert on_linux is not None
    assert in_wsl is not None
    assert "modprobe" in str(on_linux.fix)
    assert "wsl --shutdown" in str(in_wsl.fix)


def test_it_is_not_started_beside_nvml_of_which_it_is_a_part(world: World) -> None:
    world.says("usr/bin/nvidia-smi", line() + "\n")
    source = linux(world)
    nvml(world, name="NVIDIA RTX", utilization_gpu_ratio=Absent.UNSUPPORTED)
    assert asyncio.run(world.collect(source, UTILIZATION)) is None
    silent = Answer("nvml", 5, world.wall_s, world.mono_s, reason="hung", detail="d")
    world.board.post(SourceAnswered(silent, world.wall_s))
    assert asyncio.run(world.collect(source, UTILIZATION)) is not None


@pytest.mark.parametrize("state", [State.OPEN, State.STUCK, State.HALF_OPEN])
def test_while_the_driver_hangs_it_is_not_started(world: World, state: State) -> None:
    world.says("usr/bin/nvidia-smi", line() + "\n")
    source = linux(world)
    world.board.post(BreakerChanged(Standing(state), world.wall_s))
    assert asyncio.run(world.collect(source)) is None
    assert world.starts == []
    world.board.post(BreakerChanged(Standing(State.CLOSED), world.wall_s))
    assert asyncio.run(world.collect(source)) is not None


@pytest.mark.skipif(not usable(), reason="needs root and /dev/fuse")
def test_a_drive_that_hangs_holds_up_nothing(world: World) -> None:
    """The program itself lies on the file system that answers no read."""
    with stalling(world.root / "drive") as drive:

        async def story() -> None:
            source = world.source(drive.path, deadline_s=0.5)
            async with ticking() as gap:
                answer = await world.collect(source)
            assert gap.largest_s < 0.05
            assert answer is not None
            assert answer.reason == "hung"
            assert drive.waiting.is_set()
            await source.close()
            drive.answer()

        asyncio.run(story())
        until(all_reaped, "the end of the program")


def test_a_note_says_who_was_started(world: World) -> None:
    path = world.program("bin/nvidia-smi", f"echo $$ >{world.root}/pid; exec sleep 100")

    async def story() -> int:
        source = world.source(path, deadline_s=60)
        asking = asyncio.create_task(world.collect(source))
        await soon((world.root / "pid").exists, "its start")
        asking.cancel()
        await asyncio.wait([asking])
        await source.close()
        return int(until(lambda: (world.root / "pid").read_text().strip(), "its pid"))

    pid = asyncio.run(story())
    note = json.loads((world.own / "nvidia_smi.json").read_text())
    assert note["process"]["pid"] == pid
    os.kill(pid, signal.SIGKILL)
    until(all_reaped, "the end of the program")


def all_reaped() -> bool:
    children.reap()
    return not children._left_behind
