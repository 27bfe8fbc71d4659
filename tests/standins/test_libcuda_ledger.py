"""The stand-in writes down what each context used, so that a probe's budget can be checked."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.standins.build import build_libcuda
from tests.standins.loaded import Cuda, run

Open = Callable[..., Cuda]

SIZE = 1 << 20


def lines(ledger: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ledger.read_text().splitlines()]


def test_a_context_accounts_for_all_it_used(open_cuda: Open, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    cuda = open_cuda(
        f"ledger {ledger}\nkernel_ns 1000\nbytes_per_second 1e9\nd2h_bytes_per_second 2e9\n"
    )
    big, small = cuda.alloc(SIZE), cuda.alloc(SIZE // 2)
    cuda.call("cuMemFree_v2", small)
    cuda.call("cuMemFreeHost", cuda.pinned(8192))
    cuda.pinned(4096)
    cuda.triad(SIZE // 16, big, big, big)  # 3 SIZE
    cuda.get(big.value, SIZE // 4)
    graph = cuda.graph(5, "gpud_empty")
    cuda.call("cuGraphLaunch", graph, cuda.stream)
    assert lines(ledger) == []
    cuda.call("cuDevicePrimaryCtxRelease_v2", 0)
    (line,) = lines(ledger)
    triad_s = 3 * SIZE / 1e9
    assert line == {
        "gpu": 0,
        "gpu_seconds": pytest.approx(triad_s + SIZE / 2e9 + 5e-6, rel=1e-6),
        "longest_kernel_s": pytest.approx(triad_s, rel=1e-6),
        "kernels": 6,
        "launches": 2,
        "vram_peak_bytes": SIZE + SIZE // 2,
        "pinned_peak_bytes": 8192,
        "vram_left_bytes": SIZE,
        "pinned_left_bytes": 4096,
        "contexts": 1,
    }


def test_every_context_has_a_line_and_every_gpu_its_own(open_cuda: Open, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    cuda = open_cuda(f"ledger {ledger}\ndevices 2\n")
    cuda.put(np.ones(256, np.float32))
    cuda.call("cuDevicePrimaryCtxRelease_v2", 0)
    cuda.setup(1).alloc(512)
    cuda.call("cuDevicePrimaryCtxRelease_v2", 1)
    cuda.setup()
    cuda.call("cuDevicePrimaryCtxRelease_v2", 0)
    found = [(line["gpu"], line["contexts"], line["vram_peak_bytes"]) for line in lines(ledger)]
    assert found == [(0, 1, 1024), (1, 1, 512), (0, 2, 0)]
    assert [line["gpu_seconds"] > 0 for line in lines(ledger)] == [True, False, False]


RETAIN = """
context, address = ctypes.c_void_p(), ctypes.c_uint64()
lib.cuInit(0), lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
lib.cuCtxSetCurrent(context), lib.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(100))
"""


@pytest.mark.parametrize(
    ("ends", "left"),
    [
        ("", [100]),
        ("raise SystemExit(1)", [100]),
        ("lib.cuDevicePrimaryCtxRelease_v2(0)", [100]),
        ("lib.cuMemFree_v2(address), lib.cuDevicePrimaryCtxRelease_v2(0)", [0]),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", []),
        ("import os; os.fork() and os.wait()", [100]),
    ],
)
def test_a_process_that_ends_accounts_for_what_it_left(
    tmp_path: Path, ends: str, left: list[int]
) -> None:
    ledger = tmp_path / "ledger"
    library = build_libcuda(tmp_path, f"ledger {ledger}\n")
    result = run(library, RETAIN + ends)
    assert result.returncode in {0, 1, -signal.SIGKILL}, result.stderr
    assert [line["vram_left_bytes"] for line in lines(ledger)] == left


def test_released_page_locked_memory_can_be_taken_again(open_cuda: Open) -> None:
    cuda = open_cuda("pinned_limit 8192\n")
    cuda.pinned(8192)
    cuda.call("cuDevicePrimaryCtxRelease_v2", 0)
    cuda.setup().pinned(8192)
