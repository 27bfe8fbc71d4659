"""Whole rounds: scripts in the child's place, and what runs, is skipped and is published."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpud.agent.measure.gpu_contexts import GpuContexts
from gpud.core.health import Level
from gpud.core.sample import Backend, Pace, Reason, Skip
from gpud.core.sections import ProbeSettings
from gpud.core.settings import Settings
from tests.agent.measure.rounds import SPECS, Bench, Of, paced, runs


def inventories(bench: Bench) -> int:
    return sum(call == "inventory" for call in bench.calls())


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


def test_every_job_has_the_cache_of_kernels_as_the_first_one_loads_the_driver(
    tmp_path: Path,
) -> None:
    """For the owner of the state directory alone."""
    settings = Settings(home=str(tmp_path))
    state_dir = Path(settings.state_dir)
    for made in (False, True):
        if made:
            state_dir.mkdir(parents=True)
        bench = Bench(tmp_path, settings)
        bench.says(caches=True)
        bench.rounds(Pace.SMALL)
        caches = [call for call in bench.calls() if call.startswith("cache ")]
        assert caches == [f"cache {state_dir / 'cuda-cache' if made else None}"] * 3


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


@pytest.mark.parametrize("reason", [Skip.VRAM_SHORT, Skip.PEER_BUSY])
def test_run_that_the_child_refuses_for_too_little_memory_is_skipped_and_not_stored(
    bench: Bench, reason: Skip
) -> None:
    bench.looks = []  # NVML is silent
    bench.says(broken=reason)
    snapshot = bench.rounds(Pace.LARGE)
    assert snapshot.measure.skips["triad", reason] == 1
    assert not bench.stored("triad")


async def test_when_the_contexts_are_spent_a_round_ends_on_the_one_it_has_and_the_next_is_the_cpus(
    bench: Bench,
) -> None:
    bench.contexts = GpuContexts(bench.folder, "boot", 1)
    async with bench.pipeline() as pipeline:
        for _ in range(2):  # each of an agent that has just started
            await pipeline.round(paced(bench.contexts, wsl2=True))
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
    async with bench.pipeline() as pipeline:
        await pipeline.round(Of(Pace.SMALL, Pace.LARGE))
    assert bench.contexts.used == 1
    measure = bench.board.read().measure
    assert measure.skips["triad", Skip.CONTEXTS_SPENT] == 1


GPU_PROBES = [[name, "cuda", "small"] for name in ("a", "b", "c", "d")]
SPOILED = {"release_errors": "a child that gets no other job"}


LOST = {("c", Skip.CONTEXT_LOST): 1, ("d", Skip.CONTEXT_LOST): 1}


@pytest.mark.parametrize(
    ("budget", "state", "turns", "skips", "contexts"),
    [
        (250, {"crashing": "abcd"}, ["ab"], LOST, 4),
        (250, {"conditions": SPOILED}, ["ab"], LOST, 4),
        (250, {"crashing": "ab"}, ["ab", "cdab", "ab"], dict.fromkeys(LOST, 2), 12),
        (250, {"crashing": "a"}, ["abcd"], {}, 4),
        (None, {"crashing": "abcd"}, ["abcd"], {}, 8),
    ],
    ids=["crash", "spoiled", "the next begins with those kept from their turn", "one", "no budget"],
)
async def test_round_with_a_budget_makes_one_context_more_after_a_lost_one(  # noqa: PLR0917
    bench: Bench,
    budget: int | None,
    state: dict[str, Any],
    turns: list[str],
    skips: dict[tuple[str, Skip], int],
    contexts: int,
) -> None:
    bench.contexts = GpuContexts(bench.folder, "boot", budget)
    bench.says(specs=GPU_PROBES, gpus=2, **state)
    async with bench.pipeline() as pipeline:
        rounds = paced(bench.contexts)
        for _ in turns:
            rounds.later_s += 60.0
            await pipeline.round(rounds)
    assert runs(bench) == [f"{name} GPU-{n}" for turn in turns for n in range(2) for name in turn]
    measure = bench.board.read().measure
    assert measure.skips == {key: 2 * count for key, count in skips.items()}
    if len(turns) == 1:
        assert bench.contexts.used == 2 * max(
            2, len(set(turns[0]) & set(state.get("crashing", "")))
        )


async def test_large_probe_that_fails_runs_once_more_in_the_next_round(bench: Bench) -> None:
    bench.says(broken="verification_failed")
    async with bench.pipeline() as pipeline:
        await pipeline.round(Of(Pace.LARGE))
        for _ in range(3):
            await pipeline.round(Of(Pace.SMALL))
        ran = Counter(runs(bench))
        assert (ran["triad GPU-0"], ran["cpu_matmul"]) == (2, 2)

        bench.says()
        for spec in bench.board.read().measure.specs:
            if spec.pace is Pace.LARGE:
                pipeline.confirm(spec, "GPU-0" if spec.backend is Backend.CUDA else None)
        for _ in range(2):
            await pipeline.round(Of(Pace.SMALL))
    ran = Counter(runs(bench))
    assert (ran["triad GPU-0"], ran["cpu_matmul"]) == (1, 1)
    assert all(state.report.failure is None for state in bench.board.read().measure.probes.values())


async def test_run_by_hand_may_be_good_before_a_round_has_listed_the_gpus(bench: Bench) -> None:
    """After a restart with few contexts left that may be hours away."""
    async with bench.pipeline() as pipeline:
        await pipeline.discover()
        (launch,) = (spec for spec in bench.board.read().measure.specs if spec.name == "launch")
        pipeline.confirm(launch, "GPU-0")
        await pipeline.round(Of(Pace.LARGE))
    assert "launch GPU-0" not in runs(bench)


async def test_child_that_cannot_be_started_leaves_list_and_other_figures_as_they_are(
    bench: Bench,
) -> None:
    lock = bench.folder / "gpu.lock"
    async with bench.pipeline() as pipeline:
        await pipeline.round(Of(Pace.SMALL, Pace.LARGE))
        lock.unlink()
        lock.mkdir()
        await pipeline.round(Of(Pace.SMALL))
    measure = bench.board.read().measure
    assert measure.inventory is not None
    assert measure.inventory.failure is None
    failures = {str(key): state.report.failure for key, state in measure.probes.items()}
    reasons = {key: failure and failure.reason for key, failure in failures.items()}
    assert reasons["launch on GPU 0"] is Reason.SPAWN_FAILED
    assert reasons["triad on GPU 0"] is None


@pytest.mark.parametrize(
    ("paces", "state", "expected"),
    [
        ("small small", {}, 1),
        ("small large large", {}, 3),
        # At first, and after each loss.
        ("small small", {"broken": "device_lost", "conditions": SPOILED}, 3),
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
    async with bench.pipeline() as pipeline:
        bench.says(gpus=2)
        await pipeline.round(Of(Pace.LARGE))
        bench.says(gpus=1)
        await pipeline.round(Of(Pace.LARGE))
        for _ in range(3):
            await pipeline.round(Of(Pace.SMALL))
    assert inventories(bench) == 3


async def test_without_a_gpu_the_cpu_is_measured_and_a_driver_that_appears_needs_no_restart(
    bench: Bench,
) -> None:
    async with bench.pipeline() as pipeline:
        bench.says(gpus=0, failure={"reason": "library_missing", "detail": "no libcuda.so.1"})
        await pipeline.round(Of(Pace.SMALL))
        snapshot = bench.board.read()
        assert snapshot.measure.runs["cpu_call"] == 1
        assert snapshot.measure.skips == {("launch", Skip.NO_GPU): 1}
        assert snapshot.health["cuda"].reason == Reason.LIBRARY_MISSING
        bench.says(gpus=1)
        await pipeline.round(Of(Pace.SMALL))
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
    async with bench.pipeline() as pipeline:
        (bench.folder / "state").write_text("not JSON")
        await pipeline.round(Of(Pace.SMALL))
        health = bench.board.read().health["discovery"]
        assert health.level is Level.FAILED
        assert "JSONDecodeError" in (health.detail or ""), "in the words of the child"
        bench.says(gpus=1)
        await pipeline.round(Of(Pace.SMALL))
        assert bench.board.read().health["discovery"].level is Level.OK


async def test_rounds_of_both_paces_at_once_skip_nothing(bench: Bench) -> None:
    async with bench.pipeline() as pipeline:
        await pipeline.discover()
        await asyncio.gather(*(pipeline.round(Of(pace)) for pace in (Pace.SMALL, Pace.LARGE)))
    assert bench.board.read().measure.skips == {}
    assert len(bench.stored()) == 4


async def test_in_the_grace_of_a_boot_the_cpu_is_measured_and_the_gpu_at_its_end(
    bench: Bench,
) -> None:
    async with bench.pipeline() as pipeline:
        during: list[str] = []

        async def grace() -> None:
            during.extend(bench.calls())
            pipeline._launcher.gpu_from_s = 0.0

        pipeline._launcher.gpu_from_s = math.inf
        pipeline._launcher.grace = grace  # type: ignore[method-assign]
        await pipeline.round(Of(Pace.SMALL))
    assert during == ["--list", "begun", "run cpu_call None"]
    assert bench.calls() == ["inventory", "run launch GPU-0"]
    assert bench.board.read().measure.runs["launch"] == 1
