"""A stream of the stand-in that captures does nothing; its graph does everything, each time."""

import ctypes
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from tests.standins.loaded import Cuda

Open = Callable[..., Cuda]

UNSUPPORTED, INVALIDATED, ISOLATION, IMPLICIT, CAPTURED_EVENT = 900, 901, 905, 906, 907
ILLEGAL_STATE, INVALID_VALUE, INVALID_HANDLE = 401, 1, 400


def count_once(cuda: Cuda, counter: ctypes.c_uint64) -> int:
    return cuda.launch("gpud_count", (1, 1), (1, 1), counter)


def counted(cuda: Cuda, counter: ctypes.c_uint64) -> int:
    return int(cuda.get(counter.value, 1).view(np.uint32)[0])


def status(cuda: Cuda) -> int:
    found = ctypes.c_int(-1)
    cuda.call("cuStreamIsCapturing", cuda.stream, ctypes.byref(found))
    return found.value


def begin(cuda: Cuda, mode: int = 0) -> None:
    cuda.call("cuStreamBeginCapture_v2", cuda.stream, mode)


def end(cuda: Cuda) -> int:
    graph = ctypes.c_void_p(1)
    code = int(cuda.lib.cuStreamEndCapture(cuda.stream, ctypes.byref(graph)))
    assert bool(graph) == (code == 0)
    return code


def test_a_graph_runs_every_node_at_each_launch_and_none_at_capture(open_cuda: Open) -> None:
    cuda = open_cuda("kernel_ns 2000\n")
    counter = cuda.alloc(4)
    graph = cuda.capture(lambda: [count_once(cuda, counter) for _ in range(7)])
    assert counted(cuda, counter) == 0
    launch = partial(cuda.call, "cuGraphLaunch", graph, cuda.stream)
    assert cuda.elapsed_ms(launch) == pytest.approx(7 * 0.002, rel=1e-5)
    launch()
    assert counted(cuda, counter) == 14


def test_capturing_takes_no_virtual_time(open_cuda: Open) -> None:
    cuda = open_cuda()
    elapsed = cuda.elapsed_ms(
        lambda: cuda.capture(lambda: cuda.launch("gpud_empty", (1, 1), (1, 1)))
    )
    assert elapsed == 0


def test_arguments_are_those_of_the_moment_of_capture(open_cuda: Open) -> None:
    cuda = open_cuda()
    first, second = cuda.alloc(4), cuda.alloc(4)
    argument = ctypes.c_uint64(first.value)

    def work() -> None:
        count_once(cuda, argument)
        argument.value = second.value

    graph = cuda.capture(work)
    cuda.call("cuGraphLaunch", graph, cuda.stream)
    assert (counted(cuda, first), counted(cuda, second)) == (1, 0)


def test_copies_are_recorded_too(open_cuda: Open) -> None:
    cuda = open_cuda("h2d_bytes_per_second 1e9\n")
    host = np.arange(16, dtype=np.float32)
    device = cuda.put(np.zeros(16, np.float32))
    size = ctypes.c_size_t(host.nbytes)
    graph = cuda.capture(
        lambda: cuda.call("cuMemcpyHtoDAsync_v2", device, host.ctypes, size, cuda.stream)
    )
    assert not cuda.get(device.value, 16).any()
    host += 1  # the graph reads the host when it runs
    elapsed = cuda.elapsed_ms(lambda: cuda.call("cuGraphLaunch", graph, cuda.stream))
    assert elapsed == pytest.approx(host.nbytes / 1e6)
    np.testing.assert_array_equal(cuda.get(device.value, 16), host)


@pytest.mark.parametrize("nodes", [0, 20])
def test_a_graph_launch_takes_its_own_time_and_that_of_its_nodes(
    open_cuda: Open, nodes: int
) -> None:
    cuda = open_cuda("graph_launch_ns 4000000\ngraph_node_ns 1000000\nlaunch_ns 1000000000\n")
    begun = time.perf_counter()
    graph = cuda.capture(lambda: [cuda.launch("gpud_empty", (1, 1), (1, 1)) for _ in range(nodes)])
    captured = time.perf_counter()
    cuda.call("cuGraphLaunch", graph, cuda.stream)
    assert captured - begun < 1  # a recorded launch is not a launch
    assert time.perf_counter() - captured >= 0.004 + nodes * 0.001


def test_the_status_says_whether_a_stream_captures(open_cuda: Open) -> None:
    cuda = open_cuda()
    seen = [status(cuda)]
    begin(cuda)
    seen.append(status(cuda))
    assert cuda.lib.cuStreamSynchronize(cuda.stream) == UNSUPPORTED
    seen.append(status(cuda))
    assert end(cuda) == INVALIDATED
    seen.append(status(cuda))
    assert seen == [0, 1, 2, 0]
    assert cuda.lib.cuStreamSynchronize(cuda.stream) == 0


WAITING: dict[str, Callable[[Cuda], int]] = {
    "stream": lambda cuda: cuda.lib.cuStreamSynchronize(cuda.stream),
    "query": lambda cuda: cuda.lib.cuStreamQuery(cuda.stream),
    "context": lambda cuda: cuda.lib.cuCtxSynchronize(),
}
UNSAFE: dict[str, Callable[[Cuda], int]] = {
    "alloc": lambda cuda: cuda.lib.cuMemAlloc_v2(
        ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(4)
    ),
    "free": lambda cuda: cuda.lib.cuMemFree_v2(ctypes.c_uint64(0)),
    "pin": lambda cuda: cuda.lib.cuMemHostAlloc(
        ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(4), 0
    ),
}


@pytest.mark.parametrize("call", [*WAITING, *UNSAFE])
def test_a_call_that_waits_spoils_the_capture(open_cuda: Open, call: str) -> None:
    cuda = open_cuda()
    begin(cuda)
    assert (WAITING | UNSAFE)[call](cuda) == UNSUPPORTED
    assert cuda.launch("gpud_empty", (1, 1), (1, 1)) == INVALIDATED
    assert end(cuda) == INVALIDATED


@pytest.mark.parametrize("call", UNSAFE)
def test_a_relaxed_capture_lets_memory_be_taken(open_cuda: Open, call: str) -> None:
    cuda = open_cuda()
    begin(cuda, 2)
    assert UNSAFE[call](cuda) == 0
    assert end(cuda) == 0


def test_the_default_stream_spoils_only_a_blocking_streams_capture(open_cuda: Open) -> None:
    cuda = open_cuda()
    memory, word = cuda.alloc(4), ctypes.c_size_t(1)
    begin(cuda)
    assert cuda.lib.cuMemsetD32_v2(memory, 0, word) == IMPLICIT
    assert end(cuda) == INVALIDATED
    cuda.stream = cuda.another_stream(1)
    begin(cuda)
    assert cuda.lib.cuMemsetD32_v2(memory, 0, word) == 0
    assert end(cuda) == 0


def test_a_synchronous_copy_is_refused_during_a_capture(open_cuda: Open) -> None:
    cuda = open_cuda()
    memory, host = cuda.alloc(4), ctypes.create_string_buffer(4)
    for flags, code in ((0, IMPLICIT), (1, UNSUPPORTED)):
        cuda.stream = cuda.another_stream(flags)
        begin(cuda)
        assert cuda.lib.cuMemcpyDtoH_v2(host, memory, ctypes.c_size_t(4)) == code
        assert end(cuda) == INVALIDATED


def test_another_stream_works_on_while_one_captures(open_cuda: Open) -> None:
    cuda = open_cuda()
    other = cuda.another_stream()
    begin(cuda)
    assert cuda.lib.cuStreamSynchronize(other) == 0
    elapsed = cuda.elapsed_ms(lambda: None, stream=other)
    assert (elapsed, end(cuda)) == (0, 0)


def test_an_event_inside_a_capture_is_a_place_and_no_moment(open_cuda: Open) -> None:
    cuda = open_cuda()
    outside = cuda.event(cuda.stream)
    begin(cuda)
    inside = cuda.event(cuda.stream)
    assert cuda.lib.cuEventSynchronize(inside) == CAPTURED_EVENT
    elapsed = ctypes.byref(ctypes.c_float())
    assert cuda.lib.cuEventElapsedTime(elapsed, outside, inside) == CAPTURED_EVENT
    assert cuda.lib.cuStreamWaitEvent(cuda.stream, inside, 0) == 0
    assert cuda.lib.cuStreamWaitEvent(cuda.stream, outside, 0) == ISOLATION
    assert end(cuda) == INVALIDATED
    cuda.call("cuEventRecord", inside, cuda.stream)
    assert cuda.lib.cuEventElapsedTime(elapsed, outside, inside) == 0


def test_captures_and_graphs_in_the_wrong_order_are_refused(open_cuda: Open) -> None:
    cuda, bogus, out = open_cuda(), ctypes.c_void_p(0xDEAD), ctypes.c_void_p()
    assert end(cuda) == ILLEGAL_STATE
    assert cuda.lib.cuStreamBeginCapture_v2(None, 0) == UNSUPPORTED
    assert cuda.lib.cuStreamBeginCapture_v2(bogus, 0) == INVALID_HANDLE
    assert cuda.lib.cuStreamBeginCapture_v2(cuda.stream, 3) == INVALID_VALUE
    begin(cuda)
    assert cuda.lib.cuStreamBeginCapture_v2(cuda.stream, 0) == ILLEGAL_STATE
    assert end(cuda) == 0
    instantiate = cuda.lib.cuGraphInstantiateWithFlags
    assert instantiate(ctypes.byref(out), bogus, ctypes.c_uint64(0)) == INVALID_VALUE
    graph = cuda.capture(lambda: None)
    assert cuda.lib.cuGraphLaunch(bogus, cuda.stream) == INVALID_VALUE
    assert cuda.lib.cuGraphLaunch(graph, bogus) == INVALID_HANDLE
    cuda.call("cuGraphExecDestroy", graph)
    assert cuda.lib.cuGraphLaunch(graph, cuda.stream) == INVALID_VALUE
    assert cuda.lib.cuGraphExecDestroy(graph) == INVALID_VALUE
    assert cuda.lib.cuGraphDestroy(graph) == INVALID_VALUE


def test_a_stream_may_go_away_while_it_captures(open_cuda: Open) -> None:
    cuda = open_cuda()
    begin(cuda)
    cuda.call("cuStreamDestroy_v2", cuda.stream)
    assert cuda.lib.cuCtxSynchronize() == 0


def test_a_node_that_leaves_its_memory_spoils_the_context(open_cuda: Open) -> None:
    cuda = open_cuda()
    graph = cuda.capture(lambda: count_once(cuda, ctypes.c_uint64(0xDEAD)))
    assert cuda.lib.cuGraphLaunch(graph, cuda.stream) == 0
    assert cuda.lib.cuStreamSynchronize(cuda.stream) == 700
