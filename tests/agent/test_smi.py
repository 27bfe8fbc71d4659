"""nvidia-smi as the agent meets it: real programs, each misbehaving in its own way."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent import processes, smi
from gpud.agent.telemetry.sources import nvidia_smi
from gpud.core.breaker import Standing, State
from gpud.core.events import BreakerChanged, SourceAnswered
from gpud.core.sample import Absent
from gpud.core.smi import arguments
from gpud.core.telemetry import Answer
from tests.agent.smi_world import UTILIZATION, WSL2, World, line, nvml, once, soon, values
from tests.agent.ticking import HELD_UP_S, ticking
from tests.fuse import stalling, usable
from tests.waiting import until

if TYPE_CHECKING:
    from gpud.agent.smi import Smi


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


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
        source = world.source(path, deadline_s=0.5)
        rests = []
        for _ in range(6):
            async with ticking() as gap:
                answer = await world.collect(source)
            assert answer is not None
            assert answer.reason == "hung"
            assert gap.largest_s < HELD_UP_S
            began = world.mono_s
            while not source._starts.may():
                world.later(50)
            rests.append(world.mono_s - began)
        assert rests == [300, 600, 1200, 2400, 3600, 3600]
        world.says("bin/nvidia-smi", line() + "\n")
        source._deadline_s = 20.0  # enough for one that is well, on a busy machine too
        assert values(await world.collect(source))["pstate"] == 8
        source._deadline_s = 0.5
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
    answer = once(world, path, deadline_s=600)  # beyond the time limit of a test
    assert answer.reason == "bad_output"
    assert "was ended" in str(answer.detail)
    assert peak_kib() - before_kib < 16 << 10
    with pytest.raises(ProcessLookupError):
        os.kill(int((world.root / "pid").read_text()), 0)


def test_a_gigabyte_of_complaints_costs_no_memory_either(world: World) -> None:
    path = world.program("bin/nvidia-smi", "head -c 50000000 /dev/zero >&2\nexit 9")
    Path("/proc/self/clear_refs").write_text("5")
    before_kib = peak_kib()
    assert once(world, path).reason == "driver_not_loaded"
    assert peak_kib() - before_kib < 16 << 10


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
            assert gap.largest_s < HELD_UP_S
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
    processes.reap()
    return not processes._left_behind
