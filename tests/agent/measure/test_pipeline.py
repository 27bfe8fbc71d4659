"""Whole rounds: scripts in the child's place, a real history, and the events that come out."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud.agent.history.schema import FILE
from gpud.agent.regression.service import Regression
from gpud.core.clock import Instant
from gpud.core.health import Health, Level
from gpud.core.sample import Failure, Pace, Reason, Skip
from gpud.core.sections import ProbeSettings
from gpud.core.settings import Settings
from tests import snapshots
from tests.agent.measure.rounds import (
    SPECS,
    Bench,
    Finished,
    GpusListed,
    ProbesListed,
    Reported,
    Skipped,
)
from tests.events import altered, root_read

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.history.records import Run
    from gpud.agent.state.snapshot import Snapshot


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_small_round_runs_the_small_probes_once_and_the_gpus_on_each_gpu(bench: Bench) -> None:
    bench.says(gpus=2)
    snapshot = bench.rounds(Pace.SMALL)
    assert snapshot.measure.runs == {"cpu_call": 1, "launch": 2, "cpu_matmul": 0, "triad": 0}
    calls = bench.calls()
    assert [call for call in calls if "--run" in call] == [
        "--run cpu_call None",
        "--run launch GPU-0",
        "--run launch GPU-1",
    ]
    assert len([call for call in calls if "--inventory" in call]) == 1


def test_what_is_cold_only_right_after_idle_is_measured_first(bench: Bench) -> None:
    cold = {"modes": ["submit", "submit_cold"]}
    bench.says(specs=[["event", "cuda", "small"], ["launch", "cuda", "small", cold]], gpus=2)
    bench.rounds(Pace.SMALL)
    assert [call.split()[1:] for call in bench.calls() if "--run" in call] == [
        ["launch", "GPU-0"],
        ["launch", "GPU-1"],
        ["event", "GPU-0"],
        ["event", "GPU-1"],
    ]


def test_the_inventory_is_taken_anew_in_each_large_round_and_not_in_each_small_one(
    bench: Bench,
) -> None:
    bench.rounds(Pace.SMALL, Pace.SMALL)
    assert len(bench.of(GpusListed)) == 1
    bench.events.clear()
    bench.rounds(Pace.SMALL, Pace.LARGE, Pace.LARGE)
    assert len(bench.of(GpusListed)) == 3


def test_who_measures_no_gpu_is_told_all_the_same_which_there_are(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Settings(probes=ProbeSettings(disabled=("launch", "triad"))))
    snapshot = bench.rounds(Pace.SMALL, Pace.SMALL)
    assert bench.calls().count("--inventory  None") == 1
    assert snapshot.measure.inventory is not None


def test_an_inventory_that_is_another_than_the_last_is_taken_anew_in_the_next_round(
    bench: Bench,
) -> None:
    async def story() -> None:
        pipeline, history = bench.make()
        bench.says(gpus=2)
        await pipeline.round(Pace.LARGE)
        bench.says(gpus=1)
        await pipeline.round(Pace.LARGE)
        for _ in range(3):
            await pipeline.round(Pace.SMALL)
        await history.close()

    asyncio.run(story())
    assert [len(entry.devices) for entry in bench.of(GpusListed)] == [2, 1, 1]


def test_while_a_gpu_is_missed_it_is_looked_for_in_every_round(bench: Bench) -> None:
    bench.missed = True
    bench.rounds(*[Pace.SMALL] * 3)
    assert len(bench.of(GpusListed)) == 3


def test_each_run_is_kept_with_the_driver_it_ran_on_and_what_is_not_known_is_not_there(
    bench: Bench, tmp_path: Path
) -> None:
    known = {
        "driver_version": "572.16",
        "nvml_version": "570.86.09",
        "driver_folder": "nv_dispi.inf_amd64_1",
        "cuda_version": "12.8",
        "wsl_version": "2.6.1.0",
        "windows_build": "10.0.26100.4349",
    }
    bench.driver = dict(known)
    bench.says(conditions={"cuda_version": "12.9"})  # the child has seen it from close by
    bench.rounds(Pace.SMALL)
    bench.driver = {"driver_version": "576.02"}
    bench.says()
    bench.rounds(Pace.SMALL)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        rows = connection.execute("SELECT probe, conditions FROM runs ORDER BY id").fetchall()
    kept = [{k: v for k, v in json.loads(text).items() if k in known} for _, text in rows]
    assert [probe for probe, _ in rows] == ["cpu_call", "launch"] * 2
    assert kept[:2] == [{**known, "cuda_version": "12.9"}] * 2
    assert kept[2:] == [{"driver_version": "576.02"}] * 2


def test_without_a_gpu_the_cpu_is_measured_and_the_rest_is_counted_as_skipped(
    bench: Bench,
) -> None:
    bench.says(gpus=0, failure={"reason": "library_missing", "detail": "no libcuda.so.1"})
    snapshot = bench.rounds(Pace.SMALL)
    assert snapshot.measure.runs["cpu_call"] == 1
    assert snapshot.measure.skips == {("launch", Skip.NO_GPU): 1}
    assert snapshot.health["cuda"].reason == Reason.LIBRARY_MISSING


def test_a_driver_that_appears_is_found_without_a_restart(bench: Bench) -> None:
    async def story() -> None:
        pipeline, history = bench.make()
        bench.says(gpus=0, failure={"reason": "library_missing", "detail": "d"})
        await pipeline.round(Pace.SMALL)
        bench.says(gpus=1)
        await pipeline.round(Pace.SMALL)
        await history.close()

    asyncio.run(story())
    last = bench.of(Finished)[-1]
    assert (last.report.probe, last.gpu, last.report.failure) == ("launch", "GPU-0", None)


def test_a_probe_may_take_part_in_every_third_round_only_the_first_one_included(
    bench: Bench,
) -> None:
    rare = {"launch": 3, "triad": 2}
    bench.says(specs=[[*spec, [["every", rare.get(spec[0], 1)]]] for spec in SPECS])
    snapshot = bench.rounds(*[Pace.SMALL] * 4, *[Pace.LARGE] * 2)
    assert snapshot.measure.runs == {"cpu_call": 4, "launch": 2, "cpu_matmul": 2, "triad": 1}
    assert snapshot.measure.skips == {}


def test_after_a_lost_device_the_inventory_is_taken_anew(bench: Bench) -> None:
    bench.says(broken="device_lost")
    bench.rounds(Pace.SMALL, Pace.SMALL)
    assert len(bench.of(GpusListed)) == 3  # at first, and after each loss


def test_a_run_across_a_clock_jump_is_discarded_and_counted(bench: Bench) -> None:
    bench.clock = [Instant(0, 0), Instant(3600.0, 1.0)]
    snapshot = bench.rounds(Pace.SMALL)
    assert snapshot.measure.skips[("cpu_call", Skip.CLOCK_JUMPED)] == 1
    assert snapshot.measure.runs["cpu_call"] == 0
    assert snapshot.machine.clock_jumps == 0, (
        "who watches the clocks counts jumps, and counts each once"
    )


def test_a_disabled_probe_never_runs(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Settings(probes=ProbeSettings(disabled=("launch",))))
    snapshot = bench.rounds(Pace.SMALL)
    assert [spec.name for spec in snapshot.measure.specs] == ["cpu_call", "cpu_matmul", "triad"]
    assert not [call for call in bench.calls() if "launch" in call]


def test_a_disabled_probe_that_there_is_not_is_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Settings(probes=ProbeSettings(disabled=("lunch", "triad"))))
    snapshot = bench.rounds(Pace.SMALL)
    found = snapshot.health["discovery"]
    assert (found.level, found.reason) == (Level.DEGRADED, "unknown_probe")
    assert str(found.detail).endswith("there is no probe lunch")
    assert snapshot.measure.runs["launch"] == 1


def test_probe_modules_that_do_not_load_degrade_discovery(bench: Bench) -> None:
    bench.says(refused={"bad": "no SPEC"})
    health = bench.rounds(Pace.SMALL).health["discovery"]
    assert (health.level, health.detail) == (Level.DEGRADED, "bad: no SPEC")


def test_a_run_is_published_though_the_history_cannot_be_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path, state_dir=tmp_path / "missing")
    snapshot = bench.rounds(Pace.SMALL)
    assert snapshot.measure.runs["launch"] == 1
    assert (snapshot.health["store"].level, snapshot.health["store"].reason) == (
        Level.FAILED,
        "no_directory",
    )
    assert "2 runs wait in memory" in (snapshot.health["store"].detail or "")


def test_a_run_is_in_the_history_before_it_is_published(bench: Bench) -> None:
    bench.rounds(Pace.SMALL)
    stored = Reported("store", Health(Level.OK))
    kinds = [entry for entry in bench.events if isinstance(entry, Finished) or entry == stored]
    assert [type(entry) for entry in kinds] == [Reported, Finished] * 2


@pytest.mark.parametrize("folder", ["", "missing"])
def test_each_run_is_evaluated_before_it_is_published_though_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    bench = Bench(tmp_path, state_dir=tmp_path / folder)
    evaluated: list[tuple[str, int]] = []

    def evaluate(_: Regression, run: Run) -> None:
        evaluated.append((run.report.probe, len(bench.of(Finished))))

    monkeypatch.setattr(Regression, "evaluate", evaluate)
    bench.rounds(Pace.SMALL)
    assert evaluated == [("cpu_call", 0), ("launch", 1)]


def test_a_child_that_cannot_list_is_said_and_asked_again_in_the_next_round(bench: Bench) -> None:
    (bench.folder / "state").write_text("not JSON")
    snapshot = bench.rounds(Pace.SMALL)
    assert snapshot.health["discovery"].level is Level.FAILED
    bench.says(gpus=1)
    assert bench.rounds(Pace.SMALL).health["discovery"].level is Level.OK
    assert len(bench.of(ProbesListed)) == 1


def test_rounds_of_both_paces_at_once_skip_nothing(bench: Bench) -> None:
    async def story() -> None:
        pipeline, history = bench.make()
        await pipeline.discover()
        await asyncio.gather(*(pipeline.round(pace) for pace in (Pace.SMALL, Pace.LARGE)))
        await history.close()

    asyncio.run(story())
    assert bench.of(Skipped) == []
    assert len(bench.of(Finished)) == 4


def test_while_a_container_measures_no_gpu_probe_is_started_and_each_skip_is_counted(
    bench: Bench,
) -> None:
    bench.taken = True
    snapshot = bench.rounds(Pace.SMALL, Pace.LARGE)
    assert [call for call in bench.calls() if "launch" in call or "triad" in call] == []
    assert snapshot.measure.skips == {
        ("launch", Skip.CONTAINER_RUNNING): 1,
        ("triad", Skip.CONTAINER_RUNNING): 1,
    }
    assert snapshot.measure.runs["cpu_call"] == 1


def container_runs(folder: Path) -> list[tuple[float, str | None, int]]:
    with closing(sqlite3.connect(folder / "gpud.db")) as database:
        return list(
            database.execute(
                "SELECT finished_s, gpu_uuid, (SELECT count(*) FROM samples WHERE run_id = id)"
                " FROM runs WHERE probe = 'container_nbody' ORDER BY id"
            )
        )


def hear(bench: Bench, *told: Snapshot) -> None:
    async def story() -> None:
        pipeline, history = bench.make()
        for snapshot in told:
            bench.board.show(snapshot)
            await pipeline.store_container_run()
        await history.close()

    asyncio.run(story())


def told_at(finished_s: float, failure: Failure | None = None) -> Snapshot:
    said = snapshots.ROOT.containers
    assert said is not None
    assert said.run is not None
    run = replace(said.run, finished_s=finished_s)
    if failure is not None:
        run = replace(run, figure=None, failure=failure)
    root = replace(snapshots.ROOT, containers=replace(said, run=run))
    return root_read(root, None, 1.0)(snapshots.full())


def test_a_container_run_is_kept_once_however_often_root_tells_of_it(bench: Bench) -> None:
    hear(bench, told_at(5.0), told_at(5.0), told_at(9.0), told_at(9.0))
    hear(bench, told_at(9.0), told_at(12.0))  # a new agent, told of the old run first
    uuid = snapshots.DEVICE.uuid
    assert container_runs(bench.folder) == [(5.0, uuid, 1), (9.0, uuid, 1), (12.0, uuid, 1)]


def test_a_failed_container_run_is_kept_with_its_reason(bench: Bench) -> None:
    hear(bench, told_at(5.0, Failure(Reason.TOOLKIT_MISSING, "why")))
    assert container_runs(bench.folder) == [(5.0, None, 0)]


def test_without_a_word_about_containers_nothing_is_kept(bench: Bench) -> None:
    hear(bench, snapshots.bare(), altered(snapshots.full(), report=None))
    assert container_runs(bench.folder) == []


def test_a_container_run_that_cannot_be_written_yet_waits_with_the_others(
    bench: Bench, tmp_path: Path
) -> None:
    bench.state_dir = tmp_path / "missing"

    async def story() -> None:
        pipeline, history = bench.make()
        bench.board.show(told_at(5.0))
        await pipeline.store_container_run()
        assert history.waiting == 0
        (tmp_path / "missing").mkdir()
        await pipeline.store_container_run()
        await history.close()

    asyncio.run(story())
    assert [row[0] for row in container_runs(tmp_path / "missing")] == [5.0]
