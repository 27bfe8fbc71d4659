"""A run that goes wrong in one place keeps what it knows of all the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpud.child.latency import sequences, single_calls
from gpud.child.probes import launch
from gpud.child.progress import Budget, Progress
from gpud.core.sample import Job, Reason
from tests.child.running import GPU, REAL, opened, scripted
from tests.contracts.test_device import _unload
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Call


class Noted(Progress):
    """Progress that counts its notes."""

    count = 0

    def about(self, name: str) -> None:
        self.count += 1
        super().about(name)


def notes(gpu: Gpu, noted: Noted, calls: tuple[Call, ...], count: int) -> list[int]:
    """How many notes each timed loop writes for ``count`` calls."""
    budget, result = Budget(30), []
    for loop in (
        lambda: single_calls(gpu, calls[0], count, budget),
        lambda: sequences(gpu, calls, count, budget),
        lambda: sequences(gpu, (*[calls[0]] * count, gpu.wait), 1, budget),
        lambda: gpu.timed(calls[0], count),
        lambda: gpu.together(calls[0], calls[0], count),
    ):
        before = noted.count
        loop()
        result.append(noted.count - before)
    return result


def test_timed_loops_write_no_note_however_many_calls_they_make(tmp_path: Path) -> None:
    library, noted = build_libcuda(tmp_path), Noted()
    try:
        with opened(Job(gpu=GPU, cuda_library=str(library)), spin=True, progress=noted) as gpu:
            empty = gpu.launch(gpu.kernel("gpud_empty"), (1, 1), (1, 1))
            notes(gpu, noted, (empty, gpu.wait), 1)  # which makes the second lane
            item, many = (notes(gpu, noted, (empty, gpu.wait), count) for count in (1, 200))
    finally:
        _unload(library)
    assert item == many
    assert all(item)


def test_slow_start_of_the_driver_counts_against_no_budget(tmp_path: Path) -> None:
    script = "delay cuInit 1500\ndelay cuModuleLoadDataEx 1000 0 1"
    ended = scripted(tmp_path, "launch", script, clock=REAL, budget_s=1.5)
    assert set(ended.samples) == set(launch.SPEC.modes)
    conditions = ended.document["conditions"]
    assert conditions["init_s"] >= 1.5
    assert conditions["module_load_s"] >= 1.0
    assert conditions["start_s"] >= 2.5


def test_failed_run_tells_what_it_has_cost_and_where_it_ran(tmp_path: Path) -> None:
    ended = scripted(tmp_path, "nbody", "corrupt gpud_nbody")
    assert ended.failure["reason"] == Reason.VERIFICATION_FAILED
    report = ended.document
    assert report["gpu_seconds"] > 0
    assert report["vram_peak_bytes"] > 0
    assert report["pinned_peak_bytes"] == 0
    assert report["device"]["uuid"] == GPU
    conditions = report["conditions"]
    assert conditions["cuda_version"] == "12.8"
    assert conditions["library"] == str(tmp_path / "libcuda.so.1")
    assert conditions["memory_free_bytes"] > 0
    assert "verified" not in conditions


def test_failed_start_reports_no_cost_rather_than_none_at_all(tmp_path: Path) -> None:
    ended = scripted(tmp_path, "nbody", "fail cuInit 999")
    assert ended.failure["function"] == "cuInit"
    report = ended.document
    assert (report["gpu_seconds"], report["vram_peak_bytes"]) == (None, None)
    assert report["pinned_peak_bytes"] is None
    assert report["conditions"]["library"] == str(tmp_path / "libcuda.so.1")


@pytest.mark.parametrize(
    ("refusal", "name"),
    [("cuModuleGetLoadingMode 999", "loading"), ("cuDriverGetVersion 999", "cuda_version")],
)
def test_label_that_the_driver_refuses_is_absent_and_the_run_goes_on(
    tmp_path: Path, refusal: str, name: str
) -> None:
    ended = scripted(tmp_path, "launch", f"fail {refusal}")
    assert set(ended.samples) == set(launch.SPEC.modes)
    assert ended.document["conditions"][name] is None
