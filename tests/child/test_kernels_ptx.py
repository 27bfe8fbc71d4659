"""The shipped PTX is what its sources give, loads into any driver, and computes what it says."""

import ctypes
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy import ptx
from gpud.child import kernels
from gpud.child.probes import memory_latency
from tests.standins.build import build_kernels_on_host

NAMES = sorted(file.stem for file in ptx.KERNELS.glob("*.ptx"))
TENSOR, TYPES = "matmul_tensor", "matmul_types"
SUMS = {
    "fp16": np.float16,
    "fp32": np.float32,
    "fp64": np.float64,
    "int8": np.int8,
    "int32": np.int32,
    "bf16": np.uint16,
}
"""The types of matrix elements; numpy has no bf16, which is the upper half of a float."""
LANES = range(32)
ALL = ptx.ASSEMBLERS
SOLD = (50, 75, 80, 86, 90, 120)
"""Architectures between which registers differ most."""


def shipped(name: str) -> Path:
    return ptx.KERNELS / f"{name}.ptx"


def test_every_source_has_its_ptx_and_every_ptx_its_source() -> None:
    assert [source.stem for source in ptx.sources()] == NAMES


def test_a_run_names_the_ptx_that_is_shipped() -> None:
    assert f"{kernels.digest()}\n" == ptx.digest(), "run deploy/build-ptx"


@pytest.mark.parametrize("name", NAMES)
def test_the_header_is_one_that_every_driver_for_wsl2_accepts(name: str) -> None:
    lines = shipped(name).read_bytes().decode("ascii").splitlines()
    directives = [line for line in lines if line.startswith(".")][:3]
    version, target = ("7.0", "sm_80") if name in {TENSOR, TYPES} else ("6.0", "sm_50")
    assert directives == [f".version {version}", f".target {target}", ".address_size 64"]
    assert lines[0].startswith(f"// Made from {name}.cu by deploy/build-ptx")
    assert "/" not in lines[0].removeprefix("// ").replace("deploy/build-ptx", "")


@pytest.mark.parametrize("name", NAMES)
def test_shared_memory_is_aligned_for_the_widest_access_of_its_kernel(name: str) -> None:
    """An assembler may place a variable wherever its alignment allows."""
    for body in shipped(name).read_text(encoding="ascii").split(".entry")[1:]:
        wide = re.search(r"(ld|st)\.shared\.v4\.(f32|u32)|ldmatrix|cp\.async\.cg", body)
        aligned = [int(result) for result in re.findall(r"\.shared \.align (\d+)", body)]
        assert not wide or min(aligned) >= 16


@pytest.mark.parametrize(
    ("name", "instruction", "count"),
    [
        (TENSOR, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 32),
        (TENSOR, "ldmatrix.sync.aligned.m8n8.x4.shared.b16", 8),
        (TENSOR, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", 4),
        (TENSOR, "cp.async.cg.shared.global", 4 * 3),
        (TENSOR, "fma.", 0),
        (TYPES, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 32),
        (TYPES, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 32),
        (TYPES, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 32),
        (TYPES, "ldmatrix.sync.aligned.m8n8.x4.shared.b16", 3 * 12),
        (TYPES, "fma.", 0),
        ("matmul_fp64", "fma.rn.f64", 8 * 8 * 8),
        ("nbody", "rsqrt.approx.ftz.f32", 32),
        ("nbody", "sqrt", 32),  # no other
    ],
)
def test_a_kernel_is_made_of_the_instructions_it_is_there_for(
    name: str, instruction: str, count: int
) -> None:
    assert shipped(name).read_text(encoding="ascii").count(instruction) == count


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
def test_three_generations_of_assemblers_accept_it(
    tools: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the oldest and the newest GPU that each knows; deploy/build-ptx tries all of them."""
    ends = [replace(a, architectures=a.architectures[:: len(a.architectures) - 1]) for a in ALL]
    monkeypatch.setattr(ptx, "ASSEMBLERS", ends)
    assert len(list(ptx.assemble(tools, shipped(name)))) == len(ALL) == 3


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("header", "refused"),
    [(ptx.Header("6.5", 80), r"\.version 7\.0 or later"), (ptx.Header("7.0", 75), "sm_80")],
)
def test_the_tensor_kernel_asks_for_no_more_than_it_needs(
    tools: Path, tmp_path: Path, header: ptx.Header, refused: str
) -> None:
    lower = tmp_path / f"{TENSOR}.ptx"
    text = shipped(TENSOR).read_text(encoding="ascii")
    lower.write_text(text.replace(ptx.HEADERS[TENSOR].text, header.text))
    with pytest.raises(ptx.PtxError, match=refused):
        list(ptx.assemble(tools, lower))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "blocks"),
    [("matmul_128", 2), (TENSOR, 2), (TYPES, 2), ("matmul_fp64", 1), ("matmul", 3), ("nbody", 4)],
)
def test_the_large_kernels_keep_their_registers_and_share_a_multiprocessor(
    tools: Path, tmp_path: Path, name: str, blocks: int
) -> None:
    oldest = ptx.header(shipped(name)).architecture
    assembler = ptx.ASSEMBLERS[1]  # it knows the oldest and the newest architecture
    for architecture in (number for number in SOLD if number >= oldest):
        ptxas, options = tools / assembler.wheel / "ptxas", ("-v", f"--gpu-name=sm_{architecture}")
        command = (ptxas, *options, "-o", tmp_path / "cubin", shipped(name))
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        report = ended.stdout + ended.stderr
        assert set(re.findall(r"(\d+) bytes spill", report)) == {"0"}, report
        assert max(map(int, re.findall(r"Used (\d+) registers", report))) <= 65536 // 256 // blocks


def test_an_unexpected_header_is_not_rewritten() -> None:
    with pytest.raises(ptx.PtxError, match="unexpected PTX header"):
        ptx.lowered("x.cu", ".version 8.8\n.target sm_90\n")
    with pytest.raises(ptx.PtxError, match="unexpected PTX header"):
        ptx.lowered("x.cu", ".version 8.8\n.target sm_50\n", ptx.HEADERS[TENSOR])


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The same sources compiled for the CPU, called as ``host_NAME``."""
    return ctypes.CDLL(str(build_kernels_on_host(tmp_path_factory.mktemp("kernels"))))


@pytest.mark.parametrize("name", ["nbody", "triad", "matmul_128", TENSOR])
def test_one_thread_reads_the_clocks_when_a_large_kernel_begins_and_ends(name: str) -> None:
    _, body = shipped(name).read_text(encoding="ascii").split(".entry")
    reads = re.findall(r"mov\.u64 \S+ %(globaltimer|clock64);", body)
    lingering = ["clock64"] if name == "triad" else []
    assert reads == ["globaltimer", "clock64", *lingering, "globaltimer", "clock64"]
    sums = re.findall(r"atom\.global\.add\.u64", body)
    assert len(sums) == 5  # two when it begins; two and the number of launches when it ends


def test_the_clocks_are_read_once_a_launch(host: ctypes.CDLL) -> None:
    ends = (ctypes.c_ulonglong * 4).in_dll(host, "gpud_ends")
    begins = (ctypes.c_ulonglong * 2).in_dll(host, "gpud_begins")
    before = ends[2]
    product(host, "matmul_128", 256)
    product(host, TENSOR, 256)
    assert ends[2] - before == 2
    assert ends[0] - begins[0] == 3 * (ends[1] - begins[1]) > 0


def random(*shape: int) -> Any:
    return np.random.default_rng(shape).integers(-8, 9, shape).astype(np.float32)


def product(host: ctypes.CDLL, kernel: str, n: int) -> tuple[Any, Any]:
    """What a kernel makes of two random matrices, and what it should."""
    a, b = random(n, n), random(n, n).T.copy()
    result = {"matmul_fp64": np.float64, "matmul_int8": np.int32}.get(kernel, np.float32)
    c = np.full((n, n), 1 << 30).astype(result)
    operand = {TENSOR: "fp16"}.get(kernel, kernel.removeprefix("matmul_"))
    left, right = (stored(each, operand) for each in (a, b.T if kernel in COLUMN_MAJOR else b))
    host[f"host_{kernel}"](left.ctypes, right.ctypes, c.ctypes, n)
    return c, a @ b


COLUMN_MAJOR = {f"matmul_{name}" for name in ("tf32", "bf16", "int8")}
"""Kernels that take the columns of B one after the other."""


def stored(matrix: Any, name: str) -> Any:
    """Write whole numbers as a type has them, row by row; FP32 for a name that is no type."""
    if name == "bf16":
        return (matrix.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).copy()
    return matrix.astype(SUMS.get(name, np.float32), order="C")


@pytest.mark.parametrize(
    ("kernel", "n"),
    [
        ("matmul_16", 16),
        ("matmul_16", 80),
        ("matmul", 64),
        ("matmul", 192),
        ("matmul_128", 128),
        ("matmul_128", 256),
        (TENSOR, 128),
        (TENSOR, 256),
        ("matmul_fp64", 64),
        ("matmul_fp64", 128),
        *((kernel, n) for kernel in sorted(COLUMN_MAJOR) for n in (128, 256)),
    ],
)
def test_the_matmul_sources_multiply_matrices(host: ctypes.CDLL, kernel: str, n: int) -> None:
    np.testing.assert_array_equal(*product(host, kernel, n))


@pytest.mark.parametrize(
    ("kernel", "ignored"),
    [
        ("matmul_16", b"barriers"),
        ("matmul", b"barriers"),
        ("matmul_128", b"barriers"),
        (TENSOR, b"barriers"),
        (TENSOR, b"waits"),
        ("matmul_fp64", b"barriers"),
        ("matmul_int8", b"barriers"),
        ("matmul_bf16", b"waits"),
    ],
)
def test_a_product_without_its_barriers_or_waits_is_seen_to_be_wrong(
    host: ctypes.CDLL, kernel: str, ignored: bytes
) -> None:
    host.host_ignore(ignored)
    try:
        result, expected = product(host, kernel, 128)
    finally:
        host.host_ignore(b"nothing")
    assert not np.array_equal(result, expected)


@pytest.mark.parametrize("tiles", [1, 7, 8, 9, 16, 27])
def test_every_tile_of_a_tensor_product_is_owned_by_one_block(
    host: ctypes.CDLL, tiles: int
) -> None:
    owned = np.full((tiles * tiles, 2), 9999, np.uint32)
    host.host_own_tile(owned.ctypes, tiles)
    every = {(row, column) for row in range(tiles) for column in range(tiles)}
    assert set(map(tuple, owned.tolist())) == every
    together = owned[: min(64, tiles * tiles)].max(axis=0) + 1
    assert together.tolist() == [min(tiles, 8), min(tiles, 8)]


def test_the_tensor_sources_read_shared_memory_without_bank_conflicts(host: ctypes.CDLL) -> None:
    host.host_bank_conflicts.restype = ctypes.c_uint64
    for kernel in (TENSOR, *COLUMN_MAJOR):
        product(host, kernel, 128)
        assert host.host_bank_conflicts() == 0
    into, rows = np.zeros((32, 4), np.uint32), np.zeros((32 * 8, 8), np.uint16)
    host.host_ldmatrix(into.ctypes, rows.ctypes)
    assert host.host_bank_conflicts() == 0, "rows that follow each other"


@pytest.mark.parametrize(("name", "depth"), [("fp16", 16), ("bf16", 16), ("tf32", 8), ("int8", 32)])
def test_mma_on_the_host_has_the_layout_of_the_ptx_isa(
    host: ctypes.CDLL, name: str, depth: int
) -> None:
    """Sections "Matrix Fragments for mma.m16n8k16, .m16n8k8 and .m16n8k32", register by register.

    Register i of A has row lane / 4, the odd ones 8 further down, and from i = 2 on the second half
    of the columns; as many of them follow each other as a register holds.
    """
    a, b, c = random(16, depth), random(depth, 8), random(8, 16).T.copy()
    group = depth // 8  # elements in a register
    fragment_a = np.zeros((32, 4, group), np.float32)
    fragment_b = np.zeros((32, 2, group), np.float32)
    places = {}
    for lane in LANES:
        row, thread = lane >> 2, lane % 4
        for i in range(4):
            for part in range(group):
                k = i // 2 * (depth // 2) + thread * group + part
                fragment_a[lane, i, part] = a[row + i % 2 * 8, k]
                fragment_b[lane, i // 2, part] = b[k, row]
            places[lane, i] = (row + i // 2 * 8, thread * 2 + i % 2)
    kind = np.int32 if name == "int8" else np.float32
    total = np.array([[c[places[lane, i]] for i in range(4)] for lane in LANES], kind)
    left, right = stored(fragment_a, name), stored(fragment_b, name)
    host["host_mma" if name == "fp16" else f"host_mma_{name}"](
        total.ctypes, left.ctypes, right.ctypes
    )
    expected = a @ b + c
    assert all(total[each] == expected[place] for each, place in places.items())


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("name", sorted(SUMS))
def test_sums_are_those_of_whole_numbers_in_64_bits(
    host: ctypes.CDLL,
    name: str,
    columns: bool,  # noqa: FBT001
) -> None:
    n = 128
    matrix, chance = random(n, n), np.random.default_rng(5)
    weights, before = chance.integers(0, 1 << 63, (2, n), np.uint64)
    sums, elements = before.copy(), stored(matrix, name)
    steps = (1, n) if columns else (n, 1)
    host[f"host_sums_{name}"](elements.ctypes, weights.ctypes, sums.ctypes, *steps, n)
    whole = matrix.astype(np.int64).astype(np.uint64)
    added = weights @ whole if columns else whole @ weights
    np.testing.assert_array_equal(sums, before + added)


@pytest.mark.parametrize("value", [0.5, -1e-45, 3e9, -(2.0**31), float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["fp32", "fp64"])
def test_an_element_that_no_product_has_changes_the_sums(
    host: ctypes.CDLL, name: str, value: float
) -> None:
    n = 64
    elements, weights = np.zeros((n, n), SUMS[name]), np.ones(n, np.uint64)
    elements[3, 5] = value
    sums = np.zeros(n, np.uint64)
    host[f"host_sums_{name}"](elements.ctypes, weights.ctypes, sums.ctypes, 1, n, n)
    assert np.flatnonzero(sums).tolist() == [5]


@pytest.mark.parametrize("name", ["ldmatrix", "ldmatrix_trans"])
def test_ldmatrix_on_the_host_has_the_layout_of_the_ptx_isa(host: ctypes.CDLL, name: str) -> None:
    """Lane l gets the elements 2 * (l % 4) and the next of row l / 4, matrix by matrix."""
    rows, into = np.arange(32 * 8, dtype=np.uint16), np.zeros((32, 8), np.uint16)
    host[f"host_{name}"](into.ctypes, rows.ctypes)
    for matrix, held in enumerate(rows.reshape(4, 8, 8)):
        layout = held.T if name == "ldmatrix_trans" else held
        for lane in LANES:
            first = lane % 4 * 2
            pair = into[lane, 2 * matrix : 2 * matrix + 2]
            np.testing.assert_array_equal(pair, layout[lane // 4, first : first + 2])


def accelerations(host: ctypes.CDLL, n: int) -> tuple[Any, Any]:
    """What the n-body source makes of random bodies, and what double precision does."""
    bodies, result = np.abs(random(n, 4)), np.full((n, 4), np.nan, np.float32)
    host.host_nbody(bodies.ctypes, result.ctypes, n, ctypes.c_float(0.5))
    wide = bodies.astype(np.float64)
    delta = wide[None, :, :3] - wide[:, None, :3]
    factor = wide[:, 3] / ((delta**2).sum(axis=2) + 0.5) ** 1.5
    return result, (delta * factor[:, :, None]).sum(axis=1)


@pytest.mark.parametrize("n", [256, 768])
def test_the_nbody_source_sums_every_pair(host: ctypes.CDLL, n: int) -> None:
    result, expected = accelerations(host, n)
    np.testing.assert_allclose(result[:, :3], expected, rtol=1e-4, atol=1e-3)
    assert not result[:, 3].any()


def test_nbody_without_its_barriers_is_seen_to_be_wrong(host: ctypes.CDLL) -> None:
    host.host_ignore(b"barriers")
    try:
        result, expected = accelerations(host, 512)
    finally:
        host.host_ignore(b"nothing")
    assert not np.allclose(result[:, :3], expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("n4", [1, 64, 1000])
def test_the_triad_source_covers_every_element_and_no_more(host: ctypes.CDLL, n4: int) -> None:
    a, b, c = np.full(4 * n4 + 4, 99, np.float32), random(4 * n4), random(n4 * 4)
    host.host_triad(a.ctypes, b.ctypes, c.ctypes, ctypes.c_float(3), n4, 3, 32)
    np.testing.assert_array_equal(a[:-4], b + 3 * c)
    assert (a[-4:] == 99).all()


@pytest.mark.parametrize(("n", "step"), [(1, 1), (64, 7), (1024, 1001)])
def test_the_chase_source_comes_by_every_line_of_its_ring_once(
    host: ctypes.CDLL, n: int, step: int
) -> None:
    ring = np.zeros(16 * n, np.uint64)
    host.host_ring(ring.ctypes, n, memory_latency.FACTOR, step, 3, 32)
    place, lines = np.array([ring.ctypes.data], np.uint64), []
    for _ in range(n):
        lines.append((int(place[0]) - ring.ctypes.data) // 128)
        host.host_chase(place.ctypes, 1)
    assert sorted(lines) == list(range(n))
    assert place[0] == ring.ctypes.data
    host.host_chase(place.ctypes, min(5, n - 1))
    assert (int(place[0]) - ring.ctypes.data) // 128 == lines[min(5, n - 1)]


def test_the_chase_goes_past_the_l1_cache_one_load_after_the_other() -> None:
    chase = shipped("chase").read_text(encoding="ascii").split(".entry gpud_chase")[1]
    assert set(re.findall(r"ld\.global[\w.]*", chase)) == {"ld.global.u64", "ld.global.cg.u64"}


def test_the_counter_source_counts_once_per_launch(host: ctypes.CDLL) -> None:
    counter = ctypes.c_uint(5)
    host.host_count(ctypes.byref(counter), 3, 32)
    assert counter.value == 6
