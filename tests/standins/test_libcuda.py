"""The stand-in libcuda.so.1 gives true results, exact clocks and the driver's own refusals."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.standins.build import build_libcuda
from tests.standins.loaded import Array, Cuda, run

Open = Callable[..., Cuda]


def bodies(n: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).random((n, 4), dtype=np.float32)


def reference_accelerations(positions: Array, chosen: slice) -> Any:
    """The same sum as the kernel, in numpy doubles: float64[bodies, 3]."""
    all_bodies = positions.astype(np.float64)
    softening = float(np.float32(0.01))
    delta = all_bodies[None, :, :3] - all_bodies[chosen, None, :3]
    factor = all_bodies[:, 3] / ((delta**2).sum(axis=2) + softening) ** 1.5
    return (delta * factor[:, :, None]).sum(axis=1)


def test_a_few_bodies_of_a_large_system_are_read_without_computing_the_rest(
    open_cuda: Open,
) -> None:
    n = 1 << 17  # all of it would be 1.7e10 interactions: minutes
    cuda, positions = open_cuda(), bodies(1 << 17)
    device, out = cuda.put(positions), cuda.alloc(positions.nbytes)
    for _ in range(5):
        cuda.nbody(n, device, out)
    results = cuda.get(out.value + 16 * 70_000, 4 * 8).reshape(8, 4)
    expected = reference_accelerations(positions, slice(70_000, 70_008))
    np.testing.assert_allclose(results[:, :3], expected, 1e-5)


def test_a_result_is_that_of_the_inputs_at_launch_even_if_they_change_or_go(
    open_cuda: Open,
) -> None:
    cuda = open_cuda()
    b, c = np.full(64, 2, np.float32), np.full(64, 5, np.float32)
    out, device_b, device_c = cuda.alloc(b.nbytes), cuda.put(b), cuda.put(c)
    cuda.triad(16, out, device_b, device_c)
    cuda.call("cuMemsetD32_v2", device_b, 0, ctypes.c_size_t(64))
    cuda.call("cuMemFree_v2", device_c)
    np.testing.assert_array_equal(cuda.get(out.value, 64), np.full(64, 17))


def test_a_kernel_may_read_what_another_one_wrote_and_write_over_its_input(
    open_cuda: Open,
) -> None:
    cuda = open_cuda()
    b, c = np.full(64, 2, np.float32), np.full(64, 5, np.float32)
    x, y = cuda.put(b), cuda.put(c)
    cuda.triad(16, x, x, y)  # x = 2 + 3 * 5
    cuda.triad(16, y, y, x)  # y = 5 + 3 * 17
    cuda.triad(8, x, x, y)  # the first half of x = 17 + 3 * 56
    np.testing.assert_array_equal(cuda.get(y.value, 64), np.full(64, 56))
    np.testing.assert_array_equal(cuda.get(x.value, 64), [185] * 32 + [17] * 32)


def test_the_virtual_clock_follows_work_and_rates_exactly(open_cuda: Open) -> None:
    cuda = open_cuda(
        "flops_per_second 2e12\nbytes_per_second 1e11\nkernel_ns 2500\n"
        "tensor_flops_per_second 8e13\n"
        "h2d_bytes_per_second 1e10\nd2h_bytes_per_second 2e10\n"
    )
    size = 1 << 20
    a, b, c = (cuda.alloc(size) for _ in range(3))
    host = ctypes.create_string_buffer(size)
    copy = (ctypes.c_size_t(size), cuda.stream)
    timed = {
        "empty": lambda: cuda.launch("gpud_empty", (1, 1), (1, 1)),
        "nbody": lambda: cuda.nbody(1024, a, b),
        "matmul": lambda: cuda.matmul(256, a, b, c),
        "matmul_16": lambda: cuda.matmul(256, a, b, c, name="gpud_matmul_16"),
        "tensor": lambda: cuda.matmul(256, a, b, c, name="gpud_matmul_tensor"),
        "triad": lambda: cuda.triad(size // 16, a, b, c),
        "h2d": lambda: cuda.call("cuMemcpyHtoDAsync_v2", a, host, *copy),
        "d2h": lambda: cuda.call("cuMemcpyDtoHAsync_v2", host, a, *copy),
    }
    assert {name: cuda.elapsed_ms(work) for name, work in timed.items()} == pytest.approx(
        {
            "empty": 0.0025,
            "nbody": 20 * 1024**2 / 2e9,
            "matmul": 2 * 256**3 / 2e9,
            "matmul_16": 2 * 256**3 / 2e9,
            "tensor": 2 * 256**3 / 8e10,
            "triad": 3 * size / 1e8,
            "h2d": size / 1e7,
            "d2h": size / 2e7,
        },
        rel=1e-6,
    )


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
