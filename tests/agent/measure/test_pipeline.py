"""Whole rounds: scripts in the child's place, a real history, and what is published and stored."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from gpud.agent.history.schema import FILE
from gpud.agent.measure.conditions import Conditions
from gpud.agent.measure.contexts import GpuContexts
from gpud.agent.measure.gate import FEWEST_RUNS, STARVED_S
from gpud.agent.measure.pace import Beat, Rounds, plan
from gpud.agent.regression.service import Regression
from gpud.agent.state.snapshot import PaceState, ProbeKey
from gpud.core.clock import Instant
from gpud.core.health import Level
from gpud.core.sample import Failure, Pace, Reason, Skip
from gpud.core.sections import GateSettings, ProbeSettings, ScheduleSettings
from gpud.core.settings import Settings
from tests import snapshots
from tests.agent.measure.rounds import SPECS, Bench, Of
from tests.events import root_read

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.history.records import Run
    from gpud.agent.history.store import History
    from gpud.agent.measure.pipeline import Pipeline
    from gpud.agent.state.snapshot import Snapshot

IDLE = Conditions(
    utilization_gpu_ratio=0.0,
    memory_free_bytes=4.0 * (1 << 30),
    temperature_celsius=40.0,
    clock_sm_hertz=2e9,
    ac=True,
)
BUSY = replace(IDLE, utilization_gpu_ratio=0.35)
SLOW = replace(IDLE, clock_sm_hertz=1.5e9)


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
    made = Clocked(tmp_path)
    made.looks = [IDLE]
    return made


def runs(bench: Bench) -> list[str]:
    """The runs that were started since the last call."""
    calls = [call.removeprefix("run ") for call in bench.calls() if call.startswith("run ")]
    return [call.removesuffix(" None") for call in calls]


def inventories(bench: Bench) -> int:
    return sum(call == "inventory" for call in bench.calls())


# Rounds


def test_round_runs_the_probes_of_its_pace_once_and_the_gpus_on_each_gpu(bench: Bench) -> None:
    bench.says(gpus=2)
    snapshot = bench.rounds(Pace.SMALL)
    assert snapshot.measure.runs == {"cpu_call": 1, "launch": 2, "cpu_matmul": 0, "triad": 0}
    assert [(run.probe, run.gpu) for run in bench.stored()] == [
        ("cpu_call", None),
        ("launch", "GPU-0"),
        ("launch", "GPU-1"),
    ]
    assert sum(call == "inventory" for call in bench.calls()) == 1


def test_probe_with_a_cold_mode_is_measured_first(bench: Bench) -> None:
    cold = {"modes": ["submit", "submit_cold"]}
    bench.says(specs=[["event", "cuda", "small"], ["launch", "cuda", "small", cold]], gpus=2)
    bench.rounds(Pace.SMALL)
    assert runs(bench) == ["launch GPU-0", "event GPU-0", "launch GPU-1", "event GPU-1"]


@pytest.mark.parametrize(
    ("capability", "driver", "left_out"),
    [
        ("12.0", "595.84", ["graph", "graph_10"]),
        ("12.0", "", ["graph", "graph_10"]),  # nobody has said which driver it is
        ("8.9", "595.84", []),
        ("12.0", "580.95", []),
    ],
)
def test_graphs_are_left_out_where_the_catalogue_says_that_replaying_hangs(
    bench: Bench, capability: str, driver: str, left_out: list[str]
) -> None:
    bench.driver = {"kernel": "6.8.0-45-generic", "wsl": ""}
    if driver:
        bench.driver["driver_version"] = driver
    bench.says(capability=capability)
    bench.rounds(Pace.SMALL)
    told = [call for call in bench.calls() if call.startswith("left out")]
    assert told == ([f"left out {left_out}"] if left_out else [])


def test_run_that_the_child_refuses_for_too_little_memory_is_skipped_and_not_stored(
    bench: Bench,
) -> None:
    bench.looks = []  # NVML is silent
    bench.says(broken="vram_short")
    snapshot = bench.rounds(Pace.LARGE)
    assert snapshot.measure.skips["triad", Skip.VRAM_SHORT] == 1
    assert not bench.stored("triad")


async def test_when_the_contexts_are_spent_a_round_ends_on_the_one_it_has_and_the_next_is_the_cpus(
    bench: Bench,
) -> None:
    bench.contexts = GpuContexts(bench.folder, "boot", 1)
    pipeline, history = bench.make()
    for _ in range(2):  # each of an agent that has just started
        await pipeline.round(Rounds(plan(ScheduleSettings(), wsl2=True), bench.contexts))
    await history.close()
    measure = bench.board.read().measure
    assert measure.runs == {"cpu_call": 2, "launch": 1, "cpu_matmul": 2, "triad": 1}
    assert measure.skips == {(name, Skip.CONTEXTS_SPENT): 1 for name in ("launch", "triad")}
    assert bench.contexts.used == 1


@pytest.mark.parametrize(
    "state", [{"gpus": 2}, {"conditions": {"release_errors": "a child that gets no other job"}}]
)
async def test_round_makes_no_more_contexts_than_are_left(
    bench: Bench, state: dict[str, Any]
) -> None:
    bench.contexts = GpuContexts(bench.folder, "boot", 1)
    bench.says(**state)
    pipeline, history = bench.make()
    await pipeline.round(Of(Pace.SMALL, Pace.LARGE))
    await history.close()
    assert bench.contexts.used == 1
    measure = bench.board.read().measure
    assert measure.skips["triad", Skip.CONTEXTS_SPENT] == 1


@pytest.mark.parametrize(
    ("paces", "state", "expected"),
    [
        ("small small", {}, 1),
        ("small large large", {}, 3),
        ("small small", {"broken": "device_lost"}, 3),  # at first, and after each loss
        ("small small", {"broken": "verification_failed"}, 1),
        ("small small small", {"missed": True}, 3),
        ("small small", {"specs": SPECS[:1]}, 1),
    ],
    ids=["kept", "large", "lost", "wrong", "missed", "no probe of a GPU"],
)
def test_list_of_gpus_is_taken_anew_in_large_rounds_and_while_something_is_missed(
    bench: Bench, paces: str, state: dict[str, Any], expected: int
) -> None:
    bench.missed = state.pop("missed", False)
    bench.says(**state)
    snapshot = bench.rounds(*map(Pace, paces.split()))
    assert inventories(bench) == expected
    assert snapshot.measure.inventory is not None


async def test_list_of_gpus_that_changed_is_taken_again_in_the_next_round(bench: Bench) -> None:
    pipeline, history = bench.make()
    bench.says(gpus=2)
    await pipeline.round(Of(Pace.LARGE))
    bench.says(gpus=1)
    await pipeline.round(Of(Pace.LARGE))
    for _ in range(3):
        await pipeline.round(Of(Pace.SMALL))
    await history.close()
    assert inventories(bench) == 3


async def test_without_a_gpu_the_cpu_is_measured_and_a_driver_that_appears_needs_no_restart(
    bench: Bench,
) -> None:
    pipeline, history = bench.make()
    bench.says(gpus=0, failure={"reason": "library_missing", "detail": "no libcuda.so.1"})
    await pipeline.round(Of(Pace.SMALL))
    snapshot = bench.board.read()
    assert snapshot.measure.runs["cpu_call"] == 1
    assert snapshot.measure.skips == {("launch", Skip.NO_GPU): 1}
    assert snapshot.health["cuda"].reason == Reason.LIBRARY_MISSING
    bench.says(gpus=1)
    await pipeline.round(Of(Pace.SMALL))
    await history.close()
    assert bench.stored()[-1].gpu == "GPU-0"


def test_disabled_probe_never_runs_and_an_unknown_name_degrades_discovery(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Settings(probes=ProbeSettings(disabled=("launch", "lunch"))))
    snapshot = bench.rounds(Pace.SMALL)
    assert [spec.name for spec in snapshot.measure.specs] == ["cpu_call", "cpu_matmul", "triad"]
    assert runs(bench) == ["cpu_call"]
    health = snapshot.health["discovery"]
    assert (health.level, health.reason) == (Level.DEGRADED, "unknown_probe")
    assert str(health.detail).endswith("there is no probe lunch")


def test_probe_modules_that_do_not_load_degrade_discovery(bench: Bench) -> None:
    bench.says(refused={"bad": "no SPEC"})
    health = bench.rounds(Pace.SMALL).health["discovery"]
    assert (health.level, health.detail) == (Level.DEGRADED, "bad: no SPEC")


async def test_child_that_cannot_list_its_probes_is_asked_again_in_the_next_round(
    bench: Bench,
) -> None:
    pipeline, history = bench.make()
    (bench.folder / "state").write_text("not JSON")
    await pipeline.round(Of(Pace.SMALL))
    assert bench.board.read().health["discovery"].level is Level.FAILED
    bench.says(gpus=1)
    await pipeline.round(Of(Pace.SMALL))
    assert bench.board.read().health["discovery"].level is Level.OK
    await history.close()


async def test_rounds_of_both_paces_at_once_skip_nothing(bench: Bench) -> None:
    pipeline, history = bench.make()
    await pipeline.discover()
    await asyncio.gather(*(pipeline.round(Of(pace)) for pace in (Pace.SMALL, Pace.LARGE)))
    await history.close()
    assert bench.board.read().measure.skips == {}
    assert len(bench.stored()) == 4


async def test_in_the_grace_of_a_boot_the_cpu_is_measured_and_the_gpu_at_its_end(
    bench: Bench,
) -> None:
    pipeline, history = bench.make()
    during: list[str] = []

    async def grace() -> None:
        during.extend(bench.calls())

    pipeline._launcher.grace = grace  # type: ignore[method-assign]
    await pipeline.round(Of(Pace.SMALL))
    await history.close()
    assert during == ["--list", "begun", "run cpu_call None"]
    assert bench.calls() == ["inventory", "run launch GPU-0"]
    assert bench.board.read().measure.runs["launch"] == 1


# Storage


def test_run_is_stored_then_evaluated_then_published(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[str, int, int]] = []

    def evaluate(_: Regression, run: Run) -> None:
        published = sum(bench.board.read().measure.runs.values())
        order.append((run.report.probe, len(bench.stored()), published))

    monkeypatch.setattr(Regression, "evaluate", evaluate)
    bench.rounds(Pace.SMALL)
    assert order == [("cpu_call", 1, 0), ("launch", 2, 1)]


def test_run_is_evaluated_and_published_though_the_history_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated: list[str] = []
    monkeypatch.setattr(Regression, "evaluate", lambda _, run: evaluated.append(run.report.probe))
    bench = Bench(tmp_path, state_dir=tmp_path / "missing")
    bench.looks = [IDLE]
    snapshot = bench.rounds(*[Pace.SMALL] * FEWEST_RUNS)
    assert snapshot.measure.runs["launch"] == FEWEST_RUNS
    assert evaluated == ["cpu_call", "launch"] * FEWEST_RUNS
    assert snapshot.measure.flagged == {}, "what is usual is learned from the runs themselves"
    health = snapshot.health["store"]
    assert (health.level, health.reason) == (Level.FAILED, "no_directory")
    assert f"{2 * FEWEST_RUNS} runs wait in memory" in (health.detail or "")


def test_run_is_stored_with_the_driver_it_ran_on_and_nothing_that_is_unknown(
    bench: Clocked,
) -> None:
    bench.moment_s, bench.step_s = 1.0, 0.0  # when the readings are fresh
    facts = {
        "driver_version": "572.16",
        "nvml_version": "570.86.09",
        "driver_folder": "nv_dispi.inf_amd64_1",
        "cuda_version": "12.8",
        "wsl_version": "2.6.1.0",
        "windows_build": "10.0.26100.4349",
    }
    bench.driver = dict(facts)
    bench.says(conditions={"cuda_version": "12.9"})  # the child has it from close by
    bench.rounds(Pace.SMALL)
    bench.driver = {"driver_version": "576.02"}
    bench.says()
    bench.rounds(Pace.SMALL)
    first, *_, last = [{k: run.conditions.get(k) for k in facts} for run in bench.stored()]
    assert first == {**facts, "cuda_version": "12.9"}
    assert last == {**dict.fromkeys(facts), "driver_version": "576.02"}


def test_conditions_around_a_run_and_its_flags_are_stored_with_it(bench: Clocked) -> None:
    bench.says(conditions={"python": "3", "after.ac": "a child's word", "settled": False})
    desktop = replace(IDLE, utilization_gpu_ratio=0.12)
    bench.looks = [desktop, replace(IDLE, temperature_celsius=52.0, pstate=0.0)]
    bench.resumed_s = 980.0
    snapshot = bench.rounds(Pace.SMALL)
    (run,) = bench.stored("launch")
    assert run.flags == ["busy", "resume", "cold"]
    assert run.conditions["python"] == "3"
    around = [(f"{moment}.temperature_celsius", f"{moment}.ac") for moment in ("before", "after")]
    assert [tuple(run.conditions[name] for name in names) for names in around] == [
        (40.0, True),
        (52.0, True),
    ]
    assert "before.pstate" not in run.conditions
    state = snapshot.measure.probes[ProbeKey("launch", 0)]
    assert state.report is not None
    assert (state.report.conditions, [*state.flags]) == (run.conditions, run.flags)


def test_run_across_a_clock_jump_is_stored_with_its_flag_and_not_published(
    bench: Clocked,
) -> None:
    async def look(uuid: str | None) -> Conditions:
        bench.ahead_s += 0.0 if uuid is None else 5.0  # both times
        return IDLE

    bench.look = look  # type: ignore[method-assign]
    snapshot = bench.rounds(Pace.SMALL)
    assert [run.flags for run in bench.stored("launch")] == [["jumped"]]
    assert snapshot.measure.skips == {("launch", Skip.CLOCK_JUMPED): 1}
    assert snapshot.measure.runs["launch"] == 0
    assert snapshot.machine.clock_jumps == 0, "the watch of the clocks counts jumps, and each once"


def test_usual_clocks_outlive_a_restart_for_each_power_source(bench: Clocked) -> None:
    bench.rounds(*[Pace.SMALL] * FEWEST_RUNS)
    on_battery = [replace(IDLE, ac=False), replace(SLOW, ac=False)]
    bench.looks = [IDLE, SLOW, *on_battery, IDLE, SLOW]
    bench.rounds(*[Pace.SMALL] * 3)  # a new agent on the same history
    flags = [run.flags for run in bench.stored("launch")]
    assert flags == [[]] * FEWEST_RUNS + [["low"], [], ["low"]]


# The gate


def test_busy_gpu_skips_its_own_small_probe_and_nothing_else(bench: Clocked) -> None:
    bench.says(gpus=3)
    bench.looks = [BUSY, IDLE, IDLE, BUSY]  # before GPU 0; before and after GPU 1; before GPU 2
    snapshot = bench.rounds(Pace.SMALL)
    assert runs(bench) == ["cpu_call", "launch GPU-1"]
    assert snapshot.measure.skips == {("launch", Skip.GPU_BUSY): 2}
    put_off = snapshot.measure.put_off[ProbeKey("launch", 0)]
    assert (put_off.reason, put_off.utilization_gpu_ratio) == (Skip.GPU_BUSY, 0.35)
    assert bench.looked == [None, None, "GPU-0", "GPU-1", "GPU-1", "GPU-2"]


def test_large_probe_is_skipped_beside_other_work_and_comes_in_the_next_round(
    bench: Clocked,
) -> None:
    bench.looks = [BUSY, IDLE]
    snapshot = bench.rounds(Pace.LARGE, Pace.LARGE)
    assert snapshot.measure.skips == {("triad", Skip.GPU_BUSY): 1}
    assert snapshot.measure.runs["triad"] == 1


def test_gpuds_own_work_is_not_taken_for_anothers(bench: Clocked) -> None:
    bench.step_s = 0.1
    bench.looks = [IDLE, IDLE, BUSY, IDLE]  # around launch; before triad, and when the echo is over
    snapshot = bench.rounds(Pace.SMALL, Pace.LARGE)
    assert (snapshot.measure.skips, snapshot.measure.runs["triad"]) == ({}, 1)


@pytest.mark.parametrize(
    ("zone", "resumed_s", "vram", "rounds", "reason"),
    [
        ("UTC-3", None, 0, 1, Skip.QUIET_HOURS),
        ("UTC", 1001.0, 0, 1, Skip.RESUMED),
        ("UTC", None, 5 << 30, 2, Skip.VRAM_SHORT),
    ],
)
def test_hour_pause_and_memory_of_the_last_run_are_reasons_too(  # noqa: PLR0917  # a table
    bench: Clocked,
    zone: str,
    resumed_s: float | None,
    vram: int,
    rounds: int,
    reason: Skip,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", zone)  # 22:30 in Greenwich, and 01:30 three hours to the east
    bench.settings = Settings(gate=GateSettings(quiet_hours=("00:00-07:00",)))
    bench.resumed_s = resumed_s
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
    """A hang or a nap of the laptop between refusals ends no row: nothing was measured."""
    bench.step_s = STARVED_S / 16
    bench.looks = [BUSY]
    pipeline, history = bench.make()
    for _ in range(3):
        await pipeline.round(Of(Pace.SMALL))
    bench.resumed_s = bench.moment_s + 5 * bench.step_s
    await pipeline.round(Of(Pace.SMALL))
    assert "gate" not in bench.board.read().health
    for _ in range(3):
        await pipeline.round(Of(Pace.SMALL))
    await hang(pipeline)
    snapshot = bench.board.read()
    assert snapshot.measure.skips == {
        ("launch", Skip.GPU_BUSY): 6,
        ("launch", Skip.RESUMED): 1,
        ("launch", Skip.BREAKER_OPEN): 1,
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
    await history.close()


async def test_probe_is_put_off_for_too_long_only_after_three_rounds_of_a_stretched_pace(
    bench: Clocked,
) -> None:
    bench.step_s, bench.looks = STARVED_S / 8, [BUSY]
    pipeline, history = bench.make()
    bench.board.publish(pace=PaceState(Beat(gpu_s=STARVED_S)))
    began_s = bench.moment_s
    while bench.moment_s < began_s + 2.5 * STARVED_S:
        await pipeline.round(Of(Pace.SMALL))
    assert "gate" not in bench.board.read().health
    while bench.moment_s < began_s + 4.5 * STARVED_S:
        await pipeline.round(Of(Pace.SMALL))
    assert bench.board.read().health["gate"].reason == "starved"
    await history.close()


def test_battery_that_the_person_chose_is_no_starvation(bench: Clocked) -> None:
    bench.step_s = STARVED_S / 10
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
    bench: Bench, choice: Any, *, waits: bool
) -> None:
    """The list of GPUs is taken once, and but for "none" there is a first round."""
    plug(bench.folder, online=False)
    gate = GateSettings(on_battery=choice)
    bench.settings = Settings(gate=gate, sysroot=str(bench.folder))
    pipeline, history = bench.make()
    rounds = Rounds(
        plan(ScheduleSettings(), wsl2=False, on_battery=choice),
        GpuContexts(bench.folder, "", None),
    )
    await pipeline.round(rounds)
    bench.calls()
    bench.looked.clear()
    rounds.paused(60.0)
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
    rounds.paused(60.0)
    await pipeline.round(rounds)
    assert ProbeKey("launch", 0) not in bench.board.read().measure.put_off
    await history.close()


# Container runs


def test_while_a_container_measures_no_gpu_probe_is_started_and_each_skip_is_counted(
    bench: Clocked,
) -> None:
    bench.taken = True
    snapshot = bench.rounds(Pace.SMALL, Pace.LARGE)
    assert runs(bench) == ["cpu_call", "cpu_matmul"]
    skips = {("launch", Skip.CONTAINER_RUNNING): 1, ("triad", Skip.CONTAINER_RUNNING): 1}
    assert snapshot.measure.skips == skips


def container_runs(folder: Path) -> list[tuple[float, str | None, int]]:
    with closing(sqlite3.connect(folder / FILE)) as database:
        return list(
            database.execute(
                "SELECT finished_s, gpu_uuid, (SELECT count(*) FROM samples WHERE run_id = id)"
                " FROM runs WHERE probe = 'container_nbody' ORDER BY id"
            )
        )


def reported_at(finished_s: float, failure: Failure | None = None) -> Snapshot:
    """Root's report of a container run."""
    report = snapshots.ROOT.containers
    assert report is not None
    assert report.run is not None
    run = structs.replace(report.run, finished_s=finished_s)
    if failure is not None:
        run = structs.replace(run, figure=None, failure=failure)
    root = structs.replace(snapshots.ROOT, containers=structs.replace(report, run=run))
    return root_read(root, None, 1.0)(snapshots.full())


async def read_reports(bench: Bench, *reports: Snapshot) -> History:
    pipeline, history = bench.make()
    for snapshot in reports:
        bench.board.show(snapshot)
        await pipeline.store_container_run()
    await history.close()
    return history


def test_container_run_is_stored_once_however_often_root_reports_it(bench: Bench) -> None:
    uuid, why = snapshots.DEVICE.uuid, Failure(Reason.TOOLKIT_MISSING, "why")
    nine = reported_at(9.0)
    asyncio.run(read_reports(bench, snapshots.bare(), reported_at(5.0), reported_at(5.0), nine))
    asyncio.run(read_reports(bench, nine, reported_at(12.0, why)))  # by a new agent
    assert container_runs(bench.folder) == [(5.0, uuid, 1), (9.0, uuid, 1), (12.0, None, 0)]


def test_container_run_that_cannot_be_written_yet_is_written_later(
    bench: Bench, tmp_path: Path
) -> None:
    bench.state_dir = tmp_path / "missing"
    asyncio.run(read_reports(bench, reported_at(5.0)))
    (tmp_path / "missing").mkdir()
    asyncio.run(read_reports(bench, reported_at(5.0), reported_at(5.0)))
    assert [row[0] for row in container_runs(tmp_path / "missing")] == [5.0]
