"""CUDA as a source: what the children brought home, with the age it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent.telemetry.answers import current
from gpud.agent.telemetry.sources import cuda
from gpud.core.sample import Device, Failure, Inventory, Reason
from tests.agent.telemetry.smi_world import World
from tests.events import inventory_taken, post

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
