"""Copies of the stand-in: what they move, what each kind costs, and how two streams meet."""

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from tests.standins.loaded import Cuda

Open = Callable[..., Cuda]

SIZE = 1 << 20


def test_a_copy_on_the_device_takes_what_a_kernel_wrote(open_cuda: Open) -> None:
    cuda = open_cuda()
    ones = np.ones(64, np.float32)
    out, target = cuda.alloc(ones.nbytes), cuda.alloc(ones.nbytes)
    cuda.triad(16, out, cuda.put(ones), cuda.put(ones))
    cuda.call("cuMemcpyDtoD_v2", target, out, ctypes.c_size_t(256))
    cuda.call("cuMemsetD32_v2", out, 0, ctypes.c_size_t(64))
    np.testing.assert_array_equal(cuda.get(target.value, 64), np.full(64, 4))


def test_a_copy_on_the_device_that_leaves_its_memory_is_refused(open_cuda: Open) -> None:
    cuda = open_cuda()
    small, large = cuda.alloc(16), cuda.alloc(32)
    for target, source in ((small, large), (large, small)):
        assert cuda.lib.cuMemcpyDtoD_v2(target, source, ctypes.c_size_t(32)) == 1
    bogus = ctypes.c_void_p(0xDEAD)
    size = ctypes.c_size_t(16)
    assert cuda.lib.cuMemcpyDtoDAsync_v2(small, large, size, bogus) == 400


def test_a_stream_that_waits_for_an_event_takes_the_later_time(open_cuda: Open) -> None:
    cuda = open_cuda("h2d_bytes_per_second 1e9\n")
    other, size = cuda.another_stream(), ctypes.c_size_t(SIZE)
    host, device = cuda.pinned(SIZE), cuda.alloc(SIZE)
    behind = cuda.event(other)
    cuda.call("cuMemcpyHtoDAsync_v2", device, host, size, cuda.stream)
    ahead = cuda.event(cuda.stream)
    elapsed = ctypes.c_float()
    cuda.call("cuStreamWaitEvent", other, ahead, 0)
    met = cuda.event(other)
    cuda.call("cuEventElapsedTime", ctypes.byref(elapsed), behind, met)
    assert elapsed.value == pytest.approx(SIZE / 1e6, rel=1e-6)
    cuda.call("cuStreamWaitEvent", cuda.stream, behind, 0)  # long past
    cuda.call("cuEventElapsedTime", ctypes.byref(elapsed), ahead, cuda.event(cuda.stream))
    assert elapsed.value == 0


def test_an_event_that_was_never_recorded_holds_nobody_up(open_cuda: Open) -> None:
    cuda, event = open_cuda(), ctypes.c_void_p()
    cuda.call("cuEventCreate", ctypes.byref(event), 0)
    assert cuda.elapsed_ms(lambda: cuda.call("cuStreamWaitEvent", cuda.stream, event, 0)) == 0
    assert cuda.lib.cuStreamWaitEvent(cuda.stream, cuda.stream, 0) == 400
    assert cuda.lib.cuStreamWaitEvent(ctypes.c_void_p(0xDEAD), event, 0) == 400
    assert cuda.lib.cuStreamWaitEvent(cuda.stream, event, 2) == 1
