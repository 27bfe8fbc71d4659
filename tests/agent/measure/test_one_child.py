"""Runs that share one child and one GPU context: real children, the stand-in driver below them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from gpud import gpu_lock, processes
from gpud.agent.measure.gpu_contexts import GpuContexts
from gpud.agent.measure.launch import Launcher, LaunchRefused
from gpud.agent.state.board import Board
from gpud.child.cuda_api import OPTIONAL
from gpud.child.probes import (
    cpu_call,
    cpu_matmul,
    event,
    launch,
    small_copy,
    small_peer_copy,
    triad,
)
from gpud.core.sample import Job, Reason, Skip
from tests import snapshots
from tests.child.running import CHILD, GPU, INTERPRETED, OTHER_GPU, REAL
from tests.child.sweep import A_SMALL_GPU, CALLED, SHARED
from tests.standins.build import build_libcuda
from tests.standins.loaded import virtual_time
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpud.core.sample import ProbeSpec, RunReport

OPENED, CLOSED = "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"


class Rig:
    """A launcher over real children, and the calls that they make; most live in virtual time."""

    def __init__(
        self,
        folder: Path,
        script: str = "",
        child: Sequence[str] = CHILD,
        *,
        clock: str = INTERPRETED,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._log = folder / "calls"
        script = f"devices 2\n{A_SMALL_GPU}log {self._log}\n{script}"
        self.library = build_libcuda(folder, script)
        virtual = virtual_time(folder, clock) if clock else {}
        time = [f"{name}={value}" for name, value in virtual.items()]
        self.contexts = GpuContexts(folder, "boot", None)
        self.board = Board(snapshots.bare())
        command = ["env", *time, *child]
        self.launcher = Launcher(
            folder / "gpu.lock", board=self.board, command=command, contexts=self.contexts
        )

    @property
    def children(self) -> int:
        return self.board.read().measure.children

    def job(self, spec: ProbeSpec, gpu: str | None, **more: Any) -> Job:
        return Job(spec.name, gpu=gpu, cuda_library=str(self.library), **more)

    async def run(self, spec: ProbeSpec, gpu: str | None = GPU, **more: Any) -> RunReport:
        return await self.launcher.run(spec, self.job(spec, gpu, **more))

    def calls(self) -> list[str]:
        return self._log.read_text().split() if self._log.exists() else []


def good(reports: Sequence[RunReport]) -> list[bool]:
    return [report.failure is None and bool(report.samples) for report in reports]


async def test_held_launcher_needs_one_process_and_one_context_for_all_runs_on_a_gpu(
    tmp_path: Path,
) -> None:
    """A wait for throughput gives up the core, and one for latency does not."""
    rig = Rig(tmp_path)
    async with rig.launcher.held():
        first = [await rig.run(cpu_call.SPEC, None)]
        inventory = await rig.launcher.inventory(Job(cuda_library=str(rig.library)))
        assert len(inventory.devices) == 2
        specs = (launch.SPEC, triad.SPEC, event.SPEC, small_copy.SPEC)
        first += [await rig.run(spec) for spec in specs]
        calls = rig.calls()
        assert (calls.count("cuInit"), calls.count(OPENED), calls.count(CLOSED)) == (1, 1, 0)
        assert (rig.children, rig.contexts.used) == (1, 1)
        second = [await rig.run(event.SPEC, OTHER_GPU) for _ in range(2)]
    assert good(first + second) == [True] * 7
    waits = [report.conditions["sync"] for report in first[1:4]]
    assert waits == ["spin", "blocking", "spin"]
    order = [name for name in rig.calls() if name in {OPENED, CLOSED}]
    assert order == [OPENED, CLOSED] * 2
    assert (rig.children, rig.contexts.used) == (2, 2)


async def test_child_has_a_context_on_a_second_gpu_only_while_it_copies_there(
    tmp_path: Path,
) -> None:
    """And takes none from the second GPU's own probes."""
    rig = Rig(tmp_path)
    rig.contexts.budget = 100
    async with rig.launcher.held():
        reports = [
            await rig.run(event.SPEC),
            *[await rig.run(small_peer_copy.SPEC, peer=OTHER_GPU) for _ in range(3)],
            await rig.run(event.SPEC),
        ]
        assert rig.children == 1
        reports.append(await rig.run(event.SPEC, OTHER_GPU))
    assert good(reports) == [True] * 6
    order = [name for name in rig.calls() if name in {OPENED, CLOSED}]
    assert order == [OPENED, *[OPENED, CLOSED] * 3, CLOSED, OPENED, CLOSED]
    assert rig.contexts.used == 5


async def test_hang_of_a_copy_between_two_gpus_closes_both(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "hang cuMemcpyPeerAsync")
    report = await rig.run(small_peer_copy.SPEC, peer=OTHER_GPU, budget_s=0.5)
    assert report.failure is not None
    assert report.failure.reason is Reason.HUNG
    assert "cuMemcpyPeerAsync" in report.failure.detail
    closed = [rig.launcher.closed_to_gpu_work(gpu) for gpu in (GPU, OTHER_GPU)]
    assert closed == [Skip.BREAKER_OPEN] * 2
    assert rig.launcher.standing.what == f"small_peer_copy on {GPU} and {OTHER_GPU}"


async def test_copy_between_two_gpus_makes_no_context_that_the_budget_has_not(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    rig.contexts.budget = 1
    async with rig.launcher.held():
        assert good([await rig.run(event.SPEC)]) == [True]
        with pytest.raises(LaunchRefused) as refused:
            await rig.run(small_peer_copy.SPEC, peer=OTHER_GPU)
    assert refused.value.skip is Skip.CONTEXTS_SPENT
    assert rig.contexts.used == 1


async def test_reference_whose_blas_has_one_thread_shares_no_process_with_the_crossover(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, clock=REAL)
    async with rig.launcher.held():
        assert good([await rig.run(spec, None) for spec in (cpu_call.SPEC, cpu_matmul.SPEC)])
        assert rig.children == 1
        assert good([await rig.run(event.SPEC)]) == [True]
        assert rig.children == 2


async def clean_calls(folder: Path, count: int) -> list[str]:
    rig = Rig(folder)
    async with rig.launcher.held():
        for _ in range(count):
            await rig.run(event.SPEC)
        return rig.calls()


async def test_crash_costs_the_run_it_hits_and_the_rest_goes_on_in_a_new_child(
    tmp_path: Path,
) -> None:
    records = (await clean_calls(tmp_path / "clean", 1)).count("cuEventRecord")
    rig = Rig(tmp_path, f"segfault cuEventRecord {records + records // 2}")
    async with rig.launcher.held():
        reports = [await rig.run(event.SPEC) for _ in range(3)]
    assert good(reports) == [True, False, True]
    assert reports[1].failure is not None
    failure = reports[1].failure
    assert (failure.reason, failure.function) == (Reason.CRASHED, "cuEventRecord")
    assert (rig.children, rig.contexts.used) == (2, 2)


async def test_error_that_stays_in_a_context_costs_one_run_only(tmp_path: Path) -> None:
    calls = await clean_calls(tmp_path / "clean", 2)
    at = [place for place, name in enumerate(calls) if name == "cuLaunchKernel"][-1]
    before = calls[:at]
    assert before.count(OPENED) == 1
    able = [name for name in CALLED if name not in SHARED and name not in OPTIONAL]
    stays = "".join(f"fail {name} 700 {before.count(name)}\n" for name in able)
    rig = Rig(tmp_path, stays)
    async with rig.launcher.held():
        reports = [await rig.run(event.SPEC) for _ in range(3)]
    assert good(reports) == [True, False, True]
    assert reports[1].failure is not None
    assert reports[1].failure.function == "cuLaunchKernel"
    assert rig.children == 2


async def test_error_that_passes_costs_no_context(tmp_path: Path) -> None:
    taken = (await clean_calls(tmp_path / "clean", 1)).count("cuMemAlloc_v2")
    rig = Rig(tmp_path, f"fail cuMemAlloc_v2 2 {taken} 1")
    async with rig.launcher.held():
        reports = [await rig.run(event.SPEC) for _ in range(3)]
    assert good(reports) == [True, False, True]
    assert reports[1].failure is not None
    assert reports[1].failure.reason is Reason.OUT_OF_MEMORY
    assert (rig.children, rig.contexts.used) == (1, 1)


async def test_run_has_the_memory_of_the_one_before_at_its_disposal(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.launcher.held():
        reports = [await rig.run(triad.SPEC) for _ in range(3)]
    free = {report.conditions["memory_free_bytes"] for report in reports}
    peaks = {report.vram_peak_bytes for report in reports}
    assert good(reports) == [True] * 3
    assert (len(free), len(peaks)) == (1, 1)
    assert peaks != {0}


async def test_run_takes_no_memory_that_has_to_stay_free(tmp_path: Path) -> None:
    free_bytes = 256 << 20
    rig = Rig(tmp_path, f"device.0.free_mem {free_bytes}")
    async with rig.launcher.held():
        short = [await rig.run(triad.SPEC, vram_free_min_bytes=free_bytes + 1)]
        assert "cuMemAlloc_v2" not in rig.calls(), "it is refused before"
        enough = [await rig.run(triad.SPEC, vram_free_min_bytes=free_bytes)]
        peak_bytes = enough[0].vram_peak_bytes
        assert peak_bytes
    assert (rig.children, rig.contexts.used) == (1, 1)
    left_bytes = free_bytes - peak_bytes
    for least_bytes, reports in ((left_bytes, enough), (left_bytes + 1, short)):
        memory = f"device.0.total_mem {2 * least_bytes}\ndevice.0.free_mem {free_bytes}"
        other = Rig(tmp_path / str(least_bytes), memory)
        reports.append(await other.run(triad.SPEC, vram_free_min_bytes=-1))
    assert good(enough) == [True] * 2
    failures = [report.failure for report in short if report.failure]
    assert [failure.reason for failure in failures] == [Reason.VRAM_SHORT] * 2
    assert str(free_bytes) in failures[0].detail


async def test_child_whose_parent_asks_no_more_gives_gpu_and_lock_back_and_another_follows(
    tmp_path: Path,
) -> None:
    idle = "import sys, gpud.child.__main__ as child; child.IDLE_S = 0.5; sys.exit(child.main())"
    rig = Rig(tmp_path, child=[sys.executable, "-I", "-c", idle])
    async with rig.launcher.held():  # as a `gpud probe` that is stopped holds it
        first = await rig.run(event.SPEC)
        with (tmp_path / "gpu.lock").open() as lock:
            holder = gpu_lock.lock_holder(lock.fileno())
            assert holder is not None
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            ended = partial(processes.ref, holder.process.pid)
            await asyncio.to_thread(until, lambda: ended() is None, "the end of the child")
        assert rig.calls()[-1] == CLOSED
        second = await rig.run(event.SPEC)
    assert good([first, second]) == [True, True]
    assert (rig.children, rig.contexts.used) == (2, 2)


async def test_cold_modes_are_measured_in_a_new_context_only(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.launcher.held():
        first, second = [await rig.run(launch.SPEC) for _ in range(2)]
    assert {sample.mode for sample in first.samples} == set(launch.SPEC.modes)
    gaps = {gap.mode: gap.reason for gap in second.missing}
    assert gaps == dict.fromkeys(launch.FIRST, Reason.NOT_COLD)
    assert {sample.mode for sample in second.samples} | set(gaps) == set(launch.SPEC.modes)
    assert second.conditions["context_s"] is None


async def test_cancelled_holder_leaves_the_child_to_end_by_itself(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    rig = Rig(tmp_path / "rig", f"stall cuCtxSetCurrent {tmp_path / 'fifo'}")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1), rig.launcher.held():
            await rig.run(event.SPEC)
    await asyncio.to_thread((tmp_path / "fifo").write_text, "go on")
    with (tmp_path / "rig/gpu.lock").open() as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)  # free once the child is gone
    assert rig.calls()[-1] == CLOSED


async def test_child_that_is_started_while_another_ends_is_kept(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    answer = "print(json.dumps({'probe': json.loads(line)['probe'], 'backend': 'cpu'}), flush=True)"
    code = (
        f"import json, os, sys\nfor line in sys.stdin:\n    {answer}\n"
        f"if os.path.exists({str(fifo)!r}):\n    open({str(fifo)!r}).read()"
    )
    board, spec = Board(snapshots.bare()), cpu_call.SPEC
    launcher = Launcher(None, board=board, command=[sys.executable, "-I", "-c", code])
    ending = asyncio.create_task(launcher.run(spec, Job(spec.name)))
    writer = await asyncio.to_thread(fifo.open, "w")  # its input has ended, and it has not
    async with launcher.held():
        await launcher.run(spec, Job(spec.name))
        fifo.unlink()
        writer.close()
        await ending
        await launcher.run(spec, Job(spec.name))
        assert board.read().measure.children == 2
