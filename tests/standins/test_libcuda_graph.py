"""A graph of the stand-in is built node by node, and does everything at each launch."""

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from tests.standins.loaded import Cuda

Open = Callable[..., Cuda]

INVALID_VALUE, INVALID_HANDLE, NOT_SUPPORTED = 1, 400, 801


def counted(cuda: Cuda, counter: ctypes.c_uint64) -> int:
    return int(cuda.get(counter.value, 1).view(np.uint32)[0])


def test_arguments_are_those_of_the_moment_a_node_is_added(open_cuda: Open) -> None:
    cuda = open_cuda()
    first, second = cuda.alloc(4), cuda.alloc(4)
    argument = ctypes.c_uint64(first.value)
    graph = cuda.graph(1, "gpud_count", argument)
    argument.value = second.value
    cuda.call("cuGraphLaunch", graph, cuda.stream)
    assert (counted(cuda, first), counted(cuda, second)) == (1, 0)


def test_a_graph_that_is_not_one_line_is_refused_aloud(
    open_cuda: Open, capfd: pytest.CaptureFixture[str]
) -> None:
    cuda, graph = open_cuda(), ctypes.c_void_p()
    cuda.call("cuGraphCreate", ctypes.byref(graph), 0)
    first = cuda.node(graph, None, "gpud_empty")
    cuda.node(graph, first, "gpud_empty")
    for after in (None, first):
        with pytest.raises(AssertionError, match=f"cuGraphAddKernelNode_v2: {NOT_SUPPORTED}"):
            cuda.node(graph, after, "gpud_empty")
    assert capfd.readouterr().err.count("a graph that is not one line") == 2


def test_graphs_in_the_wrong_order_are_refused(open_cuda: Open) -> None:
    cuda, bogus, out = open_cuda(), ctypes.c_void_p(0xDEAD), ctypes.c_void_p()
    assert cuda.lib.cuGraphCreate(ctypes.byref(out), 1) == INVALID_VALUE
    with pytest.raises(AssertionError, match=f"cuGraphAddKernelNode: {INVALID_VALUE}"):
        cuda.node(bogus, None, "gpud_empty", version="")
    instantiate = cuda.lib.cuGraphInstantiateWithFlags
    assert instantiate(ctypes.byref(out), bogus, ctypes.c_uint64(0)) == INVALID_VALUE
    graph = cuda.graph(0, "gpud_empty")
    assert cuda.lib.cuGraphLaunch(bogus, cuda.stream) == INVALID_VALUE
    assert cuda.lib.cuGraphLaunch(graph, bogus) == INVALID_HANDLE
    cuda.call("cuGraphExecDestroy", graph)
    assert cuda.lib.cuGraphLaunch(graph, cuda.stream) == INVALID_VALUE
    assert cuda.lib.cuGraphExecDestroy(graph) == INVALID_VALUE
    assert cuda.lib.cuGraphDestroy(graph) == INVALID_VALUE
