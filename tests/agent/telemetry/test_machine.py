"""Sources that start nothing: what CUDA's children brought home, what the machine's files say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpud.agent.state.board import Board
from gpud.agent.telemetry.answers import current
from gpud.agent.telemetry.sources import cuda, dxg
from gpud.core.sample import Device, Failure, Inventory, Reason
from tests.agent.telemetry.smi_world import World, values
from tests.events import inventory_taken, made, post

if TYPE_CHECKING:
    from pathlib import Path

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


CARD = "sys/bus/pci/devices/0000:01:00.0"
BUS = {f"{CARD}/vendor": "0x10de\n", f"{CARD}/class": "0x030000\n"}


@pytest.mark.parametrize(
    ("platform", "files", "exposed"),
    [
        ({"wsl": "2"}, {"dev/dxg": None}, "yes"),
        ({"wsl": "2"}, {"dev/dxg": "a file is no device"}, "no"),
        ({"wsl": "2"}, {"etc/wsl.conf": "[gpu]\nenabled=true\n"}, "no"),
        ({"wsl": "2"}, {"etc/wsl.conf": "[gpu]\nenabled = false # a game needs it\n"}, "disabled"),
        ({"wsl": "1"}, BUS, "no"),
        ({"wsl": ""}, {}, "no"),
        ({"wsl": ""}, BUS, "yes"),
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
