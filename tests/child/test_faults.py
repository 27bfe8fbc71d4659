"""Whatever goes wrong, a child ends by itself and leaves one reason, or a signal, behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpud.child.cuda_api import FUNCTIONS
from gpud.child.probes import launch
from gpud.core.sample import Reason
from tests.child.running import CHILD, GPU, ask, run, scripted
from tests.child.sweep import A_SMALL_GPU
from tests.standins.build import build_libcuda

WORDS = {"cuGetErrorName", "cuGetErrorString"}
CLEANING = {
    "cuDevicePrimaryCtxRelease_v2",
    "cuEventDestroy_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuModuleUnload",
    "cuStreamDestroy_v2",
}
REPLACEABLE = {"cuMemHostAlloc"}  # ordinary memory does as well
OLDER = {"cuDeviceGetUuid"}  # not asked where its successor is
UNUSED = {"cuMemcpyDtoDAsync_v2", "cuStreamWaitEvent"}
ONLY_WITH = {
    "copy": {"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"},
    "triad": {
        "cuMemcpyHtoD_v2",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuEventElapsedTime",
    },
}
LABELS = {"cuDriverGetVersion", "cuModuleGetLoadingMode"}
"""Nothing depends on what these say: a driver that refuses them measures without it."""
NEEDED = sorted(set(FUNCTIONS) - WORDS - CLEANING - REPLACEABLE - OLDER - UNUSED - LABELS)


def prober(function: str) -> str:
    """The quickest probe that calls a function."""
    return next((probe for probe, some in ONLY_WITH.items() if function in some), "launch")


@pytest.mark.parametrize("function", NEEDED)
def test_whichever_function_refuses_the_failure_names_it(tmp_path: Path, function: str) -> None:
    ended = scripted(tmp_path, prober(function), f"fail {function} 999")
    failure = ended.failure
    assert (failure["function"], failure["code"]) == (function, 999)
    assert failure["detail"].startswith(f"{function}: CUDA_ERROR_UNKNOWN (999)")
    assert failure["reason"] in {Reason.CUDA_ERROR, Reason.INIT_FAILED}
    assert ended.err == ""


@pytest.mark.parametrize("function", sorted(CLEANING))
def test_figures_that_are_there_outlive_a_failing_clean_up(tmp_path: Path, function: str) -> None:
    assert scripted(tmp_path, "copy", f"{A_SMALL_GPU}fail {function} 999").samples


@pytest.mark.parametrize("function", sorted(WORDS))
def test_a_driver_without_words_still_gives_its_code(tmp_path: Path, function: str) -> None:
    failure = scripted(tmp_path, "launch", f"fail {function} 1\nfail cuInit 999").failure
    assert failure["code"] == 999
    assert "(999)" in failure["detail"]


@pytest.mark.parametrize("after", [1, 300, 4300, 4700, 5550])
def test_launches_that_stop_working_in_the_middle_publish_nothing(
    tmp_path: Path, after: int
) -> None:
    failure = scripted(tmp_path, "launch", f"fail cuLaunchKernel 700 {after}").failure
    assert (failure["reason"], failure["code"]) == (Reason.LAUNCH_FAILED, 700)


@pytest.mark.parametrize(
    ("function", "code", "reason", "advice"),
    [
        ("cuMemAlloc_v2", 2, Reason.OUT_OF_MEMORY, "close programs"),
        ("cuInit", 34, Reason.DRIVER_MISMATCH, "stub"),
        ("cuInit", 36, Reason.DRIVER_MISMATCH, "update the NVIDIA driver"),
        ("cuDevicePrimaryCtxRetain", 46, Reason.DEVICE_BUSY, "exclusively"),
        ("cuInit", 100, Reason.NO_DEVICE, "/usr/lib/wsl/lib"),
        ("cuModuleLoadDataEx", 218, Reason.PTX_REJECTED, "R495"),
        ("cuModuleLoadDataEx", 222, Reason.PTX_REJECTED, "R495"),
        ("cuModuleGetFunction", 300, Reason.PTX_REJECTED, "R495"),
        ("cuStreamSynchronize", 600, Reason.LAUNCH_TIMEOUT, "2 s"),
        ("cuStreamSynchronize", 700, Reason.LAUNCH_FAILED, None),
        ("cuStreamSynchronize", 702, Reason.LAUNCH_TIMEOUT, "2 s"),
        ("cuLaunchKernel", 719, Reason.LAUNCH_FAILED, "wsl --shutdown"),
        ("cuInit", 802, Reason.NOT_READY, "not ready"),
        ("cuInit", 803, Reason.DRIVER_MISMATCH, "wsl --shutdown"),
        ("cuInit", 804, Reason.DRIVER_MISMATCH, "wsl --shutdown"),
        ("cuInit", 12345, Reason.INIT_FAILED, None),
        ("cuMemsetD32_v2", 12345, Reason.CUDA_ERROR, None),
    ],
)
def test_a_code_becomes_a_reason_and_advice(
    tmp_path: Path, function: str, code: int, reason: Reason, advice: str | None
) -> None:
    kernel(tmp_path, "5.15.167.4-microsoft-standard-WSL2")
    failure = scripted(tmp_path, "launch", f"fail {function} {code}", sysroot=str(tmp_path)).failure
    assert (failure["reason"], failure["function"], failure["code"]) == (reason, function, code)
    assert (failure["advice"] is None) == (advice is None)
    assert (advice or "") in (failure["advice"] or "")


@pytest.mark.parametrize(
    ("mark", "advice"),
    [(None, "sudo modprobe nvidia"), (".dockerenv", "start the container with `--gpus all`")],
    ids=["linux", "container"],
)
def test_advice_is_for_the_machine_the_child_runs_on(
    tmp_path: Path, mark: str | None, advice: str
) -> None:
    kernel(tmp_path, "6.1.0-28-amd64")
    if mark is not None:
        (tmp_path / mark).touch()
    ended = scripted(tmp_path, "launch", "fail cuInit 100", sysroot=str(tmp_path))
    assert advice in ended.failure["advice"]
    job = {"cuda_library": str(tmp_path / "libcuda.so.1"), "sysroot": str(tmp_path)}
    listed = ask("--inventory", json.dumps(job)).document
    assert listed["failure"]["advice"] == ended.failure["advice"]


def kernel(sysroot: Path, release: str) -> None:
    place = sysroot / "proc/sys/kernel/osrelease"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"{release}\n")


@pytest.mark.parametrize(
    "hung", ["cuInit", "cuModuleLoadDataEx", "cuStreamSynchronize", "cuLaunchKernel 300"]
)
def test_a_driver_call_that_never_returns_ends_with_the_alarm(tmp_path: Path, hung: str) -> None:
    began = time.monotonic()
    ended = scripted(tmp_path, "launch", f"hang {hung}", budget_s=0.4, start_limit_s=0.4)
    assert (ended.code, ended.out) == (-signal.SIGALRM, "")
    assert time.monotonic() - began < 5


def test_a_driver_that_aborts_leaves_a_signal_and_half_no_document(tmp_path: Path) -> None:
    ended = scripted(tmp_path, "launch", "crash cuLaunchKernel 300")
    assert (ended.code, ended.out) == (-signal.SIGABRT, "")


@pytest.mark.timeout(20)  # a child that never calls the driver leaves the log unopened
def test_an_orphan_gives_everything_back_and_ends_without_a_document(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    os.mkfifo(calls)
    library = build_libcuda(tmp_path, f"log {calls}\nlaunch_ns 200000")
    starter = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    between = subprocess.Popen(
        [sys.executable, "-I", "-c", starter, *CHILD, "--run"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert between.stdin is not None
    assert between.stdout is not None
    job = {"probe": "launch", "gpu": GPU, "cuda_library": str(library)}
    between.stdin.write(json.dumps(job).encode())
    between.stdin.close()
    with between, calls.open(encoding="ascii") as log:
        seen = [next(log)]
        while seen[-1] != "cuLaunchKernel\n":
            seen.append(next(log))
        between.kill()
        seen += log  # to the end of the child
        assert between.stdout.read() == b""
    assert seen.count("cuLaunchKernel\n") < 4000
    assert seen[-1] == "cuDevicePrimaryCtxRelease_v2\n"


@pytest.mark.parametrize(
    ("probe", "corrupted"),
    [
        ("launch", "gpud_count"),
        ("triad", "gpud_triad"),
        ("nbody", "gpud_nbody"),
        ("copy", "copy"),
        ("device_copy", "device_copy\ndevice.0.free_mem 8000000"),  # a real copy takes its time
    ],
)
def test_a_wrong_result_publishes_nothing(tmp_path: Path, probe: str, corrupted: str) -> None:
    failure = scripted(tmp_path, probe, f"corrupt {corrupted}").failure
    assert failure["reason"] == Reason.VERIFICATION_FAILED
    assert failure["function"] is None


def test_a_missing_function_is_named_with_its_library(tmp_path: Path) -> None:
    failure = scripted(tmp_path, "launch", without=["cuEventElapsedTime"]).failure
    assert failure["reason"] == Reason.SYMBOL_MISSING
    assert failure["function"] == "cuEventElapsedTime"
    assert str(tmp_path / "libcuda.so.1") in failure["detail"]
    assert "update the NVIDIA driver" in failure["advice"]


def test_a_function_that_only_newer_drivers_have_is_not_needed(tmp_path: Path) -> None:
    ended = scripted(tmp_path, "launch", without=["cuModuleGetLoadingMode"])
    assert ended.samples
    assert ended.document["conditions"]["loading"] is None


def test_a_missing_library_is_told_in_the_words_of_the_loader(tmp_path: Path) -> None:
    failure = run("launch", tmp_path / "libcuda.so.1").failure
    assert failure["reason"] == Reason.LIBRARY_MISSING
    assert f"{tmp_path}/libcuda.so.1: cannot open shared object file" in failure["detail"]
    assert "[cuda] library" in failure["advice"]


def test_a_file_that_is_no_library_is_told_in_the_words_of_the_loader(tmp_path: Path) -> None:
    text = tmp_path / "libcuda.so.1"
    text.write_text("not a library, but long enough to look like one at the first glance\n")
    failure = run("launch", text).failure
    assert failure["reason"] == Reason.LIBRARY_MISSING
    assert "invalid ELF header" in failure["detail"]


def test_a_driver_of_cuda_11_4_measures(tmp_path: Path) -> None:
    ended = scripted(tmp_path, "launch", "driver_version 11040")
    assert ended.samples
    assert ended.document["conditions"]["cuda_version"] == "11.4"


def test_a_driver_too_old_for_the_kernels_says_what_to_do(tmp_path: Path) -> None:
    failure = scripted(tmp_path, "launch", "driver_version 8000").failure
    assert (failure["reason"], failure["code"]) == (Reason.PTX_REJECTED, 222)
    assert "update the NVIDIA driver" in failure["advice"]


def test_a_gpu_that_is_not_there_is_named(tmp_path: Path) -> None:
    failure = scripted(tmp_path, "launch", gpu="GPU-gone").failure
    assert failure["reason"] == Reason.NO_DEVICE
    assert "GPU-gone" in failure["detail"]


GOOD = {"probe": "cpu_call"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"probe": "cpu_call"', "not JSON"),
        (b"[" * 30_000, "not JSON"),
        (b" " * 70_000 + b"{}", "not JSON"),  # longer than any job
        (b"[]", "not an object"),
        (b'{"probe": "cpu_call", "sudo": 1}', "unknown field 'sudo'"),
        (json.dumps({**GOOD, "budget_s": float("nan")}), "budget_s is nan"),
        (json.dumps({**GOOD, "budget_s": float("inf")}), "budget_s is inf"),
        (json.dumps({**GOOD, "budget_s": 0}), "budget_s is 0"),
        (json.dumps({**GOOD, "budget_s": "10"}), "budget_s has the wrong type"),
        (json.dumps({**GOOD, "budget_s": True}), "budget_s has the wrong type"),
        (json.dumps({**GOOD, "seed": 1.5}), "seed has the wrong type"),
        (json.dumps({**GOOD, "cuda_library": None}), "cuda_library has the wrong type"),
        (json.dumps({"probe": 7}), "probe has the wrong type"),
    ],
)
@pytest.mark.parametrize("option", ["--run", "--inventory"])
def test_a_job_that_makes_no_sense_is_refused_in_one_line(
    option: str, given: str | bytes, said: str
) -> None:
    ended = ask(option, given)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith("not a job: ")
    assert said in ended.err


@pytest.mark.parametrize("name", ["", "unheard\nof", "_private", "../launch", "x" * 500])
def test_a_probe_that_does_not_exist_is_refused_in_one_line(name: str) -> None:
    ended = ask("--run", json.dumps({"probe": name}))
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "no such probe" in ended.err


@pytest.mark.parametrize("option", ["", "--help", "--runs"])
def test_another_option_is_a_usage_error(option: str) -> None:
    ended = ask(option, "{}")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("usage: ")


@pytest.mark.parametrize("option", ["--run", "--inventory"])
@pytest.mark.parametrize("path", ["/nul\0/libcuda.so.1", "/lone\ud800/libcuda.so.1"])
def test_a_path_that_no_file_can_have_is_a_missing_library(option: str, path: str) -> None:
    job = {"cuda_library": path, "gpu": GPU, **({"probe": "launch"} if option == "--run" else {})}
    ended = ask(option, json.dumps(job))
    assert ended.code == 1
    assert ended.document["failure"]["reason"] == Reason.LIBRARY_MISSING
    assert ended.err == ""


def test_the_inventory_lists_every_gpu(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path, "devices 2\ndevice.1.name A second one")
    found = ask("--inventory", json.dumps({"cuda_library": str(library)})).document
    assert [gpu["index"] for gpu in found["devices"]] == [0, 1]
    assert found["devices"][0]["uuid"] == GPU
    assert found["devices"][1]["name"] == "A second one"
    assert found["cuda_version"] == "12.8"
    assert found["library"] == str(library)
    assert found["failure"] is None


@pytest.mark.parametrize("script", ["devices 0", "fail cuInit 100", "fail cuDeviceGetCount 100"])
def test_an_inventory_without_gpus_says_why(tmp_path: Path, script: str) -> None:
    library = build_libcuda(tmp_path, script)
    ended = ask("--inventory", json.dumps({"cuda_library": str(library)}))
    assert ended.code == 1
    assert ended.document["devices"] == []
    assert ended.document["failure"]["reason"] == Reason.NO_DEVICE


AUDITED = """
import runpy, sys
def heard(event, arguments):
    if event in {"import", "ctypes.dlopen"}:
        print(event, arguments[0], file=sys.stderr)
sys.addaudithook(heard)
sys.argv = ["gpud.child", *sys.argv[1:]]
runpy.run_module("gpud.child", run_name="__main__")
"""


def opened(option: str, job: dict[str, Any]) -> tuple[bool, bool]:
    """Whether a child loads numpy, and whether it loads libcuda."""
    ended = subprocess.run(
        [sys.executable, "-I", "-c", AUDITED, option],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=True,
    )
    heard = ended.stderr.splitlines()
    cuda_too = any(line.startswith("ctypes.dlopen") and "libcuda" in line for line in heard)
    return "import numpy" in heard, cuda_too


def test_a_child_loads_what_its_question_needs_and_no_more(tmp_path: Path) -> None:
    job = {"cuda_library": str(build_libcuda(tmp_path)), "gpu": GPU}
    assert opened("--list", {}) == (False, False)
    assert opened("--inventory", {"cuda_library": job["cuda_library"]}) == (False, True)
    assert opened("--run", {"probe": "launch", **job}) == (False, True)
    assert opened("--run", {"probe": "cpu_call", **job}) == (True, False)
    assert opened("--run", {"probe": "crossover", **job}) == (True, True)


NOISY = r"""
#include <stdio.h>
__attribute__((constructor)) static void loaded(void) { puts("loaded"); fflush(stdout); }
__attribute__((destructor)) static void unloaded(void) { puts("unloaded"); }
"""


def test_a_driver_that_prints_does_not_spoil_the_document(tmp_path: Path) -> None:
    real = build_libcuda(tmp_path / "real")
    noisy = tmp_path / "libcuda-noisy.so"
    source = str(tmp_path / "noisy.c")
    Path(source).write_text(NOISY)
    linked = ["-Wl,--no-as-needed", str(real), f"-Wl,-rpath,{real.parent}"]
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(noisy), source, *linked],
        check=True,
    )
    ended = run("launch", noisy)
    assert set(ended.samples) == set(launch.SPEC.modes)
    assert ended.err.split() == ["loaded", "unloaded"]
