"""Copies of the stand-in: what they move, what each kind costs, and how two streams meet."""

import ctypes
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from tests.standins.loaded import Cuda

Open = Callable[..., Cuda]

SIZE = 1 << 20


def test_a_copy_on_the_device_moves_the_bytes(open_cuda: Open) -> None:
    cuda = open_cuda()
    source = np.arange(64, dtype=np.float32)
    device, target, other = cuda.put(source), cuda.alloc(source.nbytes), cuda.alloc(source.nbytes)
    whole, half = ctypes.c_size_t(256), ctypes.c_size_t(128)
    cuda.call("cuMemcpyDtoD_v2", target, device, whole)
    cuda.call("cuMemcpyDtoDAsync_v2", other, ctypes.c_uint64(device.value + 128), half, cuda.stream)
    np.testing.assert_array_equal(cuda.get(target.value, 64), source)
    np.testing.assert_array_equal(cuda.get(other.value, 64), [*source[32:], *[0] * 32])


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


def test_a_corrupt_device_copy_is_noticed(open_cuda: Open) -> None:
    cuda = open_cuda("corrupt device_copy\n")
    source = np.arange(1, 17, dtype=np.float32)
    target = cuda.alloc(source.nbytes)
    cuda.call("cuMemcpyDtoD_v2", target, cuda.put(source), ctypes.c_size_t(source.nbytes))
    wrong = list(cuda.get(target.value, 16) != source)
    assert wrong == [True] + [False] * 15


@pytest.mark.parametrize(
    ("script", "expected_ms"),
    [
        ("bytes_per_second 1e11", 2 * SIZE / 1e8),
        ("bytes_per_second 1e11\nd2d_bytes_per_second 4e11", 2 * SIZE / 4e8),
    ],
)
def test_a_copy_on_the_device_reads_and_writes(
    open_cuda: Open, script: str, expected_ms: float
) -> None:
    cuda = open_cuda(script)
    copy = (cuda.alloc(SIZE), cuda.alloc(SIZE), ctypes.c_size_t(SIZE), cuda.stream)
    elapsed = cuda.elapsed_ms(lambda: cuda.call("cuMemcpyDtoDAsync_v2", *copy))
    assert elapsed == pytest.approx(expected_ms, rel=1e-6)


def host_copies(cuda: Cuda, host: object) -> tuple[float, float]:
    """Milliseconds to the device and back."""
    device = cuda.alloc(SIZE)
    size = ctypes.c_size_t(SIZE)
    there = partial(cuda.call, "cuMemcpyHtoDAsync_v2", device, host, size, cuda.stream)
    back = partial(cuda.call, "cuMemcpyDtoHAsync_v2", host, device, size, cuda.stream)
    return cuda.elapsed_ms(there), cuda.elapsed_ms(back)


def test_pageable_memory_has_rates_of_its_own(open_cuda: Open) -> None:
    script = "h2d_bytes_per_second 2e10\nd2h_bytes_per_second 1e10\n"
    slower = "pageable_h2d_bytes_per_second 5e9\npageable_d2h_bytes_per_second 4e9\n"
    pinned = pytest.approx((SIZE / 2e7, SIZE / 1e7), rel=1e-6)
    cuda = open_cuda(script)
    assert host_copies(cuda, ctypes.create_string_buffer(SIZE)) == pinned
    cuda = open_cuda(script + slower)
    assert host_copies(cuda, cuda.pinned(SIZE)) == pinned
    pageable = pytest.approx((SIZE / 5e6, SIZE / 4e6), rel=1e-6)
    assert host_copies(cuda, ctypes.create_string_buffer(SIZE)) == pageable


def test_memory_that_is_only_partly_page_locked_is_pageable(open_cuda: Open) -> None:
    cuda = open_cuda("h2d_bytes_per_second 2e10\npageable_h2d_bytes_per_second 5e9\n")
    block, device = cuda.pinned(2 * SIZE).value or 0, cuda.alloc(SIZE)
    size = ctypes.c_size_t(SIZE)

    def copied_from(address: int) -> float:
        copy = (device, ctypes.c_void_p(address), size, cuda.stream)
        return cuda.elapsed_ms(lambda: cuda.call("cuMemcpyHtoDAsync_v2", *copy))

    assert copied_from(block + SIZE) == pytest.approx(SIZE / 2e7, rel=1e-6)
    cuda.call("cuMemFreeHost", ctypes.c_void_p(block))
    pageable = ctypes.create_string_buffer(SIZE)
    assert copied_from(ctypes.addressof(pageable)) == pytest.approx(SIZE / 5e6, rel=1e-6)


def both_ways(cuda: Cuda, to_device: int, to_host: int) -> float:
    """Milliseconds from the fork of two streams to their join; sizes in bytes."""
    other = cuda.another_stream()
    host, device = cuda.pinned(2 * SIZE), cuda.alloc(2 * SIZE)
    forked = cuda.event(cuda.stream)
    cuda.call("cuStreamWaitEvent", other, forked, 0)
    there = ctypes.c_size_t(to_device)
    cuda.call("cuMemcpyHtoDAsync_v2", device, host, there, cuda.stream)
    back = ctypes.c_void_p((host.value or 0) + SIZE), ctypes.c_uint64(device.value + SIZE)
    cuda.call("cuMemcpyDtoHAsync_v2", *back, ctypes.c_size_t(to_host), other)
    joined = cuda.event(other)
    cuda.call("cuStreamWaitEvent", cuda.stream, joined, 0)
    elapsed = ctypes.c_float()
    both = cuda.event(cuda.stream)
    cuda.call("cuEventElapsedTime", ctypes.byref(elapsed), forked, both)
    return elapsed.value


@pytest.mark.parametrize(
    ("ratio", "to_device", "to_host", "expected_ms"),
    [
        (1.0, SIZE, SIZE, SIZE / 1e6),  # the slower one alone
        (0.5, SIZE, SIZE, SIZE / 1e6 + SIZE / 2e6),  # as one after the other
        (0.5, SIZE // 4, SIZE, SIZE / 2e6 + SIZE / 4e6),
        (0.8, SIZE, SIZE, SIZE / 1e6 + SIZE / 2e6 / 4),
    ],
)
def test_copies_both_ways_at_once_share_what_the_script_says(
    open_cuda: Open, ratio: float, to_device: int, to_host: int, expected_ms: float
) -> None:
    cuda = open_cuda(f"h2d_bytes_per_second 1e9\nd2h_bytes_per_second 2e9\nduplex_ratio {ratio}\n")
    assert both_ways(cuda, to_device, to_host) == pytest.approx(expected_ms, rel=1e-6)


def test_copies_one_after_the_other_share_nothing(open_cuda: Open) -> None:
    cuda = open_cuda("host_copy_bytes_per_second 1e9\nduplex_ratio 0.5\n")
    host = cuda.pinned(SIZE)
    assert host_copies(cuda, host) == pytest.approx((SIZE / 1e6, SIZE / 1e6), rel=1e-6)


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


@pytest.mark.parametrize("key", ["copy_ns", "event_ns"])
def test_copies_and_events_take_the_scripted_time(open_cuda: Open, key: str) -> None:
    cuda = open_cuda(f"{key} 20000000\n")
    host, device, size = ctypes.create_string_buffer(4), cuda.alloc(4), ctypes.c_size_t(4)
    copies = (
        lambda: cuda.call("cuMemcpyHtoD_v2", device, host, size),
        lambda: cuda.call("cuMemcpyDtoH_v2", host, device, size),
        lambda: cuda.call("cuMemcpyDtoD_v2", device, device, size),
        lambda: cuda.call("cuMemcpyHtoDAsync_v2", device, host, size, cuda.stream),
        lambda: cuda.call("cuMemcpyDtoHAsync_v2", host, device, size, cuda.stream),
        lambda: cuda.call("cuMemcpyDtoDAsync_v2", device, device, size, cuda.stream),
    )
    events = (lambda: cuda.event(cuda.stream),)
    for call in copies if key == "copy_ns" else events:
        begun = time.perf_counter()
        call()
        assert time.perf_counter() - begun >= 0.02
