"""Whole rounds that the gate holds back or flags, with scripts in the child's place."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent.measure.gate import STARVED_S
from gpud.agent.measure.pace import Beat
from gpud.agent.state.snapshot import PaceState, ProbeKey
from gpud.core.health import Level
from gpud.core.sample import Pace, Skip
from gpud.core.sections import GateSettings
from gpud.core.settings import Settings
from tests.agent.measure.rounds import BUSY, IDLE, Clocked, Of, paced, runs

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.measure.conditions import Conditions
    from gpud.agent.measure.pipeline import Pipeline


def test_busy_gpu_skips_its_own_small_probe_and_nothing_else(bench: Clocked) -> None:
    bench.says(gpus=3)
    bench.looks = [BUSY, IDLE, IDLE, BUSY]  # before GPU 0; before and after GPU 1; before GPU 2
    snapshot = bench.rounds(Pace.SMALL)
    assert runs(bench) == ["cpu_call", "launch GPU-1"]
    assert snapshot.measure.skips == {("launch", Skip.GPU_BUSY): 2}
    put_off = snapshot.measure.put_off[ProbeKey("launch", 0)]
    assert (put_off.reason, put_off.utilization_gpu_ratio) == (Skip.GPU_BUSY, 0.35)
    assert bench.looked == [None, None, "GPU-0", "GPU-1", "GPU-1", "GPU-2"]


async def test_probe_that_is_skipped_is_due_in_the_next_round_of_the_schedule(
    bench: Clocked,
) -> None:
    bench.says(specs=[["launch", "cuda", "small"], ["triad", "cuda", "large"]])
    bench.looks = [BUSY]
    async with bench.pipeline() as pipeline:
        rounds = paced(bench.folder)
        await pipeline.round(rounds)
        bench.looks = [IDLE]
        rounds.later_s += 60.0
        await pipeline.round(rounds)
        assert runs(bench) == ["launch GPU-0", "triad GPU-0"]
        rounds.later_s += 60.0
        await pipeline.round(rounds)
        assert runs(bench) == ["launch GPU-0"]


class Sleeper(Clocked):
    """A bench whose machine sleeps for an hour before one of the gate's looks."""

    awake_looks = 0

    async def look(self, uuid: str | None) -> Conditions:
        if len(self.looked) == self.awake_looks:
            self.ahead_s += 3600.0
        return await super().look(uuid)


@pytest.mark.parametrize(
    ("first", "awake_looks", "calls"),
    [
        (["nbody", "cuda", "small"], 2, ["begun", "inventory", "run nbody GPU-0"]),
        (["cpu_call", "cpu", "small"], 1, ["begun", "run cpu_call None"]),
    ],
)
def test_gpu_rests_after_a_sleep_in_the_middle_of_a_round(
    tmp_path: Path, first: list[str], awake_looks: int, calls: list[str]
) -> None:
    bench = Sleeper(tmp_path, looks=[IDLE])
    bench.says(specs=[first, ["launch", "cuda", "small"]])
    bench.awake_looks = awake_looks
    snapshot = bench.rounds(Pace.SMALL)
    assert bench.calls() == ["--list", *calls]
    assert snapshot.measure.skips == {("launch", Skip.RESUMED): 1}


@pytest.mark.parametrize("broken", [{}, {"broken": "vram_short"}], ids=["ran", "refused"])
def test_gpuds_own_work_is_not_taken_for_anothers(bench: Clocked, broken: dict[str, str]) -> None:
    bench.step_s = 0.1
    bench.says(**broken)
    around_launch = [IDLE] if broken else [IDLE, IDLE]
    bench.looks = [*around_launch, BUSY, IDLE]  # before triad, and when the echo is over
    measure = bench.rounds(Pace.SMALL, Pace.LARGE).measure
    reasons = {reason for _, reason in measure.skips}
    assert reasons == ({Skip.VRAM_SHORT} if broken else set())
    assert measure.runs["triad"] == (0 if broken else 1)


@pytest.mark.parametrize(
    ("zone", "vram", "rounds", "reason"),
    [
        ("UTC-3", 0, 1, Skip.QUIET_HOURS),
        ("UTC", 5 << 30, 2, Skip.VRAM_SHORT),
    ],
)
def test_hour_and_memory_of_the_last_run_are_reasons_too(  # noqa: PLR0917  # a table
    bench: Clocked,
    zone: str,
    vram: int,
    rounds: int,
    reason: Skip,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", zone)  # 22:30 in Greenwich, and 01:30 three hours to the east
    bench.settings = Settings(gate=GateSettings(quiet_hours=("00:00-07:00",)))
    bench.says(vram=vram)
    snapshot = bench.rounds(*[Pace.SMALL] * rounds)
    assert snapshot.measure.skips == {("launch", reason): 1}
    assert snapshot.measure.runs["cpu_call"] == rounds


async def hang(pipeline: Pipeline) -> None:
    """Leave the breaker open for the next round."""
    launcher = pipeline._launcher
    launcher.breaker = launcher.breaker.after_hang(time.monotonic())
    await pipeline.round(Of(Pace.SMALL))


async def test_probe_put_off_for_too_long_is_reported_until_it_runs(bench: Clocked) -> None:
    """A hang between refusals ends no row: nothing was measured."""
    bench.step_s = STARVED_S / 20
    bench.looks = [BUSY]
    async with bench.pipeline() as pipeline:
        for _ in range(3):
            await pipeline.round(Of(Pace.SMALL))
        await hang(pipeline)
        pipeline._launcher.breaker = pipeline._launcher.breaker.after_end(time.monotonic())
        assert "gate" not in bench.board.read().health
        for _ in range(3):
            await pipeline.round(Of(Pace.SMALL))
        await hang(pipeline)
        snapshot = bench.board.read()
        assert snapshot.measure.skips == {
            ("launch", Skip.GPU_BUSY): 6,
            ("launch", Skip.BREAKER_OPEN): 2,
        }
        assert (snapshot.health["gate"].level, snapshot.health["gate"].reason) == (
            Level.DEGRADED,
            "starved",
        )
        pipeline._launcher.breaker = pipeline._launcher.breaker.after_end(time.monotonic())
        bench.looks = [IDLE, IDLE, BUSY]
        await pipeline.round(Of(Pace.SMALL))
        await pipeline.round(Of(Pace.SMALL))
        assert bench.board.read().health["gate"].level is Level.OK


async def test_probe_is_put_off_for_too_long_only_after_three_rounds_of_a_stretched_pace(
    bench: Clocked,
) -> None:
    bench.step_s, bench.looks = STARVED_S / 8, [BUSY]
    async with bench.pipeline() as pipeline:
        bench.board.publish(pace=PaceState(Beat(gpu_s=STARVED_S)))
        began_s = bench.moment_s
        while bench.moment_s < began_s + 2.5 * STARVED_S:
            await pipeline.round(Of(Pace.SMALL))
        assert "gate" not in bench.board.read().health
        while bench.moment_s < began_s + 4.5 * STARVED_S:
            await pipeline.round(Of(Pace.SMALL))
        assert bench.board.read().health["gate"].reason == "starved"


def test_battery_that_the_person_chose_is_no_starvation(bench: Clocked) -> None:
    bench.step_s = STARVED_S / 20
    bench.settings = Settings(gate=GateSettings(on_battery="none"))
    bench.looks = [replace(IDLE, ac=False)]
    snapshot = bench.rounds(*[Pace.SMALL] * 5)
    assert snapshot.measure.skips == {("launch", Skip.ON_BATTERY): 5}
    assert "gate" not in snapshot.health


def plug(root: Path, *, online: bool) -> None:
    """Write what the kernel says of a laptop."""
    facts = {"AC1/type": "Mains", "AC1/online": str(int(online)), "BAT1/type": "Battery"}
    for name, text in facts.items():
        file = root / "sys/class/power_supply" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.mark.parametrize(("choice", "waits"), [("seldom", True), ("none", True), ("small", False)])
async def test_on_battery_nothing_asks_a_gpu_that_rests(
    bench: Clocked, choice: Any, *, waits: bool
) -> None:
    """The list of GPUs is taken once, and but for "none" there is a first round."""
    plug(bench.folder, online=False)
    gate = GateSettings(on_battery=choice)
    bench.settings = Settings(gate=gate, sysroot=str(bench.folder))
    async with bench.pipeline() as pipeline:
        rounds = paced(bench.folder, on_battery=choice)
        await pipeline.round(rounds)
        bench.calls()
        bench.looked.clear()
        rounds.later_s += 60.0
        await pipeline.round(rounds)
        asked = [uuid for uuid in bench.looked if uuid is not None]
        assert bool(asked) is not waits
        put_off = bench.board.read().measure.put_off.get(ProbeKey("launch", 0))
        assert (put_off is not None) is waits
        if put_off is not None:
            assert put_off.reason == Skip.ON_BATTERY
            assert (put_off.next_s is not None) is (choice == "seldom")
        assert any("GPU-" in call for call in bench.calls()) is not waits
        plug(bench.folder, online=True)
        rounds.later_s += 60.0
        await pipeline.round(rounds)
        assert ProbeKey("launch", 0) not in bench.board.read().measure.put_off
