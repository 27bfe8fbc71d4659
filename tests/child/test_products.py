"""Matrix products: integers that are exact, sizes that fill the GPU, and wrong results."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.child.products import (
    FP32,
    LIMITS,
    POOL,
    RESIDENT,
    TENSOR,
    TILE,
    VALUES,
    Matrix,
    Method,
    sides,
)
from gpud.core.sample import Reason
from tests.child.running import run, scripted
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from pathlib import Path

RATE = {"matmul": "flops_per_second", "tensor": "tensor_flops_per_second"}
KERNEL = {"matmul": "gpud_matmul_128", "tensor": "gpud_matmul_tensor"}


@pytest.mark.parametrize("method", [FP32, TENSOR])
def test_random_bytes_become_the_integers_they_stand_for(method: Method) -> None:
    content = method.encoded(bytes(range(256)))
    assert struct.unpack(f"<256{method.element}", content) == VALUES
    assert set(VALUES) == set(range(-8, 9))


def test_a_matrix_is_put_together_from_its_bands() -> None:
    n, starts = 128, (5, 900)
    pool = np.random.default_rng(3).bytes(900 + 64 * n)
    held = Matrix(pool, n, starts)
    bands = [pool[start : start + 64 * n] for start in starts]
    whole = np.array([VALUES[byte] for band in bands for byte in band]).reshape(n, n)
    for index in (0, 1, 63, 64, 127):
        assert list(held.row(index)) == whole[index].tolist()
        assert list(held.column(index)) == whole[:, index].tolist()


def test_every_sum_of_the_largest_product_is_exact_in_fp32() -> None:
    assert LIMITS[-1] * max(map(abs, VALUES)) ** 2 < 1 << 24
    assert LIMITS[-1] * 64 < POOL, "a band is shorter than the pool it is cut from"


@given(st.integers(1, 400))
def test_no_other_size_near_a_limit_keeps_the_multiprocessors_busier(sm_count: int) -> None:
    def idle(n: int) -> float:
        blocks, wave = (n // TILE) ** 2, RESIDENT * sm_count
        return -blocks % wave / blocks

    chosen = sides(sm_count)
    assert sorted(set(chosen)) == chosen
    for n, limit in zip(chosen, LIMITS, strict=True):
        assert n % TILE == 0
        assert 3 * limit <= 4 * n <= 4 * limit
        assert idle(n) == min(idle(other) for other in range(limit * 3 // 4, limit + 1, TILE))


@pytest.mark.parametrize("rate", [4e11, 2.34e13, 9e14])
@pytest.mark.parametrize("probe", sorted(RATE))
def test_a_known_rate_comes_back_within_a_second_of_short_kernels(
    tmp_path: Path, probe: str, rate: float
) -> None:
    ledger = tmp_path / "ledger"
    ended = scripted(tmp_path, probe, f"{RATE[probe]} {rate:g}\nledger {ledger}")
    assert ended.samples[probe]["median"] == pytest.approx(rate, rel=0.01)
    assert ended.document["conditions"]["n"] % TILE == 0
    used = json.loads(ledger.read_text(encoding="ascii"))
    assert used["longest_kernel_s"] <= 0.02
    assert used["gpu_seconds"] == pytest.approx(ended.document["gpu_seconds"], rel=0.05)
    assert ended.document["gpu_seconds"] < 1
    assert used["vram_peak_bytes"] == ended.document["vram_peak_bytes"] < 256 << 20
    assert (used["vram_left_bytes"], used["pinned_peak_bytes"]) == (0, 0)


@pytest.mark.parametrize("probe", sorted(RATE))
def test_an_element_that_is_wrong_in_its_last_bits_is_told_from_the_right_one(
    tmp_path: Path, probe: str
) -> None:
    detail = scripted(tmp_path, probe, "corrupt copy").failure["detail"]
    got, expected = detail.removeprefix("element (0, 0) of the product is ").split(" and not ")
    assert float(got) != float(expected)


@pytest.mark.parametrize("probe", sorted(RATE))
def test_the_last_element_is_always_looked_at(tmp_path: Path, probe: str) -> None:
    library = build_libcuda(tmp_path, "device.0.sm_count 1")
    n = run(probe, library).document["conditions"]["n"]
    script = f"device.0.sm_count 1\ncorrupt {KERNEL[probe]} {n * n - 1}"
    failure = scripted(tmp_path, probe, script).failure
    assert failure["detail"].startswith(f"element ({n - 1}, {n - 1}) of the product is ")


@pytest.mark.parametrize("probe", sorted(RATE))
def test_matrices_take_half_of_the_free_memory_at_most(tmp_path: Path, probe: str) -> None:
    free = 128 << 20
    document = scripted(tmp_path, probe, f"device.0.free_mem {free}").document
    assert 1024 < document["conditions"]["n"] <= 2048
    assert free / 8 < document["vram_peak_bytes"] <= free / 2


@pytest.mark.parametrize(("major", "minor"), [(5, 0), (7, 5)])
def test_a_gpu_without_the_tensor_instructions_is_a_reason_and_no_failure(
    tmp_path: Path, major: int, minor: int
) -> None:
    script = f"device.0.cc_major {major}\ndevice.0.cc_minor {minor}"
    ended = scripted(tmp_path, "tensor", script)
    assert ended.samples == {}
    detail = f"compute capability {major}.{minor}; tensor probe needs 8.0"
    assert ended.document["missing"] == [
        {"mode": "tensor", "reason": Reason.UNSUPPORTED, "detail": detail}
    ]
    assert ended.document["vram_peak_bytes"] == 0
    assert scripted(tmp_path, "matmul", script).samples


def test_the_tensor_kernel_loads_into_a_driver_of_cuda_11_0_and_no_older(tmp_path: Path) -> None:
    assert scripted(tmp_path, "tensor", "driver_version 11000").samples
    failure = scripted(tmp_path, "tensor", "driver_version 10020").failure
    assert failure["reason"] == Reason.PTX_REJECTED
    assert "Unsupported .version 7.0" in failure["detail"]
