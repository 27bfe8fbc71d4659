"""The stand-in writes down what each context used, so that a probe's budget can be checked."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    for _ in range(5):
        assert cuda.launch("gpud_empty", (1, 1), (1, 1)) == 0
    assert lines(ledger) == []
    cuda.call("cuDevicePrimaryCtxRelease_v2", 0)
    (line,) = lines(ledger)
    triad_s = 3 * SIZE / 1e9
    assert line == {
        "gpu": 0,
        "gpu_seconds": pytest.approx(triad_s + SIZE / 2e9 + 5e-6, rel=1e-6),
        "longest_kernel_s": pytest.approx(triad_s, rel=1e-6),
        "kernels": 6,
        "launches": 6,
        "vram_peak_bytes": SIZE + SIZE // 2,
        "pinned_peak_bytes": 8192,
        "vram_left_bytes": SIZE,
        "pinned_left_bytes": 4096,
        "contexts": 1,
    }


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
