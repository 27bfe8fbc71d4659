"""Outcomes of real children whose driver hangs, crashes or is slow to start."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent.measure import outcome
from gpud.agent.measure.breaker import State
from gpud.agent.measure.launch import Launcher
from gpud.child.probes import launch
from gpud.core.errors import WireError
from gpud.core.health import Level
from gpud.core.sample import Failure, Inventory, Job, Reason, RunReport
from tests import snapshots
from tests.child.running import GPU
from tests.events import inventory_taken, run_finished
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from pathlib import Path


def made(folder: Path, library: Path, **job: Any) -> tuple[RunReport, str]:
    """One run of the launch probe on a stand-in, and the breaker's state after it."""
    launcher = Launcher(folder / "gpu.lock")

    async def story() -> RunReport:
        work = Job("launch", gpu=GPU, cuda_library=str(library), **job)
        report = await launcher.run(launch.SPEC, work)
        launcher.close()
        return report

    return asyncio.run(story()), launcher.standing.state


def failure_of(report: RunReport) -> Failure:
    assert report.failure is not None
    assert report.samples == ()
    return report.failure


def test_crash_names_the_driver_call_and_keeps_what_the_run_knows(tmp_path: Path) -> None:
    report, state = made(tmp_path, build_libcuda(tmp_path, "segfault cuLaunchKernel 300"))
    failure = failure_of(report)
    assert failure.reason is Reason.CRASHED
    assert "cuLaunchKernel" in (failure.function or "")
    assert "SIGSEGV in cuLaunchKernel" in failure.detail
    assert "wsl --shutdown" in (failure.advice or "")
    assert report.device is not None
    assert report.conditions["cuda_version"] == "12.8"
    assert report.duration_s > 0
    assert report.gpu_seconds is None
    assert state is State.CLOSED


def test_crash_while_the_gpu_is_given_back_costs_no_figure(tmp_path: Path) -> None:
    report, _ = made(tmp_path, build_libcuda(tmp_path, "segfault cuStreamDestroy_v2"))
    assert report.failure is None
    assert {sample.mode for sample in report.samples} == set(launch.SPEC.modes)
    words = "cuStreamDestroy_v2: ended by SIGSEGV in cuStreamDestroy_v2"
    assert str(report.conditions["release_errors"]).startswith(words)


@pytest.mark.parametrize(
    ("probe", "function", "fix"),
    [
        ("launch", "cuInit", "first start takes longest"),
        ("launch", "cuModuleLoadDataEx", "compiles gpud's kernels"),
        ("", "cuInit", "first start takes longest"),
    ],
    ids=["run", "kernels", "list of GPUs"],
)
async def test_start_that_takes_too_long_has_a_reason_of_its_own(
    tmp_path: Path, probe: str, function: str, fix: str
) -> None:
    launcher = Launcher(tmp_path / "gpu.lock")
    library = str(build_libcuda(tmp_path, f"hang {function}"))
    job = Job(probe, gpu=GPU if probe else None, cuda_library=library, start_limit_s=1.0)
    asked = launcher.run(launch.SPEC, job) if probe else launcher.inventory(job)
    failure = (await asked).failure
    launcher.close()
    assert failure is not None
    assert (failure.reason, failure.function) == (Reason.SLOW_START, function)
    assert failure.detail == f"not started within 1 s in {function}"
    assert fix in (failure.advice or "")
    assert "wsl --shutdown" in (failure.advice or "")
    assert launcher.standing.state is State.OPEN


def test_wait_that_hangs_has_other_words_than_a_launch_that_hangs(tmp_path: Path) -> None:
    failures = [
        failure_of(
            made(tmp_path, build_libcuda(tmp_path / name, f"hang {name} 0"), budget_s=0.5)[0]
        )
        for name in ("cuStreamSynchronize", "cuMemAlloc_v2")
    ]
    assert [failure.function for failure in failures] == ["cuStreamSynchronize", "cuMemAlloc_v2"]
    assert "does not finish what it was given" in (failures[0].advice or "")
    assert "a driver call that hangs" in (failures[1].advice or "")
    assert "while cuStreamSynchronize hung" in failures[0].detail


def test_library_that_is_cut_short_is_named_with_what_helps(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path)
    whole = library.read_bytes()
    library.unlink()  # the bytes are shared
    library.write_bytes(whole[:4096])
    failure = failure_of(made(tmp_path, library)[0])
    assert (failure.reason, failure.function) == (Reason.CRASHED, "dlopen")
    assert "SIGBUS in dlopen; the driver's library is damaged or cut short" in failure.detail
    assert "install or update the NVIDIA driver" in (failure.advice or "")


def test_gpu_that_cannot_be_described_degrades_cuda_and_the_other_one_stays() -> None:
    refused = Failure(Reason.CUDA_ERROR, "cuDeviceGetName: 999, asked about GPU 1", advice="fix it")
    inventory = Inventory((snapshots.DEVICE,), "12.8", refused=(refused,))
    after = inventory_taken(inventory, 1.0)(snapshots.bare())
    health = after.health["cuda"]
    assert (health.level, health.reason, health.fix) == (Level.DEGRADED, "cuda_error", "fix it")
    assert "asked about GPU 1" in (health.detail or "")
    assert list(after.gpus) == [snapshots.DEVICE.uuid]


def test_gpu_time_of_failed_runs_is_counted_where_it_is_reported() -> None:
    failure = Failure(Reason.VERIFICATION_FAILED, "wrong")
    unknown = RunReport(launch.SPEC.name, launch.SPEC.backend, failure=failure)
    costly = replace(unknown, gpu_seconds=0.5, vram_peak_bytes=1 << 30)
    after = before = snapshots.bare()
    for report in (costly, unknown):
        after = run_finished(report, GPU, 1.0, 1.0, ())(after)
    assert after.measure.gpu_seconds - before.measure.gpu_seconds == pytest.approx(0.5)
    assert after.measure.vram_peak_bytes == 1 << 30
    assert after.measure.pinned_peak_bytes == before.measure.pinned_peak_bytes


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"probes": [{}], "refused": {}}', b"\xff"])
def test_what_is_not_a_list_of_probes_is_refused(text: bytes) -> None:
    with pytest.raises(WireError):
        outcome.decode_specs(text)
