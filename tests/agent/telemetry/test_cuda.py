"""CUDA as a source: what the children brought home, with the age it has."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.agent.state.board import Board
from gpud.agent.telemetry.answers import Answer, current
from gpud.agent.telemetry.collection import SourceContext
from gpud.agent.telemetry.sources.cuda import Cuda
from gpud.core.clock import Instant
from gpud.core.sample import Device, Failure, Inventory, Reason
from gpud.core.settings import Settings
from tests.events import Event, inventory_taken, made, post, source_answered

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot

FIRST = Device(0, "GPU-1", "card one", "0000:01:00.0", "8.9", 46, 1, 12 << 30)
SECOND = Device(1, "GPU-2", "card two", "0000:02:00.0", "8.6", 28, 1, 8 << 30)
LISTED = Inventory((FIRST, SECOND), "12.8")


@dataclass
class Bench:
    """A snapshot that events change, and a source that reads it."""

    at_s: float = 100.0
    unix_s: float = 1e9  # of the moment 0
    board: Board = field(default_factory=lambda: Board(made("1", 0.0)))

    def __post_init__(self) -> None:
        context = SourceContext(Settings(), self.board, self.now, Path("/nonexistent"))
        self.source = Cuda(context)

    def now(self) -> Instant:
        return Instant(self.unix_s + self.at_s, self.at_s)

    @property
    def snapshot(self) -> Snapshot:
        return self.board.read()

    def happens(self, event: Event) -> None:
        post(self.board, event)

    def says(self) -> Answer | None:
        answer = asyncio.run(self.source.collect())
        if answer is not None:
            self.happens(source_answered(answer, 1e9 + self.at_s))
        return answer

    def values(self, gpu: int | None = 0) -> dict[str, object]:
        readings = current(self.snapshot.telemetry, self.at_s)
        return {reading.field: reading.value for reading in readings if reading.gpu == gpu}


def test_each_gpu_is_told_as_cuda_listed_it() -> None:
    bench = Bench()
    bench.happens(inventory_taken(LISTED, 1e9 + 90, 90.0))
    answer = bench.says()
    assert answer is not None
    assert (answer.source, answer.level, answer.taken_mono_s) == ("cuda", 2, 90.0)
    assert answer.taken_s == 1e9 + 90
    assert bench.values(None) == {"cuda_version": "12.8"}
    assert bench.values(1) == {
        "name": "card two",
        "uuid": "GPU-2",
        "pci_bus_id": "0000:02:00.0",
        "compute_capability": "8.6",
        "memory_total_bytes": float(8 << 30),
    }


def test_only_a_new_list_is_an_answer_and_a_clock_that_is_set_does_not_move_its_moment() -> None:
    bench = Bench()
    bench.happens(inventory_taken(LISTED, 1e9 + 90, 90.0))
    assert bench.says() is not None
    bench.at_s += 10
    bench.unix_s += 3600
    assert bench.says() is None
    bench.happens(inventory_taken(LISTED, 1e9 + 3710, 110.0))
    answer = bench.says()
    assert answer is not None
    assert answer.taken_s == 1e9 + 3710


def test_a_driver_that_refuses_is_a_reason_once() -> None:
    bench = Bench()
    refused = Inventory(failure=Failure(Reason.HUNG, "no answer", advice="wsl --shutdown"))
    bench.happens(inventory_taken(refused, 1e9 + 90, 90.0))
    answer = bench.says()
    assert answer is not None
    assert (answer.reason, answer.detail, answer.fix) == ("hung", "no answer", "wsl --shutdown")
    assert bench.says() is None
    assert bench.snapshot.telemetry.failures == {("cuda", "hung"): 1}
