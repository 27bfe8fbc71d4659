"""The shipped PTX is what its sources give, loads into any driver, and computes what it says."""

import ctypes
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy import ptx
from tests.standins.build import build_kernels_on_host

ENTRIES = {
    "empty": {"gpud_empty": 0, "gpud_count": 1},
    "matmul": {"gpud_matmul": 4, "gpud_matmul_16": 4},
    "matmul_128": {"gpud_matmul_128": 4},
    "nbody": {"gpud_nbody": 4},
    "triad": {"gpud_triad": 5},
}
NAMES = sorted(ENTRIES)


def shipped(name: str) -> Path:
    return ptx.KERNELS / f"{name}.ptx"


def test_every_source_has_its_ptx_and_every_ptx_its_source() -> None:
    assert [source.stem for source in ptx.sources()] == NAMES
    assert sorted(file.stem for file in ptx.KERNELS.glob("*.ptx")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_header_is_one_that_every_driver_for_wsl2_accepts(name: str) -> None:
    lines = shipped(name).read_bytes().decode("ascii").splitlines()
    directives = [line for line in lines if line.startswith(".")][:3]
    assert directives == [".version 6.0", ".target sm_50", ".address_size 64"]
    assert lines[0].startswith(f"// Made from {name}.cu by deploy/build-ptx")
    assert "/" not in lines[0].removeprefix("// ").replace("deploy/build-ptx", "")


@pytest.mark.parametrize("name", NAMES)
def test_the_entries_and_their_parameters_are_those_the_probes_launch(name: str) -> None:
    text = shipped(name).read_text(encoding="ascii")
    found = re.findall(r"\.visible \.entry (\w+)\(([^)]*)\)", text)
    assert {entry: parameters.count(".param") for entry, parameters in found} == ENTRIES[name]


def test_nbody_uses_the_fast_reciprocal_root_only() -> None:
    roots = set(re.findall(r"\b[\w.]*sqrt[\w.]*", shipped("nbody").read_text(encoding="ascii")))
    assert roots == {"rsqrt.approx.ftz.f32"}


@pytest.fixture(scope="module")
def tools() -> Path:
    """NVIDIA's compiler and assemblers, downloaded once per virtual environment."""
    return ptx.install(ptx.HERE.parent / ".venv" / "ptx-tools")


@pytest.mark.timeout(600)  # the first run downloads 185 MB
@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_ptx_is_what_its_source_gives(tools: Path, name: str) -> None:
    made = ptx.Compiler(tools).compile(ptx.KERNELS / f"{name}.cu")
    assert shipped(name).read_text(encoding="ascii") == made, "run deploy/build-ptx"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_three_generations_of_assemblers_accept_it(tools: Path, name: str) -> None:
    assert len(list(ptx.assemble(tools, shipped(name)))) == len(ptx.ASSEMBLERS) == 3


@pytest.mark.timeout(600)
def test_an_assembler_refuses_what_is_newer_than_itself(tools: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer.ptx"
    newer.write_text(shipped("empty").read_text().replace(".version 6.0", ".version 8.8"))
    with pytest.raises(ptx.PtxError, match=r"Unsupported \.version 8\.8"):
        list(ptx.assemble(tools, newer))


@pytest.mark.timeout(600)
def test_a_source_that_does_not_compile_is_refused_with_the_log(
    tools: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.cu"
    wrong.write_text('extern "C" __global__ void f() { undefined_name(); }')
    with pytest.raises(ptx.PtxError, match="undefined_name"):
        ptx.Compiler(tools).compile(wrong)


def test_an_unexpected_header_is_not_rewritten() -> None:
    with pytest.raises(ptx.PtxError, match="unexpected PTX header"):
        ptx.lowered("x.cu", ".version 8.8\n.target sm_90\n")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The same sources compiled for the CPU, called as ``host_NAME``."""
    return ctypes.CDLL(str(build_kernels_on_host(tmp_path_factory.mktemp("kernels"))))


def random(*shape: int) -> Any:
    return np.random.default_rng(shape).integers(-8, 9, shape).astype(np.float32)


@pytest.mark.parametrize(
    ("kernel", "n"),
    [
        ("matmul_16", 16),
        ("matmul_16", 80),
        ("matmul", 64),
        ("matmul", 128),
        ("matmul", 192),
        ("matmul_128", 128),
        ("matmul_128", 256),
        ("matmul_128", 384),
    ],
)
def test_the_matmul_sources_multiply_matrices(host: ctypes.CDLL, kernel: str, n: int) -> None:
    a, b, c = random(n, n), random(n, n).T.copy(), np.full((n, n), np.nan, np.float32)
    host[f"host_{kernel}"](a.ctypes, b.ctypes, c.ctypes, n)
    np.testing.assert_array_equal(c, a @ b)


def test_the_nbody_source_sums_every_pair(host: ctypes.CDLL) -> None:
    bodies, found = np.abs(random(512, 4)), np.ones((512, 4), np.float32)
    host.host_nbody(bodies.ctypes, found.ctypes, 512, ctypes.c_float(0.5))
    wide = bodies.astype(np.float64)
    delta = wide[None, :, :3] - wide[:, None, :3]
    factor = wide[:, 3] / ((delta**2).sum(axis=2) + 0.5) ** 1.5
    wanted = (delta * factor[:, :, None]).sum(axis=1)
    np.testing.assert_allclose(found[:, :3], wanted, rtol=1e-4, atol=1e-3)
    assert not found[:, 3].any()


@pytest.mark.parametrize("n4", [1, 64, 1000])
def test_the_triad_source_covers_every_element_and_no_more(host: ctypes.CDLL, n4: int) -> None:
    a, b, c = np.full(4 * n4 + 4, 99, np.float32), random(4 * n4), random(n4 * 4)
    host.host_triad(a.ctypes, b.ctypes, c.ctypes, ctypes.c_float(3), n4, 3, 32)
    np.testing.assert_array_equal(a[:-4], b + 3 * c)
    assert (a[-4:] == 99).all()


def test_the_counter_source_counts_once_per_launch(host: ctypes.CDLL) -> None:
    counter = ctypes.c_uint(5)
    host.host_count(ctypes.byref(counter), 3, 32)
    assert counter.value == 6
