"""Every key of a stand-in's script does what it says, and a mistake in one is never quiet."""

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.standins.build import (
    build_libcuda,
    build_libnvml,
    build_submit_loop,
)
from tests.standins.loaded import PTX, Cuda, loop, run

Open = Callable[..., Cuda]


def test_a_launch_takes_the_scripted_time(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path, "launch_ns 20000\n")
    program = build_submit_loop(tmp_path)
    ended = subprocess.run([program, library, "500"], capture_output=True, text=True, check=True)
    _, _, tenth_ns, *_ = map(int, ended.stdout.split())
    assert tenth_ns >= 20_000  # of real time, of which a busy machine takes more
    assert loop(library, 500)[0] == 20_020


@pytest.mark.parametrize(
    ("ptx", "code", "message"),
    [
        (PTX.replace("6.0", "8.8"), 222, b"Unsupported .version 8.8"),
        (PTX.replace("6.0", "8.7"), 0, b""),
        (PTX.replace("sm_50", "sm_90"), 218, b"cannot be compiled to architecture 'sm_89'"),
        ("\x7fELF", 218, b"Missing .version"),
        ("// .version 6.0\n", 218, b"Missing .version"),
    ],
)
def test_ptx_is_judged_as_the_driver_judges_it(
    open_cuda: Open, ptx: str, code: int, message: bytes
) -> None:
    cuda = open_cuda("driver_version 12080")
    log = ctypes.create_string_buffer(256)
    options = (ctypes.c_int * 2)(5, 6)  # error log buffer, and its size
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), 256)
    module = ctypes.byref(ctypes.c_void_p())
    load = cuda.lib.cuModuleLoadDataEx
    assert load(module, ptx.encode(), 2, options, values) == code
    assert message in log.value
    assert (values[1] or 0) == len(log.value)


@pytest.mark.parametrize(
    ("rule", "codes"), [("719 2", [0, 0, 719, 719, 719]), ("719 1 2", [0, 719, 719, 0, 0])]
)
def test_a_failure_comes_after_and_for_as_many_calls_as_the_script_says(
    open_cuda: Open, rule: str, codes: list[int]
) -> None:
    cuda = open_cuda(f"fail cuLaunchKernel {rule}\n")
    assert [cuda.launch("gpud_empty", (1, 1), (1, 1)) for _ in codes] == codes


def test_a_stalled_call_goes_on_when_its_file_answers(tmp_path: Path) -> None:
    fifo, log = tmp_path / "fifo", tmp_path / "log"
    os.mkfifo(fifo)
    os.mkfifo(log)
    library = build_libcuda(tmp_path, f"stall cuInit {fifo} 1\nlog {log}\n")
    program = (
        f"import ctypes; lib = ctypes.CDLL({str(library)!r})\n"
        "for _ in range(3): print(lib.cuInit(0), flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        with (  # open for both: neither has an end while the other side comes and goes
            log.open("r+b", buffering=0) as called,
            fifo.open("r+b", buffering=0) as answer,
        ):
            assert [called.readline() for _ in range(2)] == [b"cuInit\n"] * 2
            assert process.stdout.readline() == "0\n"
            assert not select.select([process.stdout], [], [], 0.1)[0]
            for _ in range(2):  # every call from then on waits for a byte of its own
                answer.write(b"x")
                assert process.stdout.readline() == "0\n"


@pytest.mark.parametrize(
    ("function", "logged"),
    [("", "cuInit cuDeviceGetCount cuInit"), (" cuInit", "cuInit cuInit")],
)
def test_the_log_has_every_call_or_those_of_one_function(
    tmp_path: Path, function: str, logged: str
) -> None:
    library = build_libcuda(tmp_path, f"log {tmp_path}/log{function}\n")
    calls = "lib.cuInit(0); lib.cuDeviceGetCount(ctypes.byref(ctypes.c_int())); lib.cuInit(0)"
    assert run(library, calls).returncode == 0
    assert (tmp_path / "log").read_text().split() == logged.split()


@pytest.mark.parametrize(
    "script",
    [
        "launch_ms 3",
        "launch_ns 3us",
        "fail cuLaunch 3",
        "hang cuInit 1 2",
        "stall cuInit",
        "corrupt gpud_tirad",
        "device.0.colour blue",
        "device.0.uuid 1234",
        "flops_per_second 0",
        "warmup_factor 0.5",
        "noise 1 0.1",
        "log /dev/null cuInit_v9",
        "fail cuInit 1\nfail cuInit 2",
    ],
)
def test_a_mistake_in_a_script_ends_the_process(tmp_path: Path, script: str) -> None:
    result = run(build_libcuda(tmp_path, script), "lib.cuInit(0)")
    assert result.returncode == -signal.SIGABRT
    assert result.stderr.startswith("stand-in libcuda.so.1: ")


@pytest.mark.parametrize("script", ["device.0.power_w 3", "fail nvmlInit_v9 3", "devices 17"])
def test_a_mistake_in_a_script_of_nvml_ends_the_process(tmp_path: Path, script: str) -> None:
    result = run(build_libnvml(tmp_path, script), "lib.nvmlInitWithFlags(0)")
    assert result.returncode == -signal.SIGABRT
    assert result.stderr.startswith("stand-in libnvidia-ml.so.1: ")
