"""Samples of telemetry by the minute, in the history: what a minute's row is made of, and when."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent.history import telemetry
from gpud.agent.history.export import Selection
from gpud.agent.history.schema import HOUR_S, MINUTE_S
from gpud.agent.history.store import History
from gpud.agent.state.board import Board
from gpud.agent.state.minutes import TelemetryMinutes
from gpud.agent.state.telemetry import with_answer
from gpud.agent.telemetry.answers import Answer, paused
from gpud.core.clock import Instant
from gpud.core.sample import Absent, Reading
from tests import snapshots

if TYPE_CHECKING:
    from pathlib import Path

BEGUN_S = 1_800_000_000 // HOUR_S * HOUR_S
GPU, SECOND = "GPU-a", "GPU-b"


class Machine:
    """An agent's telemetry whose collections, and the moments of them, are the test's."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.now_s = float(BEGUN_S)
        self.board = Board(snapshots.bare())
        self.history = History(home)
        self.minutes = TelemetryMinutes(self.history, self.board, self.now, 10.0)

    def now(self) -> Instant:
        return Instant(self.now_s, self.now_s)

    def answer(self, *gpus: dict[str, float | str | Absent]) -> None:
        """Publish the answer of NVML, the GPUs in their order."""
        uuids = (GPU, SECOND)
        readings = tuple(
            Reading(number, field, value, "nvml")
            for number, fields in enumerate(gpus)
            for field, value in {"uuid": uuids[number], **fields}.items()
        )
        answer = Answer("nvml", 5, self.now_s, self.now_s, readings)
        known, answers = with_answer(self.board.read(), answer)
        self.board.publish(gpus=known, telemetry=answers)

    def sample(self, at_s: float, *gpus: dict[str, float | str | Absent]) -> None:
        self.now_s = BEGUN_S + at_s
        self.answer(*gpus)
        self.minutes.sample()

    async def rows(self, step_s: int = MINUTE_S) -> list[dict[str, Any]]:
        await self.minutes.close()
        rows = await self.history.read(telemetry.rows_after, Selection(), step_s, None, 1000)
        return [
            {
                "at_s": row.at_s - BEGUN_S,
                "gpu": row.gpu_uuid,
                "n": row.n,
                **{
                    name: figure
                    for name, figure in zip(telemetry.FIGURES, row.figures, strict=True)
                    if figure is not None
                },
            }
            for row in rows
        ]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_minute_has_mean_and_ends_of_its_samples_and_the_share_of_each_throttle_reason(
    machine: Machine,
) -> None:
    for number, (temperature, reasons) in enumerate(
        [(60.0, "none"), (62.0, "thermal"), (67.0, "power_cap,thermal"), (63.0, "none")]
    ):
        machine.sample(
            10.0 * number, {"temperature_celsius": temperature, "throttle_reasons": reasons}
        )
    (row,) = asyncio.run(machine.rows())
    shares = {name: share for name, share in row.items() if name.startswith("throttle_")}
    assert (row["at_s"], row["gpu"], row["n"]) == (0, GPU, 4)
    assert row["temperature_celsius_mean"] == 63.0
    assert row["temperature_celsius_minimum"] == 60.0
    assert row["temperature_celsius_maximum"] == 67.0
    assert len(shares) == len(telemetry.REASONS)
    assert {name for name, share in shares.items() if share} == {
        "throttle_thermal_ratio",
        "throttle_power_cap_ratio",
    }
    assert (shares["throttle_thermal_ratio"], shares["throttle_power_cap_ratio"]) == (0.5, 0.25)


def test_figure_that_no_sample_has_is_absent_and_a_gpu_without_any_has_no_row(
    machine: Machine,
) -> None:
    machine.sample(0.0, {"power_watts": 20.0, "temperature_celsius": Absent.FAILED}, {})
    machine.sample(10.0, {"power_watts": Absent.SENTINEL, "utilization_gpu_ratio": 0.0}, {})
    (row,) = asyncio.run(machine.rows())
    assert row == {
        "at_s": 0,
        "gpu": GPU,
        "n": 1,
        **{f"power_watts_{part}": 20.0 for part in telemetry.PARTS},
        **{f"utilization_gpu_ratio_{part}": 0.0 for part in telemetry.PARTS},
    }


def test_answer_that_a_later_collection_finds_again_is_no_second_sample(machine: Machine) -> None:
    machine.sample(0.0, {"power_watts": 20.0})
    for at_s in (10, 20):
        machine.now_s = float(BEGUN_S + at_s)
        machine.board.publish(telemetry=paused(machine.board.read().telemetry, 1.0))
        machine.minutes.sample()
    assert [row["n"] for row in asyncio.run(machine.rows())] == [1]


async def test_minute_is_written_with_its_last_collection(machine: Machine) -> None:
    task = asyncio.create_task(machine.minutes.run())
    for at_s in range(0, 60, 10):
        machine.sample(float(at_s), {"power_watts": 20.0}, {"power_watts": 30.0})
    while not await machine.history.read(telemetry.newest, Selection(), 9):  # noqa: ASYNC110
        await asyncio.sleep(0)
    rows = await machine.history.read(telemetry.newest, Selection(), 9)
    assert [(row.gpu_uuid, row.n) for row in rows] == [(GPU, 6), (SECOND, 6)]
    task.cancel()
