"""One GPU through the driver: the stand-in's, and a real one where there is one."""

from __future__ import annotations

import ctypes
import math
import os
import random
import struct
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from deploy.gpu_check.contexts import Contexts
from gpud.child import cuda
from gpud.child.cuda_gpu import LoadedCuda
from gpud.child.device import BLOCK
from gpud.child.progress import Progress
from gpud.core.errors import ProbeError
from gpud.core.sample import Job, Reason
from tests.child.running import GPU, opened
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gpud.child.cuda_gpu import Gpu

RETURNED_BY = {
    "cuDevicePrimaryCtxRetain": "cuDevicePrimaryCtxRelease_v2",
    "cuStreamCreate": "cuStreamDestroy_v2",
    "cuEventCreate": "cuEventDestroy_v2",
    "cuModuleLoadDataEx": "cuModuleUnload",
    "cuMemAlloc_v2": "cuMemFree_v2",
    "cuMemHostAlloc": "cuMemFreeHost",
    "cuGraphCreate": "cuGraphDestroy",
    "cuGraphInstantiateWithFlags": "cuGraphExecDestroy",
}
ENVIRONMENT = ("CUDA_MODULE_LOADING", "CUDA_DEVICE_ORDER")


@contextmanager
def stand_in(folder: Path, script: str = "", without: Sequence[str] = ()) -> Iterator[Gpu]:
    library = build_libcuda(folder, script, without)
    job = Job(gpu=GPU, cuda_library=str(library))
    try:
        with opened(job, spin=True) as made:
            yield made
    finally:
        _unload(library)


def _unload(library: Path) -> None:
    """Drop the loaded file: one that stayed would answer a later bare ``libcuda.so.1``."""
    loader = ctypes.CDLL(None)
    loader.dlopen.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(
        loader.dlopen(os.fsencode(library), os.RTLD_NOW | os.RTLD_NOLOAD),
    )
    assert handle, library
    for _ in range(2):  # this reference, and that of the code under test
        loader.dlclose(handle)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening CUDA sets variables for the driver; a test leaves the process as it was."""
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, "")


@pytest.fixture(params=["stand-in", pytest.param("real", marks=pytest.mark.gpu)])
def gpu(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gpu]:
    if request.param == "stand-in":
        with stand_in(tmp_path) as made:
            yield made
        return
    try:
        result = cuda.inventory(LoadedCuda().driver(Job(), Progress()))
    except ProbeError as error:
        pytest.fail(f"this needs an NVIDIA GPU: {error}", pytrace=False)
    assert result.devices, result.failure
    contexts = Contexts(print)
    contexts.add()
    contexts.close()
    with opened(Job(gpu=result.devices[0].uuid), spin=True) as made:
        yield made


def test_bytes_come_back_from_where_they_were_put(gpu: Gpu) -> None:
    content = random.Random(1).randbytes(4096)
    buffer = gpu.alloc(len(content))
    gpu.upload(buffer, content)
    gpu.upload(buffer, b"between", offset=1001)
    expected = content[:1001] + b"between" + content[1008:]
    assert gpu.download(buffer) == expected
    assert gpu.download(buffer, 7, offset=1001) == b"between"
    assert gpu.download(buffer, offset=4000) == expected[4000:]


@pytest.mark.parametrize(("size", "offset"), [(17, 0), (1, 16), (4, 13), (1, -1)])
def test_nothing_is_read_or_written_outside_a_buffer(gpu: Gpu, size: int, offset: int) -> None:
    buffer = gpu.alloc(16)
    with pytest.raises(ValueError, match="not inside a buffer of 16"):
        gpu.download(buffer, size, offset)
    with pytest.raises(ValueError, match="not inside a buffer of 16"):
        gpu.upload(buffer, bytes(size), offset)


def test_fill_sets_every_word_of_one_buffer_and_of_no_other(gpu: Gpu) -> None:
    left, right = gpu.alloc(400), gpu.alloc(400)
    gpu.fill(left, 0)
    gpu.fill(right, 0xDEADBEEF)
    assert gpu.download(left) == bytes(400)
    assert gpu.download(right) == struct.pack("<I", 0xDEADBEEF) * 100


def test_a_graph_does_all_of_its_calls_at_each_launch_and_none_at_capture(gpu: Gpu) -> None:
    counter = gpu.alloc(4)
    gpu.fill(counter, 1000)
    call = gpu.launch(gpu.kernel("gpud_count"), (1, 1), (1, 1), counter)
    graph = gpu.graph(call, 20)
    assert int.from_bytes(gpu.download(counter), "little") == 1000
    gpu.perform(graph, 3)
    assert graph.null() == 0
    assert int.from_bytes(gpu.download(counter), "little") == 1060


def test_the_time_between_two_records_is_that_of_what_lies_between(gpu: Gpu) -> None:
    n4 = 1 << 16
    a, b, c = (gpu.alloc(16 * n4) for _ in range(3))
    for buffer in (b, c):
        gpu.fill(buffer, 0)
    work = gpu.launch(gpu.kernel("gpud_triad"), (16, 1), (BLOCK, 1), a, b, c, 2.0, n4)
    first, last = gpu.first, gpu.last

    def region(repeats: int) -> float:
        for call in (first, *[work] * repeats, last):
            gpu.check(call.real(), call)
        return gpu.between()

    region(1)
    assert first.null() == 0
    assert 0 <= min(region(0) for _ in range(3)) < min(region(20) for _ in range(3))


def test_copies_on_two_lanes_both_arrive(gpu: Gpu) -> None:
    chance, size = random.Random(7), 1 << 16
    there, back = chance.randbytes(size), chance.randbytes(size)
    (host_in, host_out), (left, right) = (
        [gpu.host(size) for _ in range(2)],
        [gpu.alloc(size) for _ in range(2)],
    )
    host_in.view[:] = there
    gpu.upload(right, back)
    taken_s = gpu.together(gpu.copy_in(left, host_in), gpu.copy_out(host_out, right, lane=1))
    assert taken_s > 0
    assert gpu.download(left) == there
    assert bytes(host_out.view) == back


@pytest.mark.parametrize("pinned", [True, False])
def test_a_part_of_host_memory_can_be_copied(gpu: Gpu, *, pinned: bool) -> None:
    host, buffer = gpu.host(64, pinned=pinned), gpu.alloc(64)
    assert not (host.pinned and not pinned)
    gpu.fill(buffer, 0)
    host.view[:] = b"x" * 64
    gpu.perform(gpu.copy_in(buffer, host, size=4))
    assert gpu.download(buffer) == b"xxxx" + bytes(60)
    gpu.fill(buffer, 0)
    gpu.perform(gpu.copy_out(host, buffer, size=8))
    assert bytes(host.view) == bytes(8) + b"x" * 56
    with pytest.raises(ValueError, match="128 bytes"):
        gpu.copy_in(gpu.alloc(256), host, size=128)


@pytest.mark.parametrize("elapsed_ms", [-0.001, math.nan, math.inf, 1e9])
def test_a_time_between_events_that_cannot_be_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elapsed_ms: float
) -> None:
    def text(target: Any, *_: object) -> int:
        target._obj.value = elapsed_ms
        return 0

    with stand_in(tmp_path) as gpu:
        monkeypatch.setitem(gpu._driver.function, "cuEventElapsedTime", text)
        with pytest.raises(ProbeError, match="passed between two events") as caught:
            gpu.timed(gpu.launch(gpu.kernel("gpud_empty"), (1, 1), (1, 1)))
        assert caught.value.failure.reason is Reason.CUDA_ERROR
        assert gpu.busy_s == 0


def test_more_memory_than_there_is_is_a_probe_error(gpu: Gpu) -> None:
    with pytest.raises(ProbeError) as caught:
        gpu.alloc(gpu.memory()[1] + 1)
    assert caught.value.failure.reason is Reason.OUT_OF_MEMORY


def test_an_unknown_kernel_is_a_probe_error_that_names_it(gpu: Gpu) -> None:
    with pytest.raises(ProbeError, match="gpud_unheard_of"):
        gpu.kernel("gpud_unheard_of")


def use_everything(gpu: Gpu) -> None:
    host, buffer = gpu.host(4096), gpu.alloc(4096)
    gpu.perform(gpu.copy_in(buffer, host))
    for name in ("gpud_empty", "gpud_count", "gpud_triad"):
        gpu.kernel(name)
    gpu.together(gpu.copy_in(buffer, host), gpu.copy_out(gpu.host(4096), gpu.alloc(4096), lane=1))
    gpu.graph(gpu.launch(gpu.kernel("gpud_empty"), (1, 1), (1, 1)), 3)


@pytest.mark.parametrize("without", [[], ["cuGraphAddKernelNode_v2"]])
def test_a_graph_is_built_of_nodes_by_drivers_before_and_since_cuda_12(
    tmp_path: Path, without: list[str]
) -> None:
    log = tmp_path / "calls"
    with stand_in(tmp_path, f"log {log}", without) as gpu:
        counter = gpu.alloc(4)
        gpu.fill(counter, 0)
        call = gpu.graph(gpu.launch(gpu.kernel("gpud_count"), (1, 1), (1, 1), counter), 10)
        gpu.perform(call, 2)
        assert int.from_bytes(gpu.download(counter), "little") == 20
    calls = Counter(log.read_text().split())
    assert calls["cuGraphAddKernelNode" if without else "cuGraphAddKernelNode_v2"] == 10
    assert not [name for name in calls if "Capture" in name]


@pytest.mark.parametrize("trouble", ["", "fail cuLaunchKernel 700", "fail cuStreamCreate 2"])
def test_what_was_taken_is_given_back_whatever_happened(tmp_path: Path, trouble: str) -> None:
    log = tmp_path / "calls"
    script = f"log {log}\n{trouble}\n"
    try:
        with stand_in(tmp_path, script) as gpu:
            use_everything(gpu)
            gpu.free(gpu.alloc(64))
            gpu.perform(gpu.launch(gpu.kernel("gpud_empty"), (1, 1), (1, 1)))
            assert not trouble
    except ProbeError:
        assert trouble
    calls = Counter(log.read_text().split())
    assert calls["cuDevicePrimaryCtxRetain"] == 1
    if "StreamCreate" in trouble:
        calls["cuStreamCreate"] = 0  # refused: there is nothing to give back
    for taken, returned in RETURNED_BY.items():
        assert calls[taken] == calls[returned], taken


def test_a_lost_gpu_does_not_keep_the_rest_from_being_given_back(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    refused = "".join(f"fail {name} 719\n" for name in ("cuCtxSynchronize", *RETURNED_BY.values()))
    with stand_in(tmp_path, f"log {log}\n{refused}") as gpu:
        use_everything(gpu)
    assert set(RETURNED_BY.values()) <= set(log.read_text().split())
