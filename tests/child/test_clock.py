"""The SM clock that a kernel reads: how right it is, what it refuses, warm-ups that wait for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.child.running import GPU, INTERPRETED, ask, scripted
from tests.standins.build import build_libcuda
from tests.standins.loaded import virtual_time

if TYPE_CHECKING:
    from pathlib import Path

SMALL = "flops_per_second 2e11\ntensor_flops_per_second 2e11\nbytes_per_second 1e10\n"
KERNELS = ("matmul", "nbody", "tensor", "triad")


@pytest.mark.parametrize("probe", KERNELS)
def test_the_clock_of_a_run_is_that_of_the_gpu(tmp_path: Path, probe: str) -> None:
    ended = scripted(tmp_path, probe, f"{SMALL}sm_clock_hertz 1.725e9\ntimer_tick_ns 1024")
    conditions, sample = ended.document["conditions"], ended.samples[probe]
    for name in ("sm_clock_hertz", "sm_clock_min_hertz", "sm_clock_max_hertz"):
        assert conditions[name] == pytest.approx(1.725e9, rel=0.005)
    assert conditions["work_per_cycle"] == pytest.approx(sample["median"] / 1.725e9, rel=0.005)
    assert "sm_clock_absent" not in conditions


NO_ACCESS = "the driver gives no access to the clocks"


@pytest.mark.parametrize(
    ("script", "without", "reason"),
    [
        ("timer_tick_ns 1048576", (), "the GPU's timer ticks every 1048576 ns: too seldom"),
        ("sm_clock_hertz 1e6", (), "are no clock of a GPU"),
        ("sm_clock_hertz 9e9", (), "are no clock of a GPU"),
        ("fail cuModuleGetGlobal_v2 500 0", (), NO_ACCESS),
        ("", ("cuModuleGetGlobal_v2", "cuFuncGetAttribute"), NO_ACCESS),
    ],
)
def test_a_clock_that_cannot_be_is_absent_with_the_reason(
    tmp_path: Path, script: str, without: tuple[str, ...], reason: str
) -> None:
    ended = scripted(tmp_path, "nbody", SMALL + script, without)
    assert ended.samples["nbody"]["median"] == pytest.approx(2e11, rel=0.05)
    conditions = ended.document["conditions"]
    assert reason in conditions["sm_clock_absent"]
    assert {"sm_clock_hertz", "work_per_cycle"}.isdisjoint(conditions)
    assert (conditions["code"] is None) == bool(without)


def test_what_the_compiler_made_is_stored_beside_what_is_pinned(tmp_path: Path) -> None:
    script = f"{SMALL}compiled gpud_matmul_128 120 64\ncompiler_factor 1.25"
    ended = scripted(tmp_path, "matmul", script)
    conditions, samples = ended.document["conditions"], ended.samples
    assert conditions["code"].startswith("120 registers, 16640 B shared, 64 B local, ")
    assert conditions["pinned.code"].startswith("128 registers, 16640 B shared, 0 B local, ")
    assert samples["pinned"]["median"] == pytest.approx(
        1.25 * samples["matmul"]["median"], rel=0.02
    )


@pytest.mark.parametrize(
    ("major", "minor", "architecture"), [(8, 0, 80), (8, 9, 80), (9, 0, 90), (12, 1, 120)]
)
def test_a_gpu_runs_the_machine_code_of_its_architecture(
    tmp_path: Path, major: int, minor: int, architecture: int
) -> None:
    script = f"{SMALL}device.0.cc_major {major}\ndevice.0.cc_minor {minor}"
    ended = scripted(tmp_path, "matmul", script)
    assert f"sm_{architecture}" in ended.document["conditions"]["pinned.code"]


SLOW = "bytes_per_second 1e10\nflops_per_second"


@pytest.mark.parametrize(
    ("script", "reason", "words"),
    [
        (f"{SMALL}device.0.cc_major 7\ndevice.0.cc_minor 5", "unsupported", "capability 7.5"),
        (f"{SMALL}device.0.cc_major 10\ndevice.0.cc_minor 0", "unsupported", "capability 10.0"),
        # The compiled kernel and the sums that check it are loaded before.
        (f"{SMALL}fail cuModuleLoadDataEx 209 2", "ptx_rejected", "cuModuleLoadDataEx: "),
        (f"{SLOW} 4e9", "budget_exceeded", ""),
        (f"{SLOW} 5e9", "budget_exceeded", ""),
    ],
)
def test_a_gpu_without_machine_code_or_time_for_it_lacks_that_mode_with_the_reason(
    tmp_path: Path, script: str, reason: str, words: str
) -> None:
    ended = scripted(tmp_path, "matmul", script)
    assert list(ended.samples) == ["matmul"]
    (missing,) = ended.document["missing"]
    assert (missing["mode"], missing["reason"]) == ("pinned", reason)
    assert words in missing["detail"]


@pytest.mark.parametrize(
    ("function", "code", "reason", "modes"),
    [
        ("cuMemAlloc_v2", 2, "out_of_memory", ["matmul"]),
        ("cuModuleLoadDataEx", 218, "ptx_rejected", ["matmul"]),
        # Of a GPU that is lost, or a kernel that fails, the compiled product is not told apart.
        ("cuModuleLoadDataEx", 4, "device_lost", []),
        ("cuLaunchKernel", 700, "launch_failed", []),
    ],
)
def test_what_the_pinned_product_lacks_costs_its_figure_and_what_the_gpu_lacks_the_run(
    tmp_path: Path, function: str, code: int, reason: str, modes: list[str]
) -> None:
    log = tmp_path / "calls"
    assert scripted(tmp_path / "clean", "matmul", f"{SMALL}log {log}").code == 0
    calls = log.read_text().split()
    loaded = max(at for at, name in enumerate(calls) if name == "cuModuleLoadDataEx")
    fault = f"fail {function} {code} {calls[:loaded].count(function)}"
    document = scripted(tmp_path / "faulty", "matmul", SMALL + fault).document
    assert [sample["mode"] for sample in document["samples"]] == modes
    missing = document["missing"][0] if modes else document["failure"]
    assert missing["reason"] == reason


def test_a_warm_up_does_not_end_where_the_clock_waits_before_it_rises(tmp_path: Path) -> None:
    step = "clock_step_kernels 22\nclock_step 0.3\n"
    samples = scripted(tmp_path, "nbody", f"{SMALL}{step}sm_clock_hertz 2.4e9").samples
    assert samples["nbody"]["median"] == pytest.approx(2e11, rel=0.03)


def test_a_gpu_whose_clock_stays_low_is_waited_for_once_in_a_context(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path, f"{SMALL}sm_clock_hertz 1e9")
    job = json.dumps({"probe": "nbody", "gpu": GPU, "cuda_library": str(library)})
    ended = ask("--serve", f"{job}\n{job}\n", environment=virtual_time(tmp_path, INTERPRETED))
    first, second = map(json.loads, ended.out.splitlines())
    assert second["gpu_seconds"] < first["gpu_seconds"] - 0.05
    for report in (first, second):
        assert report["conditions"]["settled"]
        assert report["conditions"]["sm_clock_hertz"] == pytest.approx(1e9, rel=0.01)
