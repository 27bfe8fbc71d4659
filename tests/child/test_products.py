"""Matrix products: integers that are exact, sizes that fill the GPU, and wrong results."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.child.probes.precision import METHODS
from gpud.child.products import (
    LIMITS,
    PLAIN,
    POOL,
    TENSOR,
    VALUES,
    Method,
    sides,
)
from gpud.child.throughput import BATCH_S
from gpud.core.sample import Reason
from tests.child import running
from tests.child.running import c_product_s, run
from tests.standins.build import build_libcuda, rewrite_script

if TYPE_CHECKING:
    from pathlib import Path

scripted = partial(running.scripted, budget_s=60)

RATE = {"matmul": "flops_per_second", "tensor": "tensor_flops_per_second"}
KERNEL = {"matmul": "gpud_matmul_128", "tensor": "gpud_matmul_tensor"}
MODES = {
    "fp64": "fp64_flops_per_second",
    "tf32": "tf32_flops_per_second",
    "bf16": "bf16_flops_per_second",
    "int8": "int8_operations_per_second",
}
WITHIN = 0.005
"""Of a C program in virtual time."""
TENSOR_MODES = ("tf32", "bf16", "int8")
METHOD = {"matmul": PLAIN, "tensor": TENSOR, **METHODS}


def test_every_sum_of_the_largest_product_is_exact_in_fp32() -> None:
    assert LIMITS[-1] * max(map(abs, VALUES)) ** 2 < 1 << 24
    assert LIMITS[-1] * 64 < POOL, "a band is shorter than the pool it is cut from"


@given(st.integers(1, 400), st.sampled_from(sorted(METHOD)))
def test_no_other_size_near_a_limit_keeps_the_multiprocessors_busier(
    sm_count: int, mode: str
) -> None:
    method: Method = METHOD[mode]

    def idle(n: int) -> float:
        blocks, wave = (n // method.tile) ** 2, method.resident * sm_count
        return -blocks % wave / blocks

    chosen = sides(sm_count, method)
    assert sorted(set(chosen)) == chosen
    for n, limit in zip(chosen, method.limits, strict=True):
        first, tile = limit // method.tile * 3 // 4 * method.tile, method.tile
        assert n % tile == 0
        assert first <= n <= limit
        assert idle(n) == min(idle(other) for other in range(first, limit + 1, tile))


OTHERS = {"fp64": 4.5e11, "tf32": 2.6e13, "bf16": 5.5e13, "int8": 1.1e14}


@pytest.mark.parametrize(
    ("probe", "rates"),
    [
        *((probe, {probe: rate}) for probe in sorted(RATE) for rate in (4e11, 2.34e13, 9e14)),
        *(("precision", {m: x * rate for m, rate in OTHERS.items()}) for x in (0.1, 1.0)),
    ],
)
def test_known_rates_come_back_within_a_second_of_short_kernels(
    tmp_path: Path, probe: str, rates: dict[str, float]
) -> None:
    ledger = tmp_path / "ledger"
    script = "".join(f"{(RATE | MODES)[mode]} {rate:g}\n" for mode, rate in rates.items())
    ended = scripted(tmp_path, probe, f"{script}ledger {ledger}")
    for mode, rate in rates.items():
        assert ended.samples[mode]["median"] == pytest.approx(rate, rel=0.01)
        assert size_of(ended.document, mode) % METHOD[mode].tile == 0
    used = json.loads(ledger.read_text(encoding="ascii"))
    assert used["longest_kernel_s"] <= 0.02
    assert used["gpu_seconds"] == pytest.approx(ended.document["gpu_seconds"], rel=0.05)
    assert ended.document["gpu_seconds"] < 1
    most = (512 if probe == "precision" else 256) << 20
    assert used["vram_peak_bytes"] == ended.document["vram_peak_bytes"] < most
    assert (used["vram_left_bytes"], used["pinned_peak_bytes"]) == (0, 0)


@pytest.mark.parametrize("probe", sorted(RATE))
def test_an_element_that_is_wrong_in_its_last_bits_is_told_from_the_right_one(
    tmp_path: Path, probe: str
) -> None:
    detail = scripted(tmp_path, probe, "corrupt copy").failure["detail"]
    got, expected = detail.removeprefix("element (0, 0) of the product is ").split(" and not ")
    assert float(got) != float(expected)


@pytest.mark.parametrize(
    "script", ["launch_ns 40000\nevent_ns 3000", "warmup_kernels 40\nwarmup_factor 3"]
)
def test_products_take_what_they_take_a_c_program(tmp_path: Path, script: str) -> None:
    """The same kernels in batches as long, timed by events; a difference of 3 % would show."""
    rates = "".join(f"{name} {2e13 * (1 + place)}\n" for place, name in enumerate(MODES.values()))
    library = build_libcuda(tmp_path, rates + script)
    ended = run("precision", library, budget_s=60)
    for mode in MODES:
        n = ended.document["conditions"][f"n.{mode}"]
        product_s = 2 * n**3 / ended.samples[mode]["median"]
        c_s = c_product_s(library, mode, int(BATCH_S / product_s), n)
        assert product_s == pytest.approx(c_s, rel=WITHIN)
        assert 1.03 * product_s != pytest.approx(c_s, rel=WITHIN)


SMALL_GPU = "device.0.sm_count 1\ndevice.0.free_mem 20000000\n" + "".join(
    f"{rate} 3e10\n" for rate in (*RATE.values(), *MODES.values())
)
"""So slow and with so little memory that a product has 16 blocks."""


def size_of(document: dict[str, Any], mode: str) -> int:
    conditions: dict[str, int] = document["conditions"]
    return conditions.get("n") or conditions[f"n.{mode}"]


@pytest.mark.parametrize("mode", sorted(METHOD))
def test_a_block_or_a_single_element_that_is_wrong_is_always_found_and_named(
    tmp_path: Path, mode: str
) -> None:
    probe, tile = mode if mode in RATE else "precision", METHOD[mode].tile
    library = build_libcuda(tmp_path, SMALL_GPU)
    n = size_of(run(probe, library, budget_s=60).document, mode)
    across = n // tile
    assert across == 4
    wrong = {
        f"block {block}": (block // across * tile, block % across * tile, tile)
        for block in (0, 7, 9, 14)  # of each row and each column one
    }
    wrong |= {str(at): (*divmod(at, n), 1) for at in (1, n + 5, n * n // 2 + 7, n * n - 1)}
    for seed, (place, (row, column, side)) in enumerate(wrong.items(), 100):
        rewrite_script(library, f"{SMALL_GPU}corrupt {METHOD[mode].kernel} {place}")
        failure = run(probe, library, budget_s=60, seed=seed).failure
        assert failure["reason"] == Reason.VERIFICATION_FAILED
        assert failure["detail"] == (
            f"rows {row} to {row + side - 1}, columns {column} to {column + side - 1} "
            "of the product are wrong"
        )


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


def test_fp64_is_measured_where_the_types_of_tensor_cores_are_absent(tmp_path: Path) -> None:
    script = "device.0.cc_major 7\ndevice.0.cc_minor 5"
    ended = scripted(tmp_path, "precision", script)
    assert list(ended.samples) == ["fp64"]
    assert ended.document["missing"] == [
        {
            "mode": mode,
            "reason": Reason.UNSUPPORTED,
            "detail": f"compute capability 7.5; {mode} needs 8.0",
        }
        for mode in TENSOR_MODES
    ]


@pytest.mark.parametrize("probe", ["tensor", "precision"])
@pytest.mark.parametrize(("capability", "lower"), [("8.9", False), ("9.0", True), ("12.0", False)])
def test_a_gpu_whose_peak_needs_other_instructions_is_said_to_be_one(
    tmp_path: Path,
    probe: str,
    capability: str,
    lower: bool,  # noqa: FBT001
) -> None:
    major, minor = capability.split(".")
    script = f"{SMALL_GPU}device.0.cc_major {major}\ndevice.0.cc_minor {minor}"
    conditions = scripted(tmp_path, probe, script).document["conditions"]
    assert ("wgmma" in conditions.get("note", "")) is lower


def test_the_tensor_kernel_loads_into_a_driver_of_cuda_11_0_and_no_older(tmp_path: Path) -> None:
    assert scripted(tmp_path, "tensor", "driver_version 11000").samples
    failure = scripted(tmp_path, "tensor", "driver_version 10020").failure
    assert failure["reason"] == Reason.PTX_REJECTED
    assert "Unsupported .version 7.0" in failure["detail"]
