"""The past that an agent keeps: recent points of each series, and minutes of telemetry."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.history import telemetry
from gpud.agent.history.export import Selection
from gpud.agent.history.schema import HOUR_S, MINUTE_S
from gpud.agent.history.store import History
from gpud.agent.state import recent
from gpud.agent.state.board import Board
from gpud.agent.state.minutes import TelemetryMinutes
from gpud.agent.state.recent import MOST
from gpud.agent.state.telemetry import with_answer
from gpud.agent.telemetry.answers import Answer, paused
from gpud.core.clock import Instant
from gpud.core.sample import Absent, Backend, Flag, Pace, Peak, ProbeSpec, Reading, Unit
from gpud.document.runs import RecentSeries
from gpud.show.text import sparkline
from gpud.show.view import ASCII
from tests import snapshots
from tests.histories import failed, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpud.agent.history.records import Run


SMALL = ProbeSpec("launch", Backend.CUDA, Pace.SMALL, Unit.SECONDS, ("submit",), 10, "x")


def past(
    directory: Path, runs: Sequence[Run], spec: ProbeSpec = SMALL, now_s: float = 9e8
) -> dict[str, RecentSeries]:
    """Write runs, and return what is published of the past, by mode."""

    async def read() -> tuple[RecentSeries, ...]:
        history = History(directory)
        await history.append(*runs)
        series = await recent.past(history, spec, "GPU-1", now_s)
        await history.close()
        return series

    return {series.mode: series for series in asyncio.run(read())}


def test_no_more_than_the_newest_sixty_runs_are_points(tmp_path: Path) -> None:
    runs = [run(60.0 * minute, 1e-6 * (minute + 1)) for minute in range(MOST + 5)]
    series = past(tmp_path, runs)["submit"]
    assert len(series.after_s) == len(series.medians) == MOST
    assert series.from_s == 300.0
    assert series.medians[-1] == pytest.approx(65e-6)


def test_marked_and_failed_runs_and_medians_between_two_humps_are_no_points(tmp_path: Path) -> None:
    humps = run(180.0, 1e-6, modes=("submit", "roundtrip"))
    submit, roundtrip = humps.report.samples
    roundtrip = replace(roundtrip, peaks=(Peak(1e-6, 0.5), Peak(5e-6, 0.5)))
    humps = replace(humps, report=replace(humps.report, samples=(submit, roundtrip)))
    runs = [run(0.0, 5e-6), run(60.0, 9e-6, flags=(Flag.BUSY,)), failed(120.0), humps]
    (series,) = past(tmp_path, runs).values()
    assert (series.mode, series.medians) == ("submit", (5e-6, 1e-6))


def test_only_runs_of_the_present_version_of_a_method_are_points(tmp_path: Path) -> None:
    runs = [run(1.0, 1.0), run(2.0, 2.0, probe_version=2), run(3.0, 3.0)]
    assert past(tmp_path, runs, replace(SMALL, version=2))["submit"].medians == (2.0,)


def test_a_clock_that_was_set_back_leaves_no_points_of_the_future(tmp_path: Path) -> None:
    runs = [run(9e6, 1.0), run(1.0, 2.0)]
    assert past(tmp_path, runs, now_s=1.0)["submit"].medians == (2.0,)


def test_what_is_published_is_short(tmp_path: Path) -> None:
    series = past(tmp_path, [run(1000.25, 1.23456789e-6), run(1060.5, 2e-6)])["submit"]
    assert (series.from_s, series.after_s, series.medians) == (1000.25, (0, 60), (1.235e-6, 2e-6))


def test_the_newest_clean_runs_are_found_whatever_lies_between(tmp_path: Path) -> None:
    runs = [
        each
        for n in range(MOST + 10)
        for each in (
            run(60.0 * n, 1e-6 * (n + 1)),
            run(60.0 * n + 20, 1.0, flags=(Flag.BUSY,)),
            run(60.0 * n + 30, 1.0, gpu="GPU-2"),
            failed(60.0 * n + 40),
        )
    ]
    series = past(tmp_path, runs)["submit"]
    assert (series.from_s, series.after_s) == (600.0, tuple(60 * n for n in range(MOST)))
    assert max(series.medians) < 1e-4


def test_what_is_read_of_a_probe_takes_the_place_of_what_was_known_of_it() -> None:
    launch, event = (
        RecentSeries("GPU-1", "launch", "submit"),
        RecentSeries("GPU-1", "event", "pair"),
    )
    both = recent.with_past((launch,), "event", "GPU-1", [event])
    assert both == (event, launch)
    assert recent.with_past(both, "launch", "GPU-1", ()) == (event,)
    assert recent.with_past(both, "launch", "GPU-2", ()) == both


async def test_history_that_cannot_be_read_has_no_past(tmp_path: Path) -> None:
    history = History(tmp_path / "absent")
    assert await recent.past(history, SMALL, "GPU-1", 9e8) == ()


RISING = tuple(map(float, range(8)))


@pytest.mark.parametrize(
    ("times", "values", "width", "drawn"),
    [
        (RISING, RISING, 20, "▁▂▃▄▅▆▇█"),
        (range(60), [1.0] * 58 + [2.0, 3.0], 3, "▁▅█"),
        ([0, 60, 120, 9e6, 9e6 + 60], [1, 1, 1, 2, 2], 9, "▁▁▁ ██"),
        ([0, 1, 2, 3], [100.0, 100.5, 100.0, 99.5], 9, "▅▅▅▄"),
    ],
    ids=["from least to most", "the newest", "a time without points is a blank", "noise is flat"],
)
def test_bars_show_the_newest_points_between_their_least_and_most(
    times: Sequence[float], values: Sequence[float], width: int, drawn: str
) -> None:
    assert sparkline(times, values, width=width) == drawn
    if times is RISING:
        assert drawn.translate(ASCII) == "_.-~=+*#"


@given(st.lists(st.floats(-1e15, 1e15), max_size=90), st.integers(0, 70))
def test_a_line_never_grows_beyond_its_room(values: list[float], width: int) -> None:
    times = [float(n) for n in range(len(values))]
    drawn = sparkline(times, values, width=width)
    assert max(len(drawn), len(drawn.translate(ASCII))) <= width
    assert drawn.translate(ASCII).isascii()


FIRST_S = 1_800_000_000 // HOUR_S * HOUR_S
GPU, SECOND = "GPU-a", "GPU-b"


class Machine:
    """An agent's telemetry whose collections, and the moments of them, are the test's."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.now_s = float(FIRST_S)
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
        self.now_s = FIRST_S + at_s
        self.answer(*gpus)
        self.minutes.sample()

    async def rows(self, step_s: int = MINUTE_S) -> list[dict[str, Any]]:
        await self.minutes.close()
        rows = await self.history.read(telemetry.rows_after, Selection(), step_s, None, 1000)
        return [
            {
                "at_s": row.at_s - FIRST_S,
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
        machine.now_s = float(FIRST_S + at_s)
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
