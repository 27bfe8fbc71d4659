"""Rounds on machines with several GPUs and with one: which copies between them are run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud.agent.state.snapshot import ProbeKey
from gpud.core.sample import Flag, Pace, Skip
from tests.agent.measure.rounds import BUSY, IDLE, Bench, Clocked, Of, runs

if TYPE_CHECKING:
    from gpud.agent.measure.conditions import Conditions

COPY = "peer_copy"
SPECS = [["launch", "cuda", "small"], [COPY, "cuda", "large", {"peer": True}]]
HOT = replace(IDLE, temperature_celsius=99.0)
FULL = replace(IDLE, memory_free_bytes=0.0)
WSL2 = "6.6.87.2-microsoft-standard-WSL2"


def test_each_gpu_copies_to_the_next_one_and_the_last_to_the_first(bench: Bench) -> None:
    bench.says(specs=SPECS, gpus=3)
    bench.rounds(Pace.SMALL, Pace.LARGE)
    copies = [run for run in runs(bench) if run.startswith(COPY)]
    assert copies == [f"{COPY} GPU-{n} GPU-{(n + 1) % 3}" for n in range(3)]


@pytest.mark.parametrize(("gpus", "kernel"), [(1, "6.8.0-45-generic"), (2, WSL2)])
def test_with_one_gpu_and_in_wsl2_there_is_nothing_of_it(
    bench: Bench, gpus: int, kernel: str
) -> None:
    bench.says(specs=SPECS, gpus=gpus)
    bench.driver = {"kernel": kernel}
    measure = bench.rounds(Pace.SMALL, Pace.LARGE, Pace.LARGE).measure
    assert [run for run in runs(bench) if run.startswith(COPY)] == []
    assert [spec.name for spec in measure.specs] == ["launch"]
    assert (set(measure.runs), measure.skips, measure.put_off) == ({"launch"}, {}, {})


@pytest.mark.parametrize("peer", [BUSY, HOT, FULL])
def test_second_gpu_that_must_not_be_disturbed_is_the_reason(
    bench: Clocked, peer: Conditions
) -> None:
    bench.says(specs=SPECS[1:], gpus=2)
    bench.looks = [IDLE, peer, peer]  # GPU 0 and its peer; GPU 1, which is to copy itself
    measure = bench.rounds(Pace.SMALL, Pace.LARGE).measure
    assert runs(bench) == []
    assert measure.put_off[ProbeKey(COPY, 0)].reason is Skip.PEER_BUSY
    assert measure.skips[COPY, Skip.PEER_BUSY] == 1
    assert bench.looked == ["GPU-0", "GPU-1", "GPU-1"]


def test_copy_beside_work_of_others_on_the_second_gpu_is_marked(bench: Clocked) -> None:
    bench.says(specs=SPECS[1:], gpus=2)
    used = replace(IDLE, utilization_gpu_ratio=0.1)
    bench.looks = [IDLE, used, IDLE, IDLE, IDLE]
    bench.rounds(Pace.SMALL, Pace.LARGE)
    first, second = bench.stored(COPY)
    assert (first.flags, second.flags) == ([Flag.BUSY], [])
    assert first.conditions["before.utilization_gpu_ratio"] == 0.0, "of its own GPU"


def test_second_gpu_may_look_busy_with_the_copy_itself(bench: Clocked) -> None:
    bench.step_s = 0.1
    bench.says(specs=SPECS[1:], gpus=2)
    after_copy = replace(IDLE, utilization_gpu_ratio=0.9)
    # GPU 0 and its peer before and after; then GPU 1 looks busy until the echo is over.
    bench.looks = [IDLE, IDLE, IDLE, IDLE, after_copy, IDLE]
    measure = bench.rounds(Pace.SMALL, Pace.LARGE).measure
    assert (measure.runs[COPY], measure.skips) == (2, {})


async def test_figures_go_with_the_second_gpu_and_stay_while_cuda_cannot_list_the_gpus(
    bench: Bench,
) -> None:
    both = Of(Pace.SMALL, Pace.LARGE)
    bench.says(specs=SPECS, gpus=2)
    async with bench.pipeline() as pipeline:
        for _ in range(2):
            await pipeline.round(both)
        before = bench.board.read().measure
        copies = {ProbeKey(COPY, 0), ProbeKey(COPY, 1)}
        assert {key for key in before.probes if key.probe == COPY} == copies
        bench.says(specs=SPECS, gpus=0, failure={"reason": "slow_start", "detail": "d"})
        await pipeline.round(both)
        unlisted = bench.board.read().measure
        assert unlisted.inventory is not None
        assert unlisted.inventory.failure is not None
        assert unlisted.specs == before.specs, "or alerts of these copies would end"
        bench.says(specs=SPECS, gpus=1)
        await pipeline.round(both)
        measure = bench.board.read().measure
        assert {key.probe for key in measure.probes} == {"launch"}
        assert measure.runs[COPY] == 2, "which a counter may not forget"
