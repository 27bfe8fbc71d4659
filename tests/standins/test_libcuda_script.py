"""Every key of a stand-in's script does what it says, and a mistake in one is never quiet."""

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.standins.build import BuildError, build_libcuda, build_submit_loop, rewrite_script
from tests.standins.loaded import PTX, Cuda, loop, run

Open = Callable[..., Cuda]


def test_a_launch_takes_the_scripted_time(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path, "launch_ns 20000\n")
    program = build_submit_loop(tmp_path)
    ended = subprocess.run([program, library, "500"], capture_output=True, text=True, check=True)
    _, _, tenth_ns, *_ = map(int, ended.stdout.split())
    assert tenth_ns >= 20_000  # of real time, of which a busy machine takes more
    assert loop(library, 500)[0] == 20_020


def test_a_script_can_change_between_two_processes(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path, "driver_version 12080")
    ask = "n = ctypes.c_int(); lib.cuDriverGetVersion(ctypes.byref(n)); print(n.value)"
    before = run(library, ask).stdout
    rewrite_script(library, "driver_version 13000  # the driver was updated overnight\n")
    assert (before, run(library, ask).stdout) == ("12080\n", "13000\n")


def test_devices_are_what_the_script_says(open_cuda: Open) -> None:
    cuda = open_cuda(
        "devices 2\ndevice.1.name Some GPU, 12 GB\ndevice.1.sm_count 7\n"
        "device.1.uuid 00112233-4455-6677-8899-aabbccddeeff\ndevice.1.total_mem 0x1000000\n"
        "device.1.pci_bus_id 0000:2b:00.0\ndevice.0.free_mem 100000\n"
    )
    name, bus_id = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
    uuid, uuid0 = ctypes.create_string_buffer(16), ctypes.create_string_buffer(16)
    count, sms, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    cuda.call("cuDeviceGetCount", ctypes.byref(count))
    cuda.call("cuDeviceGetName", name, 64, 1)
    cuda.call("cuDeviceGetPCIBusId", bus_id, 64, 1)
    cuda.call("cuDeviceGetUuid", uuid, 1)
    cuda.call("cuDeviceGetUuid", uuid0, 0)
    cuda.call("cuDeviceGetAttribute", ctypes.byref(sms), 16, 1)
    cuda.call("cuDeviceTotalMem_v2", ctypes.byref(total), 1)
    assert (count.value, name.value, bus_id.value) == (2, b"Some GPU, 12 GB", b"0000:2b:00.0")
    assert uuid.raw.hex() == "00112233445566778899aabbccddeeff"
    assert uuid0.raw != uuid.raw
    assert (sms.value, total.value) == (7, 1 << 24)
    free = ctypes.c_size_t()
    cuda.alloc(40_000)
    cuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    assert free.value == 60_000
    too_much = ctypes.c_size_t(60_001)
    assert cuda.lib.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), too_much) == 2


def test_no_device_is_an_error_of_init(tmp_path: Path) -> None:
    assert run(build_libcuda(tmp_path, "devices 0"), "print(lib.cuInit(0))").stdout == "100\n"


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


def test_a_failure_comes_after_as_many_calls_as_the_script_says(open_cuda: Open) -> None:
    cuda = open_cuda("fail cuLaunchKernel 719 2\n")
    codes = [cuda.launch("gpud_empty", (1, 1), (1, 1)) for _ in range(4)]
    assert codes == [0, 0, 719, 719]


def test_a_failure_passes_after_as_many_times_as_the_script_says(open_cuda: Open) -> None:
    cuda = open_cuda("fail cuLaunchKernel 719 1 2\n")
    codes = [cuda.launch("gpud_empty", (1, 1), (1, 1)) for _ in range(5)]
    assert codes == [0, 719, 719, 0, 0]


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
        with log.open() as called:
            assert [called.readline() for _ in range(2)] == ["cuInit\n"] * 2
            assert process.stdout.readline() == "0\n"
            assert not select.select([process.stdout], [], [], 0.1)[0]
            for _ in range(2):  # every call from then on waits for a byte of its own
                fifo.write_bytes(b"x")
                assert process.stdout.readline() == "0\n"


def test_a_stall_on_a_file_that_is_not_there_ends_the_process(tmp_path: Path) -> None:
    result = run(build_libcuda(tmp_path, f"stall cuInit {tmp_path}/none"), "lib.cuInit(0)")
    assert result.returncode == -signal.SIGABRT
    assert "none" in result.stderr


def test_a_hanging_call_ends_by_a_default_signal(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path, "hang cuInit\n")
    result = run(
        library,
        """
        import signal
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        lib.cuInit(0)
        """,
    )
    assert result.returncode == -signal.SIGALRM


def test_a_crashing_call_aborts(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path, "crash cuInit\n")
    assert run(library, "lib.cuInit(0)").returncode == -signal.SIGABRT


def test_calls_are_logged_by_name(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    library = build_libcuda(tmp_path, f"log {log}\n")
    run(library, "lib.cuInit(0); lib.cuCtxSynchronize()")
    assert log.read_text().split() == ["cuInit", "cuCtxSynchronize"]


@pytest.mark.parametrize(("script", "at"), [("", 0), (" 40", 40)])
def test_a_corrupt_kernel_is_wrong_in_one_element(open_cuda: Open, script: str, at: int) -> None:
    cuda = open_cuda(f"corrupt gpud_triad{script}\n")
    ones = np.ones(256, np.float32)
    out = cuda.alloc(ones.nbytes)
    cuda.triad(64, out, cuda.put(ones), cuda.put(ones))
    wrong = np.flatnonzero(cuda.get(out.value, 256) != 4)
    np.testing.assert_array_equal(wrong, [4 * at])


def test_a_corrupt_element_is_seen_by_whoever_reads_only_a_part(open_cuda: Open) -> None:
    cuda = open_cuda("corrupt gpud_triad\n")
    ones = np.ones(256, np.float32)
    out = cuda.alloc(ones.nbytes)
    cuda.triad(64, out, cuda.put(ones), cuda.put(ones))
    assert list(cuda.get(out.value + 160, 8) != 4) == [True] + [False] * 7


def test_a_corrupt_counter_and_a_corrupt_copy_are_noticed(open_cuda: Open) -> None:
    cuda = open_cuda("corrupt gpud_count\n")
    counter = cuda.alloc(4)
    cuda.launch("gpud_count", (1, 1), (1, 1), counter)
    assert cuda.get(counter.value, 1).view(np.uint32)[0] != 1
    cuda = open_cuda("corrupt copy\n")
    pattern = np.arange(16, dtype=np.float32)
    assert list(cuda.get(cuda.put(pattern).value, 16) != pattern) == [True] + [False] * 15


def test_pinned_memory_runs_out_where_the_script_says(open_cuda: Open) -> None:
    cuda, pointer = open_cuda("pinned_limit 8192\n"), ctypes.c_void_p()
    cuda.call("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(8192), 0)
    more = ctypes.c_void_p()
    assert cuda.lib.cuMemHostAlloc(ctypes.byref(more), ctypes.c_size_t(1), 0) == 2
    cuda.call("cuMemFreeHost", pointer)
    cuda.call("cuMemHostAlloc", ctypes.byref(more), ctypes.c_size_t(1), 0)


@pytest.mark.parametrize(
    "script",
    [
        "launch_ms 3",
        "launch_ns 3us",
        "launch_ns",
        "fail cuLaunch 3",
        "fail malloc 3",
        "fail cuInit",
        "hang cuInit 1 2",
        "fail cuInit 1 2 3 4",
        "stall cuInit",
        "corrupt gpud_tirad",
        "device.0.colour blue",
        "device.99.name x",
        "device.0.uuid 1234",
        "flops_per_second 0",
        "device.0.flops_per_second 0",
        "launch_ns_second 5",
        "launch_tail_ns 5 1.5",
        "launch_tail_ns -5 0.5",
        "warmup_factor 0.5",
        "kernel_jitter -1",
        "duplex_ratio 1.5",
        "corrupt device_copy 3",
        "ledger /nonexistent/ledger",
        "noise 1 0.1",
        "noise 1 0.1 /nonexistent/places",
        "noise_visits 0.1 5 2",
        "noise 1 0.1 /dev/null\nnoise_busy 0.1 5",
        "noise 1 0.1 /dev/null\nnoise_visits 0.95 5 2",
        "fail cuInit 1\nfail cuInit 2",
    ],
)
def test_a_mistake_in_a_script_ends_the_process(tmp_path: Path, script: str) -> None:
    result = run(build_libcuda(tmp_path, script), "lib.cuInit(0)")
    assert result.returncode == -signal.SIGABRT
    assert result.stderr.startswith("stand-in libcuda.so.1: ")


def test_a_function_can_be_left_out(tmp_path: Path) -> None:
    whole = build_libcuda(tmp_path / "whole")
    lacking = build_libcuda(tmp_path / "lacking", without=["cuModuleGetLoadingMode"])
    ask = "print(hasattr(lib, 'cuModuleGetLoadingMode'), hasattr(lib, 'cuInit'))"
    assert run(whole, ask).stdout == "True True\n"
    assert run(lacking, ask).stdout == "False True\n"
    with pytest.raises(BuildError, match="cuNothing"):
        build_libcuda(tmp_path / "typo", without=["cuNothing"])


def test_the_library_carries_the_soname_that_loaders_look_for(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path)
    assert run(library, "ctypes.CDLL('libcuda.so.1').cuInit(0)").returncode == 0


@pytest.mark.parametrize(("wanted", "mode"), [({}, 2), ({"CUDA_MODULE_LOADING": "EAGER"}, 1)])
def test_the_loading_mode_follows_the_drivers_own_variable(
    tmp_path: Path, wanted: dict[str, str], mode: int
) -> None:
    library = build_libcuda(tmp_path)
    program = (
        f"import ctypes; lib = ctypes.CDLL({str(library)!r}); n = ctypes.c_int(); lib.cuInit(0);"
        "lib.cuModuleGetLoadingMode(ctypes.byref(n)); print(n.value)"
    )
    command = [sys.executable, "-I", "-c", program]
    assert subprocess.check_output(command, env=wanted, text=True) == f"{mode}\n"
