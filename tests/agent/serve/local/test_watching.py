"""What ``gpud top`` is sent: NVML is asked each second, and where it must not be, seldom."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec

from gpud.agent.serve.local import watching
from gpud.agent.serve.local.watching import Watching
from gpud.agent.state import status as documents
from gpud.agent.state.board import Board
from gpud.agent.telemetry import collection
from gpud.agent.telemetry.collection import Collection, SourceContext
from gpud.core.settings import parse
from gpud.document.status import Status
from gpud.requests import GpuProcess, TopLine
from gpud.show.gpus import by_gpu
from tests.agent.telemetry.nvml_source import Clock
from tests.events import answers_to, made
from tests.standins.build import build_libnvml, rewrite_script

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

WSL2 = "6.6.87.2-microsoft-standard-WSL2"
PROCESSES = "device.0.compute_pids 4711:1048576,4712\ndevice.0.graphics_pids 4711:2048\n"
POWER = "nvmlDeviceGetPowerUsage"


@dataclass
class World:
    """An agent's telemetry with NVML's stand-in, and everybody who is connected."""

    home: Path
    kernel: str = ""
    script: str = PROCESSES
    clock: Clock = field(default_factory=Clock)
    launcher: Any = field(default_factory=lambda: SimpleNamespace(measuring=False))

    def __post_init__(self) -> None:
        self.log = self.home / "log"
        self.log.touch()
        self.library = build_libnvml(self.home / "lib")
        self.write(self.script)
        text = f'sysroot = "{self.home}"\n[nvml]\nlibrary = "{self.library}"\n'
        self.settings = parse(text.encode(), {})
        self.board = Board(made("1", 0.0, platform={"kernel": self.kernel}))

    def write(self, script: str) -> None:
        rewrite_script(self.library, f"log {self.log}\n{script}")

    def battery(self, status: str) -> None:
        place = self.home / "sys/class/power_supply/BAT1"
        place.mkdir(parents=True, exist_ok=True)
        (place / "type").write_text("Battery\n")
        (place / "status").write_text(f"{status}\n")

    @property
    def questions(self) -> int:
        """How often NVML was asked for the power."""
        return self.log.read_text().split().count(POWER)

    @asynccontextmanager
    async def watched(self, viewers: int = 1) -> AsyncIterator[list[AsyncGenerator[TopLine, None]]]:
        context = SourceContext(self.settings, self.board, self.clock.now, self.home)
        telemetry = Collection(answers_to(self.board), collection.create(context))
        shared = Watching(
            self.settings,
            read=self.board.read,
            telemetry=telemetry,
            launcher=cast("Any", self.launcher),
            now=self.clock.now,
            every_s=0.01,
        )
        try:
            await telemetry.collect()
            yield [shared.lines() for _ in range(viewers)]
        finally:
            await telemetry.close()

    def published(self) -> None:
        """Something else of the agent's has become new."""
        machine = self.board.read().machine
        self.board.publish(machine=msgspec.structs.replace(machine, started_s=self.clock.ahead_s))


def read_s(line: TopLine) -> float:
    """When the telemetry of a line was read."""
    taken_s = msgspec.json.decode(line.status, type=Status).telemetry.taken_s
    assert taken_s is not None
    return taken_s


def power(line: TopLine) -> object:
    readings = by_gpu(msgspec.json.decode(line.status, type=Status))[0]
    return readings["power_watts"].value


async def test_each_second_has_new_telemetry_and_the_processes_with_kind_and_memory(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    async with world.watched() as (lines,):
        first = await anext(lines)
        assert (first.pause, power(first)) == (None, 23.5)
        assert first.processes == {
            0: (GpuProcess(4711, "C+G", 1048576), GpuProcess(4712, "C")),
        }
        world.clock.ahead_s += 1
        second = await anext(lines)
        assert read_s(second) > read_s(first)
        assert world.questions == 1 + 2, "one of the schedule, and one for each line"
        await lines.aclose()
    published = documents.document(world.board.read(), now=world.clock.now())
    assert "fan_ratio" in by_gpu(published)[0], "and what everybody sees is not replaced by it"


async def test_all_who_are_connected_share_one_answer(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.watched(viewers=3) as viewers:
        lines = [await anext(each) for each in viewers]
        assert len({read_s(line) for line in lines}) == 1
        assert world.questions == 1 + 1


async def test_wsl2_is_asked_by_the_schedule_alone_and_has_no_processes(tmp_path: Path) -> None:
    world = World(tmp_path, WSL2)
    async with world.watched() as (lines,):
        line = await anext(lines)
        assert (line.pause, line.processes) == ("every 10 s in WSL2", {})
        assert power(line) == 23.5
        world.clock.ahead_s += 5
        world.published()
        assert (await anext(lines)).pause == line.pause
        assert world.questions == 1


async def test_battery_ends_the_fast_telemetry_and_mains_bring_it_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.battery("Charging")
    async with world.watched() as (lines,):
        assert (await anext(lines)).processes
        world.battery("Discharging")
        line = await anext(lines)
        assert (line.pause, line.processes) == (watching.BATTERY, {})
        questions = world.questions
        world.clock.ahead_s += 5
        world.published()
        assert (await anext(lines)).pause == watching.BATTERY
        assert world.questions == questions
        world.battery("Charging")
        assert ((await anext(lines)).pause, world.questions) == (None, questions + 1)


async def test_beside_a_run_of_a_probe_nvml_rests_and_the_last_answer_is_soon_gone(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    async with world.watched() as (lines,):
        first = await anext(lines)
        world.launcher.measuring = True
        world.clock.ahead_s += 1
        during = await anext(lines)
        assert (during.pause, read_s(during)) == (watching.PROBE, read_s(first))
        assert during.processes == first.processes
        world.clock.ahead_s += watching.SHOWN_S
        late = await anext(lines)
        assert (late.pause, late.processes) == (watching.PROBE, {})
        assert read_s(late) < read_s(first), "what the schedule has read"
        world.launcher.measuring = False
        assert (await anext(lines)).pause is None
        assert world.questions == 1 + 2


async def test_driver_that_lists_no_process_and_one_that_fails_are_reasons(tmp_path: Path) -> None:
    world = World(tmp_path, script="device.0.compute_pids none\ndevice.0.graphics_pids none\n")
    async with world.watched() as (lines,):
        line = await anext(lines)
        assert (line.pause, line.processes, line.unknown_reason) == (None, {}, {0: "Not Supported"})
    world = World(tmp_path, script="fail nvmlDeviceGetPowerUsage 15 1\nfail nvmlInitWithFlags 9\n")
    async with world.watched() as (lines,):
        line = await anext(lines)
        assert "Driver Not Loaded" in str(line.pause)
        assert line.processes == {}
