"""The C program beside the stand-in driver: right figures, and no figure for a wrong result."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from deploy.gpu_check.toolchain import HERE
from gpud.child import throughput, warmup
from tests.child import running
from tests.child.running import GPU, OTHER_GPU, PEERED
from tests.gpu_check.building import KERNELS, host_cublas, program
from tests.standins.build import build_libcuda, build_virtual_clock
from tests.standins.loaded import COMPILED
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SCRIPT = """
launch_ns 5000
sync_ns 2000
kernel_ns 1500
flops_per_second 1e10
tensor_flops_per_second 2e10
bytes_per_second 5e11
h2d_bytes_per_second 2e10
d2h_bytes_per_second 3e10
device.0.free_mem 33554432
"""
SMALL = "--matmul 128 --tensor 256 --bodies 1024 --triad-bytes 1048576 --copy-bytes 4194304 "
SMALL += (
    "--peer-copy-bytes 16777216 --pageable-bytes 1048576 --device-copy-bytes 1048576 --launches 500"
)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program(tmp_path_factory.mktemp("reference"))


def ended(
    reference: Path,
    folder: Path,
    *options: str,
    script: str = "",
    without: Iterable[str] = (),
) -> subprocess.CompletedProcess[str]:
    library = build_libcuda(folder, SCRIPT + script, without)
    command: list[str | Path] = [reference, "--library", library, "--prefix", "gpud_"]
    command += [*SMALL.split(), *options]
    clock = {"LD_PRELOAD": str(build_virtual_clock(folder)), "VIRTUAL_CLOCK": COMPILED}
    for module in sorted(KERNELS.glob("*.ptx")):
        command += ["--module", module]
    return subprocess.run(
        command, input="", capture_output=True, text=True, check=False, timeout=LIMIT_S, env=clock
    )


def document(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    results: dict[str, Any] = json.loads(result.stdout)
    return results


def test_rates_are_what_the_driver_was_told_to_give(reference: Path, tmp_path: Path) -> None:
    figures = document(ended(reference, tmp_path))["figures"]
    scripted = {
        "triad": 5e11,
        "device_copy": 5e11,
        "nbody": 1e10,
        "matmul": 1e10,
        "tensor": 2e10,
        "host_to_device": 2e10,
        "device_to_host": 3e10,
        "both": 4e10,  # as long as the slower way
        "kernel": 1.5e-6,
        "submit": 5e-6,
        "pipelined": 5e-6,
        "roundtrip": 8.5e-6,  # launch, kernel, wait
    }
    for name, value in scripted.items():
        assert figures[name]["median"] == pytest.approx(value, rel=0.01), name
        assert figures[name]["settled"] is True, name
    assert figures["submit_cold"]["settled"] is False


def test_batches_of_the_c_program_are_as_long_and_as_many_as_those_of_gpud() -> None:
    text = (HERE / "measure.h").read_text()
    for constant in (
        f"BATCHES = {throughput.RUNS},",
        f"LONGER = {throughput.LONGER},",
        f"#define BATCH_S {throughput.BATCH_S:g}\n",
        f"#define WARM_UP_S {warmup.LONGEST_S:.1f} ",
    ):
        assert constant in text


WAITING = "blocking_ns 30000\nquery_ns 9000\ngraph_launch_ns 20000\ngraph_node_ns 1500\n"
GATHERED = "blocking_ns 20000\nquery_ns 25000\nevent_ns 3000\nkernel_ns 4000\n"
LOADS = "dram_load_ns 611\nl2_load_ns 243\ndevice.0.free_mem 1073741824\n"


PEERS = "devices 2\ncopy_ns 2000\npeer_gpu_ns 3000\n"
PEERS += "staged_gpu_ns 9000\npeer_read_bytes_per_second 1.5e10\n"


@pytest.mark.parametrize(
    ("probe", "script", "missing", "within"),
    [
        ("sync", WAITING, 0, 0.01),
        ("sync", GATHERED, 0, 0.01),
        ("memory_latency", LOADS, 0, 0.01),
        *((probe, PEERS, 0, 0.02) for probe in sorted(PEERED)),
        *((probe, f"{PEERS}peer_access 0\n", 2, 0.02) for probe in sorted(PEERED)),
    ],
)
def test_a_figure_is_to_the_c_program_what_it_is_to_gpud(  # noqa: PLR0917
    reference: Path, tmp_path: Path, probe: str, script: str, missing: int, within: float
) -> None:
    peer = ("--peer", OTHER_GPU) if probe in PEERED else ()
    theirs = document(ended(reference, tmp_path, "--only", probe, *peer, script=script))
    library = build_libcuda(tmp_path, SCRIPT + script)
    ours = running.run(probe, library, budget_s=60).samples
    figures = theirs["figures"]
    assert set(figures) == set(ours)
    assert len(theirs["missing"]) == missing
    for mode, sample in ours.items():
        median = pytest.approx(sample["median"], rel=within)
        assert figures[mode]["median"] == median, mode


def test_every_kernel_of_gpud_is_launched_once_and_verified(
    reference: Path, tmp_path: Path
) -> None:
    results = document(ended(reference, tmp_path, "--once"))
    assert results["figures"] == {}
    sources = "".join(file.read_text() for file in KERNELS.glob("*.ptx"))
    assert set(results["verified"]) == set(re.findall(r"\.entry gpud_(\w+)", sources))
    assert results["device"]["uuid"] == GPU


def test_cublas_multiplies_the_same_matrices_and_is_verified(
    reference: Path, tmp_path: Path
) -> None:
    library = str(host_cublas())
    only = ("--only", "matmul", "--only", "tensor")
    figures = document(ended(reference, tmp_path, "--cublas", library, *only))["figures"]
    assert set(figures) == {"matmul", "matmul_cublas", "tensor", "tensor_cublas"}
    assert library.startswith(figures["tensor_cublas"]["variant"])
    absent = document(ended(reference, tmp_path, "--cublas", "/nonexistent.so", *only))
    assert set(absent["missing"]) == {"matmul_cublas", "tensor_cublas"}


@pytest.mark.parametrize("options", [("--cublas",), ()])
def test_a_loop_ends_with_its_input_and_verifies_its_last_product(
    reference: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    given = [*options, str(host_cublas())] if options else []
    ended_loop = ended(reference, tmp_path, "--loop", "--only", "matmul", *given)
    assert (ended_loop.returncode, ended_loop.stderr) == (0, "")
    assert ended_loop.stdout.split()[0] == ("cuBLAS" if options else "matmul_128")
    wrong = "corrupt gpud_matmul_128 77\ncorrupt copy\n"
    ended_loop = ended(reference, tmp_path, "--loop", "--only", "matmul", *given, script=wrong)
    assert ended_loop.returncode == 1


TYPES = (
    *(f"gpud_matmul_{name} 5000" for name in ("fp64", "bf16", "tf32", "int8")),
    *(f"gpud_sums_{name}" for name in ("fp16", "bf16", "fp32", "fp64", "int8", "int32")),
)
NOT_SENT = "the bytes that arrived are not those that were sent"


@pytest.mark.parametrize(
    ("options", "corrupted", "words"),
    [
        ("--only launch", "gpud_count", ""),
        ("--only triad", "gpud_triad 12345", ""),
        ("--only nbody", "gpud_nbody", ""),
        ("--only matmul", "gpud_matmul 5000", ""),
        ("--only tensor", "gpud_matmul_tensor 40000", ""),
        ("--only copy", "copy", ""),
        ("--only device_copy", "device_copy", ""),
        ("--only small_copy", "copy", ""),
        *(("--once --only types", name, f"{name.split()[0]}: ") for name in TYPES),
        (
            *("--once --only memory_latency", "gpud_chase"),
            "gpud_chase: the loads did not end where their addresses lead",
        ),
        (f"--only peer_copy --peer {OTHER_GPU}", "peer_copy 12345", NOT_SENT),
        (f"--only peer_copy --peer {OTHER_GPU}", "staged_copy 12345", NOT_SENT),
    ],
)
def test_one_wrong_element_anywhere_is_found_and_gives_no_figure(
    reference: Path, tmp_path: Path, options: str, corrupted: str, words: str
) -> None:
    script = f"devices 2\ncorrupt {corrupted}\n"
    result = ended(reference, tmp_path, *options.split(), script=script)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("reference: ")
    assert words in result.stderr


@pytest.mark.parametrize(
    ("function", "code", "name"),
    [
        ("cuInit", 100, "CUDA_ERROR_NO_DEVICE"),
        ("cuModuleLoadDataEx", 218, "CUDA_ERROR_INVALID_PTX"),
        ("cuLaunchKernel", 719, "CUDA_ERROR_LAUNCH_FAILED"),
        ("cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuEventElapsedTime", 700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("cuStreamSynchronize", 999, "CUDA_ERROR_UNKNOWN"),
    ],
)
def test_a_refused_call_is_named_with_its_code(
    reference: Path, tmp_path: Path, function: str, code: int, name: str
) -> None:
    result = ended(reference, tmp_path, "--only", "triad", script=f"fail {function} {code}\n")
    assert (result.returncode, result.stdout) == (1, "")
    assert f"{function}: {name} ({code})" in result.stderr


def test_what_an_old_driver_lacks_is_missing_and_the_rest_is_there(
    reference: Path, tmp_path: Path
) -> None:
    without = ("cuStreamWaitEvent", "cuGraphAddKernelNode", "cuMemcpyDtoDAsync_v2")
    results = document(ended(reference, tmp_path, without=without))
    assert set(results["missing"]) >= {"graph", "both", "device_copy"}
    assert set(results["figures"]) >= {"submit", "host_to_device", "tensor"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "nothing"], "nothing"),
        (["--bodies", "100"], "a multiple of 256"),
        (["--matmul", "-16"], "--matmul"),
        (["--seed", "x"], "--seed"),
        (["--frobnicate"], "usage"),
        (["stray"], "stray"),
    ],
)
def test_a_wrong_option_is_named(
    reference: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    result = ended(reference, tmp_path, *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert words.removeprefix("--") in result.stderr
