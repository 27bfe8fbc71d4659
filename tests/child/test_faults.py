"""Whatever goes wrong, a child ends by itself and leaves one reason, or a signal, behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpud.child.cuda_api import FUNCTIONS, OPTIONAL
from gpud.child.probes import launch
from gpud.core.sample import Reason
from tests.child.running import CHILD, GPU, INTERPRETED, REAL, ask, run, scripted
from tests.child.sweep import A_SMALL_GPU
from tests.standins.build import build_libcuda
from tests.standins.loaded import virtual_time

WORDS = {"cuGetErrorName", "cuGetErrorString"}


@pytest.mark.parametrize("function", sorted(WORDS))
def test_a_driver_without_words_still_gives_its_code(tmp_path: Path, function: str) -> None:
    failure = scripted(tmp_path, "launch", f"fail {function} 1\nfail cuInit 999").failure
    assert failure["code"] == 999
    assert "(999)" in failure["detail"]


@pytest.mark.parametrize(
    ("function", "code", "reason", "advice"),
    [
        ("cuInit", 34, Reason.DRIVER_MISMATCH, "stub"),
        ("cuInit", 100, Reason.NO_DEVICE, "/usr/lib/wsl/lib"),
        ("cuModuleLoadDataEx", 218, Reason.PTX_REJECTED, "R495"),
        ("cuStreamSynchronize", 700, Reason.LAUNCH_FAILED, None),
        ("cuStreamSynchronize", 702, Reason.LAUNCH_TIMEOUT, "2 s"),
        ("cuLaunchKernel", 719, Reason.LAUNCH_FAILED, "wsl --shutdown"),
        ("cuInit", 803, Reason.DRIVER_MISMATCH, "wsl --shutdown"),
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
    listed = ask("--serve", json.dumps(job)).document
    assert listed["failure"]["advice"] == ended.failure["advice"]


def kernel(sysroot: Path, release: str) -> None:
    place = sysroot / "proc/sys/kernel/osrelease"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"{release}\n")


@pytest.mark.parametrize(
    ("trouble", "number"),
    [
        *((f"hang {call}", signal.SIGALRM) for call in ("cuInit", "cuModuleLoadDataEx")),
        *((f"hang {call}", signal.SIGALRM) for call in ("cuStreamSynchronize", "cuLaunchKernel 9")),
        ("crash cuLaunchKernel 300", signal.SIGABRT),
    ],
)
def test_a_driver_call_that_never_returns_ends_with_the_alarm_and_one_that_aborts_at_once(
    tmp_path: Path, trouble: str, number: signal.Signals
) -> None:
    limits: Any = {} if number is signal.SIGABRT else {"budget_s": 0.4, "start_limit_s": 0.4}
    ended = scripted(tmp_path, "launch", trouble, **limits)
    assert (ended.code, ended.out) == (-number, "")


def test_a_slow_driver_exceeds_the_budget_and_is_not_taken_for_one_that_hangs(
    tmp_path: Path,
) -> None:
    slow = "sync_ns 20000000"
    failure = scripted(tmp_path, "small_copy", slow, clock=REAL, budget_s=1.0).failure
    assert failure["reason"] == Reason.BUDGET_EXCEEDED


@pytest.mark.timeout(20)  # a child that never calls the driver leaves the log unopened
def test_an_orphan_gives_everything_back_and_ends_without_a_document(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    os.mkfifo(calls)
    library = build_libcuda(tmp_path, f"log {calls}\nlaunch_ns 200000")
    starter = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    between = subprocess.Popen(
        [sys.executable, "-I", "-c", starter, *CHILD, "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert between.stdin is not None
    assert between.stdout is not None
    job = {"probe": "launch", "gpu": GPU, "cuda_library": str(library)}
    between.stdin.write(json.dumps(job).encode())
    between.stdin.close()
    with between, calls.open(encoding="ascii") as log:
        observed = [next(log)]
        while observed[-1] != "cuLaunchKernel\n":
            observed.append(next(log))
        between.kill()
        observed += log  # to the end of the child
        assert between.stdout.read() == b""
    assert observed.count("cuLaunchKernel\n") < 2900
    assert observed[-1] == "cuDevicePrimaryCtxRelease_v2\n"


@pytest.mark.parametrize(
    ("probe", "corrupted"),
    [
        ("launch", "gpud_count"),
        ("event", "gpud_count"),
        ("sync", "gpud_count"),
        ("memory_latency", "gpud_chase"),
        ("small_copy", "copy"),
        ("triad", "gpud_triad"),
        ("nbody", "gpud_nbody"),
        ("copy", "copy"),
        ("device_copy", "device_copy"),
    ],
)
def test_a_wrong_result_publishes_nothing(tmp_path: Path, probe: str, corrupted: str) -> None:
    memory = f"device.0.free_mem {1 << 30}\n" if probe == "memory_latency" else ""
    script = f"{A_SMALL_GPU}{memory}corrupt {corrupted}"
    failure = scripted(tmp_path, probe, script).failure
    assert failure["reason"] == Reason.VERIFICATION_FAILED
    assert failure["function"] is None


def test_a_missing_function_is_named_with_its_library(tmp_path: Path) -> None:
    failure = scripted(tmp_path, "launch", without=["cuEventElapsedTime"]).failure
    assert failure["reason"] == Reason.SYMBOL_MISSING
    assert failure["function"] == "cuEventElapsedTime"
    assert str(tmp_path / "libcuda.so.1") in failure["detail"]
    assert "update the NVIDIA driver" in failure["advice"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/nonexistent/libcuda.so.1", "libcuda.so.1: cannot open shared object file"),
        (__file__, "invalid ELF header"),
        ("/nul\0/libcuda.so.1", ""),
        ("/lone\ud800/libcuda.so.1", ""),
    ],
)
@pytest.mark.parametrize("job", [{}, {"probe": "launch"}], ids=["list", "run"])
def test_a_library_that_cannot_be_loaded_is_named_in_the_words_of_the_loader(
    job: dict[str, str], path: str, words: str
) -> None:
    arguments = json.dumps({"cuda_library": path, "gpu": GPU, **job})
    ended = ask("--serve", arguments)
    failure = ended.document["failure"]
    assert (ended.code, ended.err, failure["reason"]) == (1, "", Reason.LIBRARY_MISSING)
    assert words in failure["detail"]
    assert "[cuda] library" in failure["advice"]


def test_a_driver_of_cuda_11_4_measures(tmp_path: Path) -> None:
    ended = scripted(tmp_path, "launch", "driver_version 11040")
    assert ended.samples
    assert ended.document["conditions"]["cuda_version"] == "11.4"


def test_a_driver_too_old_for_the_kernels_says_what_to_do(tmp_path: Path) -> None:
    failure = scripted(tmp_path, "launch", "driver_version 8000").failure
    assert (failure["reason"], failure["code"]) == (Reason.PTX_REJECTED, 222)
    assert "update the NVIDIA driver" in failure["advice"]


@pytest.mark.parametrize("option", ["", "--help", "--run"])
def test_another_option_is_a_usage_error(option: str) -> None:
    ended = ask(option, "{}")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("usage: ")


AUDITED = """
import os, runpy, sys
def heard(event, arguments):
    if event in {"import", "ctypes.dlopen"}:
        print(event, arguments[0], file=sys.stderr)
    if event == "import" and arguments[0] == "numpy":
        print("threads", os.environ.get("OPENBLAS_NUM_THREADS", "all"), file=sys.stderr)
sys.addaudithook(heard)
sys.argv = ["gpud.child", *sys.argv[1:]]
runpy.run_module("gpud.child", run_name="__main__")
"""


def opened(option: str, job: dict[str, Any]) -> tuple[str, bool]:
    """On how many threads numpy computes that a child loads, and whether it loads libcuda."""
    ended = subprocess.run(
        [sys.executable, "-I", "-c", AUDITED, option],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=True,
    )
    received = ended.stderr.splitlines()
    cuda_too = any(line.startswith("ctypes.dlopen") and "libcuda" in line for line in received)
    return next((line for line in received if line.startswith("threads ")), ""), cuda_too


def test_a_child_loads_what_its_question_needs_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    job = {"cuda_library": str(build_libcuda(tmp_path)), "gpu": GPU}
    assert opened("--list", {}) == ("", False)
    assert opened("--serve", {"cuda_library": job["cuda_library"]}) == ("", True)
    assert opened("--serve", {"probe": "launch", **job}) == ("", True)
    assert opened("--serve", {"probe": "cpu_call", **job}) == ("", False)
    assert opened("--serve", {"probe": "cpu_matmul", **job}) == ("threads 1", False)
    assert opened("--serve", {"probe": "crossover", **job}) == ("threads all", True)


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


PROBES = ("launch", "event", "small_copy", "triad", "copy", "device_copy", "nbody", "matmul")


def test_no_probe_looks_up_capture_of_streams_managed_memory_or_a_way_around_the_list(
    tmp_path: Path,
) -> None:
    library = build_libcuda(tmp_path, A_SMALL_GPU)
    jobs = [{"probe": name, "gpu": GPU, "cuda_library": str(library)} for name in PROBES]
    environment = virtual_time(tmp_path, INTERPRETED)
    watched = {"LD_DEBUG": "symbols", "LD_DEBUG_OUTPUT": str(tmp_path / "symbols")}
    ended = ask("--serve", "\n".join(map(json.dumps, jobs)), environment=environment | watched)
    reports = [json.loads(line) for line in ended.out.splitlines()]
    assert [report["failure"] for report in reports] == [None] * len(PROBES), ended.err
    (file,) = tmp_path.glob("symbols.*")
    names = set(re.findall(r"symbol=(cu[A-Z]\w+);", os.fsdecode(file.read_bytes())))
    assert set(FUNCTIONS) <= names <= {*FUNCTIONS, *OPTIONAL}
    assert not [name for name in names if re.search("Capture|Managed|GetProcAddress|Export", name)]
