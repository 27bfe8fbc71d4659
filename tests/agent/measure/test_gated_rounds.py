"""Rounds at a gate that is not always open: who waits, who is left out, and what is remembered."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from gpud.agent.measure import conditions
from gpud.agent.measure.conditions import Conditions
from gpud.agent.measure.flags import FEWEST_RUNS, LOW_RUNS
from gpud.agent.measure.gatekeeper import Due, Gatekeeper
from gpud.agent.state.snapshot import ProbeKey
from gpud.core.clock import Instant
from gpud.core.health import Level
from gpud.core.sample import Backend, Device, Flag, Pace, ProbeSpec, RunReport, Skip, Unit
from gpud.core.sections import GateSettings
from gpud.core.settings import Settings
from tests.agent.measure.rounds import Bench, Finished, RecordingBoard, Skipped

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.history.queries import Similar

IDLE = Conditions(
    utilization_gpu_ratio=0.0,
    memory_free_bytes=4.0 * (1 << 30),
    temperature_celsius=40.0,
    clock_sm_hertz=2e9,
    ac=True,
)
BUSY = replace(IDLE, utilization_gpu_ratio=0.8)


class Clocked(Bench):
    """A bench whose clocks are the test's: they move on by a step with each look at them."""

    moment_s = 1000.0
    step_s = 1.0
    ahead_s = 0.0  # the wall clock

    def now(self) -> Instant:
        self.moment_s += self.step_s
        return Instant(1.7e9 + self.moment_s + self.ahead_s, self.moment_s)


@pytest.fixture
def bench(tmp_path: Path) -> Clocked:
    made = Clocked(tmp_path, Settings(gate=GateSettings(look_again_s=0.1)))
    made.looks = [IDLE]
    return made


def skips(bench: Bench) -> list[tuple[str, Skip, str | None]]:
    found = [event for event in bench.events if isinstance(event, Skipped)]
    return [(event.probe, event.reason, event.gpu) for event in found]


def finished(bench: Bench, probe: str) -> list[Finished]:
    found = [event for event in bench.events if isinstance(event, Finished)]
    return [event for event in found if event.report.probe == probe]


def stored(bench: Bench, probe: str) -> list[tuple[Any, Any]]:
    with closing(sqlite3.connect(bench.folder / "gpud.db")) as database:
        rows = database.execute(
            "SELECT flags, conditions FROM runs WHERE probe = ? ORDER BY id", (probe,)
        ).fetchall()
    return [(json.loads(flags), json.loads(conditions)) for flags, conditions in rows]


def test_a_small_probe_of_a_busy_gpu_is_left_out_at_once_and_the_cpu_goes_on(
    bench: Clocked,
) -> None:
    bench.looks = [BUSY]
    snapshot = bench.rounds(Pace.SMALL)
    assert skips(bench) == [("launch", Skip.GPU_BUSY, "GPU-0")]
    assert snapshot.measure.runs["cpu_call"] == 1
    assert [call for call in bench.calls() if "--run" in call] == ["--run cpu_call None"]


def test_one_gpu_that_is_busy_keeps_no_other_from_being_measured(bench: Clocked) -> None:
    bench.says(gpus=3)
    bench.looks = [BUSY, IDLE, IDLE, BUSY]  # before GPU 0; before and after GPU 1; before GPU 2
    bench.rounds(Pace.SMALL)
    assert [event.gpu for event in finished(bench, "launch")] == ["GPU-1"]
    assert [gpu for _, _, gpu in skips(bench)] == ["GPU-0", "GPU-2"]
    assert bench.asked == [None, None, "GPU-0", "GPU-1", "GPU-1", "GPU-2"]


def test_a_large_probe_waits_for_an_idle_moment(bench: Clocked) -> None:
    bench.looks = [BUSY, BUSY, IDLE]
    snapshot = bench.rounds(Pace.LARGE)
    assert skips(bench) == []
    assert snapshot.measure.runs["triad"] == 1


def test_a_large_probe_that_waited_in_vain_is_left_out_once(bench: Clocked) -> None:
    bench.looks = [BUSY]
    bench.rounds(Pace.LARGE)
    assert skips(bench) == [("triad", Skip.GPU_BUSY, "GPU-0")]
    assert 10 < len(bench.asked) < 200


def test_while_a_large_probe_waits_small_ones_are_measured(bench: Clocked) -> None:
    bench.looks = [BUSY, IDLE]

    async def story() -> None:
        pipeline, history = bench.make()
        await asyncio.gather(*(pipeline.round(pace) for pace in (Pace.LARGE, Pace.SMALL)))
        await history.close()

    asyncio.run(story())
    order = [event.report.probe for event in bench.events if isinstance(event, Finished)]
    assert order == ["cpu_matmul", "cpu_call", "launch", "triad"]
    assert skips(bench) == []


def test_a_container_that_begins_while_a_probe_waits_ends_the_waiting(bench: Clocked) -> None:
    async def look(uuid: str | None) -> Conditions:
        bench.taken = uuid is not None
        return BUSY

    bench.look = look  # type: ignore[method-assign]
    bench.rounds(Pace.LARGE)
    assert skips(bench) == [("triad", Skip.CONTAINER_RUNNING, "GPU-0")]


def test_gpuds_own_work_is_not_taken_for_somebody_elses(bench: Clocked) -> None:
    bench.step_s = 0.1
    bench.settings = Settings(gate=GateSettings(wait_for_idle_s=0))
    bench.looks = [IDLE, IDLE, BUSY, IDLE]  # around launch; before triad, and when the echo is over
    snapshot = bench.rounds(Pace.SMALL, Pace.LARGE)
    assert skips(bench) == []
    assert snapshot.measure.runs["triad"] == 1


@pytest.mark.parametrize(
    ("zone", "resumed_s", "reason"),
    [("UTC-3", None, Skip.QUIET_HOURS), ("UTC", 1001.0, Skip.RESUMED)],
)
def test_the_hour_and_a_pause_are_reasons_too(
    bench: Clocked,
    zone: str,
    resumed_s: float | None,
    reason: Skip,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", zone)  # 22:30 in Greenwich, and 01:30 three hours to the east
    bench.settings = Settings(gate=GateSettings(quiet_hours=("00:00-07:00",), resume_rest_s=60))
    bench.resumed_s = resumed_s
    snapshot = bench.rounds(Pace.SMALL)
    assert skips(bench) == [("launch", reason, "GPU-0")]
    assert snapshot.measure.runs["cpu_call"] == 1


def test_a_probe_that_took_more_memory_than_is_free_now_waits_for_its_turn(
    bench: Clocked,
) -> None:
    bench.says(vram=5 << 30)
    bench.rounds(Pace.SMALL, Pace.SMALL)
    assert len(finished(bench, "launch")) == 1
    assert skips(bench) == [("launch", Skip.VRAM_SHORT, "GPU-0")]


def test_a_gpu_that_hangs_is_told_to_hang_and_not_to_be_busy(bench: Clocked) -> None:
    async def story() -> None:
        pipeline, history = bench.make()
        await pipeline.round(Pace.SMALL)
        pipeline._launcher.breaker = pipeline._launcher.breaker.after_hang(time.monotonic())
        bench.looks = [BUSY]
        await pipeline.round(Pace.SMALL)
        await history.close()

    asyncio.run(story())
    assert skips(bench) == [("launch", Skip.BREAKER_OPEN, "GPU-0")]


def test_a_probe_put_off_for_too_long_is_told_of_until_it_runs(bench: Clocked) -> None:
    bench.settings = Settings(gate=GateSettings(starve_after_s=10))
    bench.looks = [BUSY]

    async def story() -> None:
        pipeline, history = bench.make()
        for _ in range(5):
            await pipeline.round(Pace.SMALL)
        health = bench.board.read().health["gate"]
        assert (health.level, health.reason) == (Level.DEGRADED, "starved")
        assert bench.board.read().measure.put_off[ProbeKey("launch", 0)].count == 5
        bench.looks = [IDLE]
        await pipeline.round(Pace.SMALL)
        assert bench.board.read().health["gate"].level is Level.OK
        await history.close()

    asyncio.run(story())


def test_what_comes_between_two_refusals_does_not_end_the_row(bench: Clocked) -> None:
    """A run by hand, a hang, a nap of the laptop: nobody has measured anything meanwhile."""
    bench.settings = Settings(gate=GateSettings(starve_after_s=12, resume_rest_s=3))
    bench.looks = [BUSY]

    async def story() -> None:
        pipeline, history = bench.make()
        for _ in range(3):
            await pipeline.round(Pace.SMALL)
        bench.resumed_s = bench.moment_s + 3
        await pipeline.round(Pace.SMALL)
        for _ in range(3):
            await pipeline.round(Pace.SMALL)
        pipeline._launcher.breaker = pipeline._launcher.breaker.after_hang(time.monotonic())
        await pipeline.round(Pace.SMALL)
        await history.close()

    asyncio.run(story())
    seen = [event for event in bench.events if isinstance(event, Skipped)]
    assert [event.reason for event in seen] == [
        *[Skip.GPU_BUSY] * 3,
        Skip.RESUMED,
        *[Skip.GPU_BUSY] * 3,
        Skip.BREAKER_OPEN,
    ]
    assert [event.starving for event in seen] == [False] * 3 + [True] * 5


def test_a_run_begins_the_patience_anew(bench: Clocked) -> None:
    bench.settings = Settings(gate=GateSettings(starve_after_s=10))
    bench.looks = [*[BUSY] * 6, IDLE, IDLE, BUSY]
    bench.rounds(*[Pace.SMALL] * 8)
    seen = [event for event in bench.events if isinstance(event, Skipped)]
    assert len(finished(bench, "launch")) == 1
    assert [event.starving for event in seen][-2:] == [True, False]


def test_who_chose_the_quiet_is_not_told_of_it(bench: Clocked) -> None:
    bench.settings = Settings(gate=GateSettings(starve_after_s=10, on_battery="none"))
    bench.looks = [replace(IDLE, ac=False)]
    snapshot = bench.rounds(*[Pace.SMALL] * 5)
    assert snapshot.measure.skips == {("launch", Skip.ON_BATTERY): 5}
    assert "gate" not in snapshot.health


def test_the_conditions_around_a_run_are_stored_with_it(bench: Clocked) -> None:
    bench.says(conditions={"python": "3", "after.ac": "a child does not say that"})
    bench.looks = [IDLE, replace(IDLE, temperature_celsius=52.0, pstate=0.0)]
    bench.rounds(Pace.SMALL)
    ((flags, conditions),) = stored(bench, "launch")
    assert flags == []
    assert conditions["python"] == "3"
    assert (conditions["before.temperature_celsius"], conditions["before.ac"]) == (40.0, True)
    assert (conditions["after.temperature_celsius"], conditions["after.ac"]) == (52.0, True)
    assert "before.pstate" not in conditions
    assert finished(bench, "launch")[0].report.conditions == conditions


def test_flags_are_stored_and_published_with_the_figures(bench: Clocked) -> None:
    bench.says(conditions={"settled": False})
    bench.looks = [replace(IDLE, utilization_gpu_ratio=0.08), IDLE]
    bench.rounds(Pace.SMALL)
    assert [flags for flags, _ in stored(bench, "launch")] == [["busy", "cold"]]
    assert finished(bench, "launch")[0].flags == (Flag.BUSY, Flag.COLD)


def test_a_run_soon_after_a_pause_is_marked(bench: Clocked) -> None:
    bench.resumed_s = 980.0
    bench.rounds(Pace.SMALL)
    assert [event.flags for event in finished(bench, "launch")] == [(Flag.RESUME,)]


def test_a_run_across_a_jump_is_kept_with_its_flag_and_not_published(bench: Clocked) -> None:
    async def look(uuid: str | None) -> Conditions:
        bench.ahead_s += 0.0 if uuid is None else 5.0  # both times
        return IDLE

    bench.look = look  # type: ignore[method-assign]
    snapshot = bench.rounds(Pace.SMALL)
    assert [flags for flags, _ in stored(bench, "launch")] == [["jumped"]]
    assert finished(bench, "launch") == []
    assert snapshot.measure.skips == {("launch", Skip.CLOCK_JUMPED): 1}
    assert "launch" not in {key.probe for key in snapshot.measure.probes}


def test_what_is_usual_is_known_again_after_a_restart_for_each_power_source(
    bench: Clocked,
) -> None:
    bench.rounds(*[Pace.SMALL] * FEWEST_RUNS)
    slow = replace(IDLE, clock_sm_hertz=1.5e9)
    bench.events.clear()
    bench.looks = [IDLE, slow, replace(IDLE, ac=False), replace(slow, ac=False)]
    bench.rounds(Pace.SMALL, Pace.SMALL)  # a new agent on the same history
    assert [event.flags for event in finished(bench, "launch")] == [(Flag.LOW,), ()]


def test_marked_runs_do_not_become_the_usual(bench: Clocked) -> None:
    bench.rounds(*[Pace.SMALL] * FEWEST_RUNS)
    bench.events.clear()
    bench.looks = [replace(IDLE, clock_sm_hertz=1.5e9)]
    bench.rounds(*[Pace.SMALL] * (2 * FEWEST_RUNS))
    assert {event.flags for event in finished(bench, "launch")} == {(Flag.LOW,)}


def test_a_gpu_that_is_slow_for_good_is_judged_again_and_a_restart_counts_on() -> None:
    slow = replace(IDLE, clock_sm_hertz=1.5e9)
    kept: list[Similar] = [(conditions.named("after", IDLE), ())] * FEWEST_RUNS
    kept += [(conditions.named("after", slow), (Flag.LOW,))] * (LOW_RUNS - 3)
    device = Device(0, "GPU-0", "x", "0000:01:00.0", "8.9", 46, 1, 1)
    due = Due(ProbeSpec("launch", Backend.CUDA, Pace.SMALL, Unit.SECONDS, (), 5.0, ""), device)

    async def marked(*looks: Conditions) -> list[tuple[Flag, ...]]:
        seen = iter([each for look in looks for each in (IDLE, look)])

        async def look(_: str | None) -> Conditions:
            return next(seen)

        async def read(*_: object) -> list[Similar]:
            return kept[::-1]

        at = Instant(0.0, 1000.0)
        observer = cast("Any", SimpleNamespace(look=look))
        history = cast("Any", SimpleNamespace(read=read))
        keeper = Gatekeeper(GateSettings(), observer, history, RecordingBoard(), lambda: at)
        report = RunReport("launch", Backend.CUDA, device)
        found = []
        for _ in looks:
            before = (await keeper.ask(due)).conditions
            found.append((await keeper.ended(due, report, before, at, jumped=False))[1])
        return found

    low, slower = (Flag.LOW,), replace(slow, clock_sm_hertz=1.2e9)
    assert asyncio.run(marked(*[slow] * 5, slower)) == [low, low, low, (), (), low]
    assert asyncio.run(marked(slow, slow, IDLE, *[slow] * 3)) == [low, low, (), low, low, low]


def test_a_power_cap_that_is_always_there_stops_marking_runs_and_that_outlives_a_restart(
    bench: Clocked,
) -> None:
    bench.looks = [replace(IDLE, throttle_reasons=frozenset({"power_cap"}))]
    bench.rounds(*[Pace.SMALL] * 2 * FEWEST_RUNS)
    flags = [event.flags for event in finished(bench, "launch")]
    assert flags == [(Flag.LOW,)] * FEWEST_RUNS + [()] * FEWEST_RUNS
    bench.events.clear()
    assert bench.rounds(Pace.SMALL).measure.flagged == {}


def test_a_history_that_cannot_be_read_costs_nothing_but_what_is_usual(tmp_path: Path) -> None:
    bench = Clocked(tmp_path, state_dir=tmp_path / "missing")
    bench.looks = [IDLE]
    bench.rounds(*[Pace.SMALL] * FEWEST_RUNS)
    assert [event.flags for event in finished(bench, "launch")] == [()] * FEWEST_RUNS
