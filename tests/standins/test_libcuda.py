"""The stand-in libcuda.so.1 gives true results and the driver's own refusals."""

import ctypes
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.standins.build import build_libcuda
from tests.standins.loaded import Cuda, run

Open = Callable[..., Cuda]


def test_calls_in_the_wrong_order_are_refused(tmp_path: Path) -> None:
    library = build_libcuda(tmp_path)
    result = run(
        library,
        """
        import os
        n, context = ctypes.c_int(), ctypes.c_void_p()
        print(lib.cuDeviceGetCount(ctypes.byref(n)), lib.cuInit(0), lib.cuCtxSynchronize())
        print(lib.cuCtxSetCurrent(ctypes.c_void_p(12345)), lib.cuDeviceGet(ctypes.byref(n), 1))
        if not os.fork():
            os._exit(lib.cuDeviceGetCount(ctypes.byref(n)))
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        """,
    )
    assert result.stdout.split() == ["3", "0", "201", "201", "101", "3"]


def test_releasing_the_context_ends_everything_in_it(open_cuda: Open) -> None:
    cuda = open_cuda()
    old = cuda.alloc(64)
    cuda.call("cuDevicePrimaryCtxRelease_v2", 0)
    assert cuda.lib.cuCtxSynchronize() == 201
    assert cuda.lib.cuDevicePrimaryCtxRelease_v2(0) == 201
    cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(cuda.context), 0)
    cuda.call("cuCtxSetCurrent", cuda.context)
    assert cuda.lib.cuMemFree_v2(old) == 1
    assert cuda.launch("gpud_empty", (1, 1), (1, 1)) == 400


def test_bad_handles_and_pointers_are_errors_and_not_crashes(open_cuda: Open) -> None:
    cuda, bogus = open_cuda(), ctypes.c_void_p(0xDEAD)
    assert cuda.lib.cuStreamSynchronize(bogus) == 400
    assert cuda.lib.cuEventSynchronize(cuda.stream) == 400
    event = cuda.event(cuda.stream)
    cuda.call("cuEventDestroy_v2", event)
    assert cuda.lib.cuEventRecord(event, cuda.stream) == 400
    block = cuda.alloc(16)
    host = ctypes.create_string_buffer(32)
    assert cuda.lib.cuMemcpyDtoH_v2(host, block, ctypes.c_size_t(17)) == 1
    assert cuda.lib.cuMemcpyHtoD_v2(ctypes.c_uint64(64), host, ctypes.c_size_t(4)) == 1
    assert cuda.lib.cuMemFreeHost(host) == 1


def test_a_kernel_that_leaves_its_memory_spoils_the_context(open_cuda: Open) -> None:
    cuda = open_cuda()
    small = cuda.alloc(16)
    cuda.triad(2, small, small, small)
    assert cuda.lib.cuStreamSynchronize(cuda.stream) == 700
    assert cuda.lib.cuMemFree_v2(small) == 700


def test_a_launch_shape_that_would_give_wrong_results_is_refused(open_cuda: Open) -> None:
    cuda = open_cuda()
    memory = cuda.alloc(1 << 20)
    params = (memory, memory, ctypes.c_uint(512), ctypes.c_float(0))
    assert cuda.launch("gpud_nbody", (1, 1), (256, 1), *params) == 1
    matrices = (memory, memory, memory)
    assert cuda.launch("gpud_matmul", (1, 1), (8, 8), *matrices, ctypes.c_uint(64)) == 1
    assert cuda.launch("gpud_matmul_16", (1, 1), (16, 16), *matrices, ctypes.c_uint(64)) == 1
    assert cuda.launch("gpud_matmul_tensor", (1, 1), (16, 16), *matrices, ctypes.c_uint(128)) == 1


def test_a_context_accounts_for_all_it_used(open_cuda: Open, tmp_path: Path) -> None:
    size, ledger = 1 << 20, tmp_path / "ledger"
    cuda = open_cuda(
        f"ledger {ledger}\nkernel_ns 1000\nbytes_per_second 1e9\nd2h_bytes_per_second 2e9\n"
    )
    big, small = cuda.alloc(size), cuda.alloc(size // 2)
    cuda.call("cuMemFree_v2", small)
    cuda.call("cuMemFreeHost", cuda.pinned(8192))
    cuda.pinned(4096)
    cuda.triad(size // 16, big, big, big)  # 3 size
    cuda.get(big.value, size // 4)
    for _ in range(5):
        assert cuda.launch("gpud_empty", (1, 1), (1, 1)) == 0
    cuda.call("cuDevicePrimaryCtxRelease_v2", 0)
    line = json.loads(ledger.read_text())
    triad_s = 3 * size / 1e9
    assert line.pop("compute_seconds") > 0  # of the processor: the machine's own
    assert line == {
        "gpu": 0,
        "gpu_seconds": pytest.approx(triad_s + size / 2e9 + 5e-6, rel=1e-6),
        "longest_kernel_s": pytest.approx(triad_s, rel=1e-6),
        "vram_peak_bytes": size + size // 2,
        "pinned_peak_bytes": 8192,
        "vram_left_bytes": size,
        "pinned_left_bytes": 4096,
    }
