"""The telemetry sources together: the best first, programs apart; and those that start nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gpud.agent.measure.clocks import now
from gpud.agent.state.board import Board
from gpud.agent.telemetry import collection
from gpud.agent.telemetry.answers import Answer, current
from gpud.agent.telemetry.collection import Collection, SourceContext
from gpud.agent.telemetry.sources import cuda, dxg
from gpud.core.errors import TelemetryError
from gpud.core.sample import Device, Failure, Inventory, Reading, Reason
from gpud.core.settings import parse
from gpud.core.telemetry import LEVELS
from tests.agent.telemetry.smi_world import EXE, WSL2, World, line, values
from tests.events import answers_to, inventory_taken, made, post
from tests.standins.build import build_libnvml, rewrite_script

HOUR = 30
"""Collections in an hour, one every two minutes."""


async def test_nvml_is_opened_once_and_a_program_started_once_for_each_driver(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.kernel(WSL2)
    library, log = build_libnvml(tmp_path / "lib"), tmp_path / "log"
    rewrite_script(library, f"log {log}\n")
    world.says(EXE, line() + "\n")
    world.settings = f'[nvml]\nlibrary = "{library}"\n'
    context = world.context()
    together = Collection(answers_to(world.board), collection.create(context))

    async def starts_in_an_hour() -> int:
        before = len(world.starts)
        for _ in range(HOUR):
            await together.collect()
            world.later(120)
        return len(world.starts) - before

    with world.interop():
        assert await starts_in_an_hour() == 0
        calls = Counter(log.read_text().split())
        await together.look(30.0)  # as before and after a run: what is made use of, and no more
        more = Counter(log.read_text().split()) - calls
        assert more["nvmlDeviceGetPerformanceState"] == 1
        assert not {"nvmlInitWithFlags", "nvmlDeviceGetFanSpeed"} & more.keys()
        assert (calls["nvmlInitWithFlags"], calls["nvmlDeviceGetName"]) == (1, 1)
        assert calls["nvmlDeviceGetPowerUsage"] == calls["nvmlDeviceGetMemoryInfo_v2"] == HOUR
        library.unlink()
        await together.close()  # a helper that has it goes on with it
        assert await starts_in_an_hour() == 1
    await together.close()


class Scripted:
    """Says the same each time."""

    def __init__(self, name: str, fields: dict[str, float], error: Exception | None = None) -> None:
        self.name = name
        self.fields = fields
        self.error = error
        self.requests = 0

    async def collect(self) -> Answer:
        self.requests += 1
        if self.error is not None:
            raise self.error
        at = now()
        readings = tuple(Reading(0, name, value, self.name) for name, value in self.fields.items())
        return Answer(self.name, LEVELS.index(self.name), at.wall_s, at.mono_s, readings)


def context(board: Board, text: str = "") -> SourceContext:
    return SourceContext(parse(text.encode(), {}), board, now, Path("/nonexistent"))


def together(*sources: Scripted) -> tuple[Collection, Board]:
    board = Board(made("1", 0.0))
    return Collection(answers_to(board), {source.name: source for source in sources}), board


async def test_without_a_source_that_can_be_asked_at_any_moment_a_look_says_so() -> None:
    alone, _ = together(Scripted("cuda", {}))
    with pytest.raises(TelemetryError) as caught:
        await alone.look(1.0)
    assert caught.value.reason == "no_source"


@pytest.mark.parametrize(
    ("settings", "in_order"),
    [
        ("", ["dxg", "cuda", "nvml", "nvidia_smi_exe"]),
        ('[telemetry]\ndisabled = ["nvml", "nvidia_smi_exe"]', ["dxg", "cuda"]),
    ],
)
def test_the_machine_comes_before_drivers_a_program_last_and_a_disabled_source_is_not_made(
    settings: str, in_order: list[str]
) -> None:
    assert list(collection.create(context(Board(made("1", 0.0)), settings))) == in_order


async def test_a_collection_asks_each_source_once_and_publishes_what_it_says() -> None:
    nvml, program = Scripted("nvml", {}), Scripted("nvidia_smi_exe", {"temperature_celsius": 51.0})
    both, board = together(nvml, program)
    await both.collect()
    assert (nvml.requests, program.requests) == (1, 1)
    [reading] = current(board.read().telemetry, now().mono_s)
    assert reading.source == "nvidia_smi_exe"


async def test_a_bug_in_what_asks_a_program_is_told_and_the_rest_is_asked() -> None:
    nvml = Scripted("nvml", {})
    both, _ = together(nvml, Scripted("nvidia_smi_exe", {}, RuntimeError("a bug")))
    for turn in (1, 2):
        with pytest.raises(RuntimeError, match="a bug"):
            await both.collect()
        assert nvml.requests == turn


# --- sources that start nothing ---


CARDS = (
    Device(0, "GPU-1", "card one", "0000:01:00.0", "8.9", 46, 1, 12 << 30),
    Device(1, "GPU-2", "card two", "0000:02:00.0", "8.6", 28, 1, 8 << 30),
)


async def test_each_list_of_cuda_is_one_answer_with_its_own_moment(tmp_path: Path) -> None:
    world = World(tmp_path)
    source = cuda.create(world.context())
    listed = Inventory(CARDS, "12.8", driver_folder="nv_1")
    listed_s, wall_s = world.mono_s - 10, world.wall_s - 10
    post(world.board, inventory_taken(listed, wall_s, listed_s))
    answer = await world.answer(source)
    assert (answer.source, answer.level) == ("cuda", 2)
    assert (answer.taken_s, answer.taken_mono_s) == (wall_s, listed_s)
    shown = current(world.board.read().telemetry, world.mono_s)
    of_machine = {r.field: r.value for r in shown if r.gpu is None}
    assert of_machine == {"cuda_version": "12.8", "driver_folder": "nv_1"}
    assert {r.field: r.value for r in shown if r.gpu == 1} == {
        "name": "card two",
        "uuid": "GPU-2",
        "pci_bus_id": "0000:02:00.0",
        "compute_capability": "8.6",
        "memory_total_bytes": float(8 << 30),
    }
    world.wall_s += 3600  # a clock that is set moves no moment
    assert await world.collect(source) is None
    refused = Inventory(failure=Failure(Reason.HUNG, "no answer", advice="wsl --shutdown"))
    post(world.board, inventory_taken(refused, world.wall_s, world.mono_s))
    answer = await world.answer(source)
    assert (answer.reason, answer.detail, answer.fix) == ("hung", "no answer", "wsl --shutdown")
    assert answer.taken_s == world.wall_s
    assert await world.collect(source) is None
    assert world.board.read().telemetry.failures == {("cuda", "hung"): 1}


def card(vendor: str, kind: str, slot: int = 1) -> dict[str, str]:
    folder = f"sys/bus/pci/devices/0000:0{slot}:00.0"
    return {f"{folder}/vendor": f"{vendor}\n", f"{folder}/class": f"{kind}\n"}


BUS = card("0x10de", "0x030000")
OTHERS = card("0x8086", "0x030000") | card("0x1002", "0x030000", 2)


@pytest.mark.parametrize(
    ("platform", "files", "exposed"),
    [
        ({"wsl": "2"}, {"dev/dxg": None}, "yes"),
        ({"wsl": "2"}, {"dev/dxg": "a file is no device"}, "no"),
        ({"wsl": "2"}, {"etc/wsl.conf": "[gpu]\nenabled=true\n"}, "no"),
        ({"wsl": "2"}, {"etc/wsl.conf": "[gpu]\nenabled = false # a game needs it\n"}, "disabled"),
        ({"wsl": "2"}, {"dev/dxg": None, "etc/wsl.conf": "[gpu]\nenabled=0\n"}, "disabled"),
        ({"wsl": "1"}, BUS, "no"),
        ({"wsl": ""}, {}, "no"),
        ({"wsl": ""}, BUS, "yes"),
        ({"wsl": ""}, card("0x10de", "0x030200"), "yes"),
        ({"wsl": ""}, card("0x10de", "0x040300"), "no"),  # the sound of a card handed on
        ({"wsl": ""}, OTHERS | card("", "", 3), "no"),
        ({"wsl": ""}, {"dev/null": "", "dev/nvidia0": "", "dev/nvidiactl": ""}, "yes"),
        ({"wsl": ""}, {"dev/nvidiactl": ""}, "yes"),
        ({"wsl": ""}, {"dev/nvme0n1": "", "dev/nvidia-caps": "", "dev/nvidia-uvm": ""}, "no"),
        ({"wsl": "", "container": "1"}, BUS, "no"),  # it was given none of its host's
        ({"wsl": "", "container": "1"}, {"dev/nvidia0": ""}, "yes"),
    ],
)
async def test_each_platform_has_its_own_sign_of_a_gpu(
    platform: dict[str, str], files: dict[str, str | None], exposed: str, tmp_path: Path
) -> None:
    world = World(tmp_path)
    world.board = Board(made("1", 0.0, platform=platform))
    for path, text in files.items():
        place = world.file(path, text or "")
        if text is None:  # a device
            place.unlink()
            place.symlink_to("/dev/null")
    answer = await world.answer(dxg.create(world.context()))
    assert (answer.source, answer.level) == ("dxg", 1)
    assert values(answer) == {"exposed": exposed}
