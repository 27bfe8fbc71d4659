"""Every key of a stand-in's script does what it says, and a mistake in one is never quiet."""

import ctypes
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.standins.build import (
    build_libcuda,
    build_libnvml,
)
from tests.standins.loaded import PTX, Cuda, run

Open = Callable[..., Cuda]


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
