"""The reference's kernels: right on the CPU, and without spills for every generation of GPUs."""

from __future__ import annotations

import ctypes
import re
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from deploy import ptx
from deploy.gpu_check.toolchain import KERNELS, resources
from tests.gpu_check.building import host_kernels, shapes

if TYPE_CHECKING:
    from pathlib import Path

SHAPES = shapes()
SM_COUNT = 2
ARCHITECTURES = (75, 90, 120)
PTXAS = "nvidia_cuda_nvcc-13.0.88"


def of(item: str) -> list[str]:
    return [name for name, shape in SHAPES.items() if shape["item"] == item]


@pytest.fixture(scope="module")
def host() -> ctypes.CDLL:
    return host_kernels()


def run(host: ctypes.CDLL, name: str, n: int, *values: Any) -> None:
    """Launch a kernel with the shape of the table, as ``prepare`` in variants.c does."""
    shape = SHAPES[name]
    x, y, per_sm = int(shape["x"]), int(shape["y"]), int(shape["per_sm"])
    grid = (per_sm * SM_COUNT, 1) if per_sm else (n // x, n // y) if y else ((n + x - 1) // x, 1)
    parameters = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    block = (int(shape["block_x"]), int(shape["block_y"]))
    assert host.host_run(b"ref_" + name.encode(), *grid, *block, parameters)


def pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def integers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


def test_every_kernel_of_the_table_is_in_the_source_and_the_other_way_round() -> None:
    text = KERNELS.read_text()
    written = set(re.findall(r"^(?:NBODY|TENSOR)\(ref_(\w+),", text, re.MULTILINE))
    written |= set(re.findall(r"\bref_(\w+)\((?:const )?float", text))
    assert written == set(SHAPES)


@pytest.mark.parametrize(("n", "step"), [(1, 1), (64, 7), (1024, 1001)])
def test_a_walk_along_the_ring_comes_by_every_line_once(
    host: ctypes.CDLL, n: int, step: int
) -> None:
    ring = np.zeros(16 * n, np.uint64)
    place, lines = ctypes.c_uint64(ring.ctypes.data), []

    def launch(name: bytes, grid: int, block: int, *values: Any) -> None:
        arguments = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        assert host.host_run(name, grid, 1, block, 1, arguments)

    of_ring = map(ctypes.c_uint, (n, 0x19660D, step))
    launch(b"ref_ring", 3, 32, ctypes.c_void_p(ring.ctypes.data), *of_ring)
    for _ in range(n):
        lines.append((place.value - ring.ctypes.data) // 128)
        place_at = ctypes.c_void_p(ctypes.addressof(place))
        launch(b"ref_chase", 1, 1, place_at, ctypes.c_uint(1))
    assert sorted(lines) == list(range(n))
    assert place.value == ring.ctypes.data


@pytest.mark.parametrize("name", of("triad"))
@pytest.mark.parametrize("n4", [1, 5000])
def test_a_triad_covers_every_element_and_no_more(host: ctypes.CDLL, name: str, n4: int) -> None:
    a = np.full(4 * n4 + 4, np.nan, np.float32)
    b, c = integers(1, 4 * n4), integers(2, 4 * n4)
    arrays = map(pointer, (a, b, c))
    run(host, name, n4, *arrays, ctypes.c_float(3), ctypes.c_uint(n4))
    np.testing.assert_array_equal(a[:-4], b + 3 * c)
    assert np.isnan(a[-4:]).all()


@pytest.mark.parametrize("name", of("nbody"))
def test_n_body_sums_every_pair(host: ctypes.CDLL, name: str) -> None:
    n = 768
    bodies = np.random.default_rng(4).random((n, 4)).astype(np.float32)
    result = np.full((n, 4), np.nan, np.float32)
    numbers = (ctypes.c_uint(n), ctypes.c_float(0.5))
    run(host, name, n, pointer(bodies), pointer(result), *numbers)
    wide = bodies.astype(np.float64)
    delta = wide[None, :, :3] - wide[:, None, :3]
    factor = wide[:, 3] / ((delta**2).sum(axis=2) + 0.5) ** 1.5
    expected = (delta * factor[:, :, None]).sum(axis=1)
    np.testing.assert_allclose(result[:, :3], expected, rtol=1e-4, atol=1e-3)
    assert not result[:, 3].any()


@pytest.mark.parametrize("name", [*of("matmul"), *of("tensor")])
def test_a_product_of_matrices_is_exact(host: ctypes.CDLL, name: str) -> None:
    n, kind = 256, np.float16 if name in of("tensor") else np.float32
    a, b = (integers(seed, n, n).astype(kind) for seed in (5, 6))
    c = np.full((n, n), np.nan, np.float32)
    run(host, name, n, *map(pointer, (a, b, c)), ctypes.c_uint(n))
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


@pytest.fixture(scope="module")
def tools() -> Path:
    return ptx.install(ptx.HERE.parent / ".venv" / "ptx-tools")


@pytest.mark.timeout(600)  # the first run downloads NVIDIA's compilers
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_source_compiles_without_spills(tools: Path, architecture: int, tmp_path: Path) -> None:
    text = ptx.Compiler(tools).translate(KERNELS, architecture)
    (tmp_path / "kernels.ptx").write_text(text, encoding="ascii")
    ptxas = tools / PTXAS / "ptxas"
    command = [str(ptxas), "-v", f"--gpu-name=sm_{architecture}", "-o", "/dev/null", "kernels.ptx"]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    result = resources(output.stderr)
    tensor = set() if architecture < 80 else set(of("tensor"))
    kernels = {*SHAPES, "empty", "count", "ring", "chase"} - set(of("tensor")) | tensor
    assert set(result) == {f"ref_{name}" for name in kernels}
    assert {name: each["spilled_bytes"] for name, each in result.items()} == dict.fromkeys(
        result, 0
    )
    assert all(0 < each["registers"] <= 255 for each in result.values())
