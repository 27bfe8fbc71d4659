"""What a round and a container's run leave in the history, with scripts in the child's place."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from gpud.agent.history.schema import FILE
from gpud.agent.measure.gate import FEWEST_RUNS
from gpud.agent.regression.service import Regression
from gpud.agent.state.snapshot import ProbeKey
from gpud.core.health import Level
from gpud.core.report import ContainerFailure
from gpud.core.sample import Failure, Pace, Reason, Skip
from tests import snapshots
from tests.agent.measure.rounds import IDLE, SLOW, Bench, Clocked, runs
from tests.events import altered, root_read

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from gpud.agent.history.records import Run
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant


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


def test_run_is_published_with_the_past_of_its_probe(bench: Bench) -> None:
    bench.rounds(*[Pace.SMALL] * 3)
    with closing(sqlite3.connect(bench.folder / FILE)) as database, database:
        database.execute(
            "INSERT INTO samples (run_id, mode, unit, n, median, minimum, maximum)"
            " SELECT id, 'm', 'seconds', 1, 1e-6, 1e-6, 1e-6 FROM runs"
        )
    snapshot = bench.rounds(Pace.SMALL)  # a new agent on the same history
    points = {(each.uuid, each.probe): len(each.medians) for each in snapshot.measure.recent}
    assert points == {(None, "cpu_call"): 3, ("GPU-0", "launch"): 3}


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
    assert (state.report.conditions, [*state.flags]) == (run.conditions, run.flags)


def test_run_across_a_clock_jump_is_stored_with_its_flag_and_not_published(
    bench: Clocked,
) -> None:
    calls = bench.folder / "calls"

    def now() -> Instant:
        bench.ahead_s = 5.0 if calls.exists() and "run launch" in calls.read_text() else 0.0
        return Clocked.now(bench)

    bench.now = now  # type: ignore[method-assign]
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
        run = structs.replace(run, figure=None, failure=ContainerFailure.of(failure))
    root = structs.replace(snapshots.ROOT, containers=structs.replace(report, run=run))
    return root_read(root, None, 1.0)(snapshots.full())


def test_container_run_is_stored_once_however_often_root_reports_it_and_as_soon_as_it_can_be(
    bench: Bench, tmp_path: Path
) -> None:
    async def agent(*reports: Snapshot) -> None:
        async with bench.pipeline() as pipeline:
            for snapshot in reports:
                bench.board.show(snapshot)
                await pipeline.store_container_run()

    uuid, why = snapshots.DEVICE.uuid, Failure(Reason.TOOLKIT_MISSING, "why")
    five, nine = reported_at(5.0), reported_at(9.0)
    early = altered(five, inventory=None)  # of which GPU it is cannot be told yet
    bench.state_dir = tmp_path / "missing"
    asyncio.run(agent(five))
    (tmp_path / "missing").mkdir()
    asyncio.run(agent(snapshots.bare(), early, five, five, nine))
    asyncio.run(agent(nine, reported_at(12.0, why)))
    stored = container_runs(tmp_path / "missing")
    assert stored == [(5.0, uuid, 1), (9.0, uuid, 1), (12.0, None, 0)]
