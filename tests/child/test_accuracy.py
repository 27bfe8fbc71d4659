"""What a child reports is what the driver does: known answers, and a C program beside it.

Time is virtual, so that a figure is the same on every machine; ``benchmarks/submit.py`` takes real.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from gpud.child.probes import event, launch, small_copy
from gpud.core.sample import Reason
from tests.child import running
from tests.child.running import GPU, INTERPRETED, c_loop_s
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from pathlib import Path


run = partial(running.run, budget_s=60)
scripted = partial(running.scripted, budget_s=60)

WITHIN = 0.005
"""Of a C program: what remains is the arithmetic, and not the machine."""

BIMODAL, HEAVY = "launch_ns_second 12000 0.3", "launch_tail_ns 20000 0.3"
SCRIPTS = {
    **{f"{ns} ns": f"launch_ns {ns}" for ns in (500, 5000, 100000)},
    "bimodal": f"launch_ns 5000\n{BIMODAL}",
    "heavy tail": f"launch_ns 5000\n{HEAVY}",
}


@pytest.mark.parametrize("clock", [INTERPRETED, "1100 60 49 5000"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_submission_takes_what_it_takes_a_c_program(
    tmp_path: Path, script: str, clock: str
) -> None:
    """Also on a slow interpreter that is interrupted now and then."""
    library = build_libcuda(tmp_path, SCRIPTS[script])
    result = run("launch", library, clock=clock).samples["submit"]["median"]
    assert result == pytest.approx(c_loop_s(library, "submit", 4000), rel=WITHIN)


@pytest.mark.parametrize("mode", ["submit", "roundtrip", "pipelined", "graph"])
def test_every_warm_mode_takes_what_it_takes_a_c_program(tmp_path: Path, mode: str) -> None:
    script = "launch_ns 5000\nsync_ns 12000\ngraph_launch_ns 60000\ngraph_node_ns 1500"
    library = build_libcuda(tmp_path, script)
    result = run("launch", library).samples[mode]["median"]
    assert result == pytest.approx(c_loop_s(library, mode), rel=WITHIN)


GRAPHS = {
    "launch decides": "graph_launch_ns 900000\ngraph_node_ns 10",
    "nodes decide": "graph_launch_ns 20000\ngraph_node_ns 9000",
    "GPU decides": "graph_launch_ns 20000\ngraph_node_ns 500\nkernel_ns 8000",
    "wait decides": "graph_launch_ns 20000\ngraph_node_ns 500\nsync_ns 700000",
}


@pytest.mark.parametrize("script", GRAPHS)
def test_a_graph_takes_what_it_takes_a_c_program_that_builds_it_node_by_node(
    tmp_path: Path, script: str
) -> None:
    calls = tmp_path / "calls"
    library = build_libcuda(tmp_path, f"{GRAPHS[script]}\nlog {calls} cuGraphAddKernelNode_v2")
    taken_s = run("launch", library).samples["graph"]["median"]
    nodes = calls.read_text()
    calls.unlink()
    assert taken_s == pytest.approx(c_loop_s(library, "graph"), rel=WITHIN)
    assert calls.read_text() == nodes, "both graphs have as many nodes"


def test_two_kinds_of_launch_are_two_figures_and_not_a_mean(tmp_path: Path) -> None:
    submit = scripted(tmp_path, "launch", SCRIPTS["bimodal"]).samples["submit"]
    low, high = submit["peaks"]
    assert (low["value"], high["value"]) == (pytest.approx(5e-6), pytest.approx(12e-6))
    assert (low["share"], high["share"]) == (
        pytest.approx(0.7, abs=0.03),
        pytest.approx(1 - low["share"]),
    )
    # The median is that of the more frequent kind, and nowhere near the mean of 7.1 us.
    assert submit["median"] == pytest.approx(5e-6)


@pytest.mark.parametrize("script", ["5000 ns", "heavy tail"])
def test_one_kind_of_launch_has_one_figure(tmp_path: Path, script: str) -> None:
    assert not scripted(tmp_path, "launch", SCRIPTS[script]).samples["submit"]["peaks"]


COPIES = {
    "h2d_bytes_per_second": ("host_to_device", 1.23e10),
    "d2h_bytes_per_second": ("device_to_host", 6.5e9),
    "pageable_h2d_bytes_per_second": ("pageable_host_to_device", 1.1e9),
    "pageable_d2h_bytes_per_second": ("pageable_device_to_host", 9e8),
}


@pytest.mark.parametrize(
    ("probe", "script", "expected"),
    [
        ("nbody", "flops_per_second 2.34e13", {"nbody": 2.34e13}),
        ("nbody", "flops_per_second 4e11", {"nbody": 4e11}),
        ("triad", "bytes_per_second 4.56e11", {"triad": 4.56e11}),
        ("triad", "bytes_per_second 3e9", {"triad": 3e9}),
        ("device_copy", "d2d_bytes_per_second 3.21e11", {"device_copy": 3.21e11}),
        ("device_copy", "d2d_bytes_per_second 2e9", {"device_copy": 2e9}),
        (
            "copy",
            "\n".join(f"{key} {rate}" for key, (_, rate) in COPIES.items()),
            dict(COPIES.values()) | {"both": 1.3e10},
        ),
    ],
)
def test_a_known_rate_comes_back_each_in_its_own_mode(
    tmp_path: Path, probe: str, script: str, expected: dict[str, float]
) -> None:
    samples = scripted(tmp_path, probe, script).samples
    medians = {mode: sample["median"] for mode, sample in samples.items()}
    assert medians == pytest.approx(expected, rel=0.01)


def test_each_gpu_is_measured_by_its_uuid(tmp_path: Path) -> None:
    second = f"{GPU[:-1]}1"
    library = build_libcuda(tmp_path, "devices 2\ndevice.1.sm_count 6\ndevice.1.name Another")
    for uuid, index, name, bodies in (
        (GPU, 0, "NVIDIA GeForce RTX 4070 (stand-in)", 65536),
        (second, 1, "Another", 61440),  # whole waves of 4 blocks for each of the 6
    ):
        report = run("nbody", library, gpu=uuid).document
        assert report["device"]["uuid"] == uuid
        assert (report["device"]["index"], report["device"]["name"]) == (index, name)
        assert report["conditions"]["bodies"] == bodies


PINNED = {"host_to_device", "device_to_host", "both"}
PAGEABLE = {"pageable_host_to_device", "pageable_device_to_host"}


@pytest.mark.parametrize("script", ["pinned_limit 0", "fail cuMemHostAlloc 2"])
def test_without_pinned_memory_its_modes_are_missing_and_the_others_are_not(
    tmp_path: Path, script: str
) -> None:
    ended = scripted(tmp_path, "copy", f"{script}\nhost_copy_bytes_per_second 2e9")
    assert set(ended.samples) == PAGEABLE
    assert ended.document["conditions"]["pinned"] is False
    missing = ended.document["missing"]
    assert {gap["mode"] for gap in missing} == PINNED
    assert {gap["reason"] for gap in missing} == {Reason.OUT_OF_MEMORY}
    assert all("pinned memory refused" in gap["detail"] for gap in missing)


@pytest.mark.parametrize(("limit", "expected"), [(40 << 20, 32), (16 << 20, 16)])
def test_pinned_memory_is_asked_for_by_halves(tmp_path: Path, limit: int, expected: int) -> None:
    ended = scripted(tmp_path, "copy", f"pinned_limit {limit}")
    assert set(ended.samples) == PINNED | PAGEABLE
    assert ended.document["conditions"]["copy_bytes"] == expected << 20
    assert ended.document["pinned_peak_bytes"] == expected << 20


def test_ordinary_memory_is_timed_by_the_clock_on_the_wall(tmp_path: Path) -> None:
    script = "copy_ns 8000000\npageable_h2d_bytes_per_second 1e11"
    result = scripted(tmp_path, "copy", script).samples["pageable_host_to_device"]["median"]
    assert result == pytest.approx((16 << 20) / 8e-3, rel=0.03)


def test_all_small_probes_together_take_a_thousandth_of_a_minute() -> None:
    specs = [module.SPEC for module in (launch, small_copy, event)]
    assert sum(spec.gpu_budget_s for spec in specs) <= 0.06


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (f"device.0.free_mem {6 << 20}", 1 << 20),
        (f"device.0.free_mem {600 << 20}", 64 << 20),
        (f"device.0.l2_bytes {32 << 20}", 128 << 20),
    ],
)
def test_triad_takes_half_of_the_free_memory_at_most(
    tmp_path: Path, script: str, expected: int
) -> None:
    """And outgrows a large cache."""
    conditions = scripted(tmp_path, "triad", script).document["conditions"]
    assert conditions["array_bytes"] == expected


SLOWER_CPU = "1100 60"
BY_HOST, BY_GPU = 0.01, 0.02
"""How far a row may be from the C program's, by what bounds it."""


@pytest.mark.parametrize("clock", [INTERPRETED, SLOWER_CPU])
@pytest.mark.parametrize(
    ("host_ns", "gpu_ns", "bound"),
    [
        (2000, 1000, "host"),
        (20000, 3000, "host"),
        (2000, 2100, "gpu"),  # from here on the GPU is slower than the host ...
        (1000, 1600, "gpu"),
        (2000, 2690, "gpu"),
        (2000, 2710, "gpu"),  # ... and from here on than the host and its interpreter
        (2000, 3000, "gpu"),
        (2000, 5000, "gpu"),
    ],
)
def test_a_row_of_launches_takes_what_it_takes_a_c_program(
    tmp_path: Path, clock: str, host_ns: int, gpu_ns: int, bound: str
) -> None:
    script = f"launch_ns {host_ns}\nkernel_ns {gpu_ns}\nsync_ns 4000"
    library = build_libcuda(tmp_path, script)
    ended, expected_s = run("launch", library, clock=clock), c_loop_s(library, "pipelined")
    for mode in ("pipelined", "pipelined_cold"):
        within = BY_HOST if bound == "host" else BY_GPU
        assert ended.samples[mode]["median"] == pytest.approx(expected_s, rel=within), mode
        assert ended.document["conditions"][f"bound.{mode}"] == bound


def test_a_gpu_a_little_slower_than_the_host_makes_no_jump(tmp_path: Path) -> None:
    result = []
    for gpu_ns in range(1900, 2900, 100):
        library = build_libcuda(tmp_path, f"launch_ns 2000\nkernel_ns {gpu_ns}")
        result.append(run("launch", library).samples["pipelined"]["median"])
    assert result == sorted(result)
    assert max(after / before for before, after in pairwise(result)) < 1.06


def test_a_driver_that_sends_a_batch_late_is_not_taken_for_a_slow_gpu(tmp_path: Path) -> None:
    """The wait after the row is long there too, and the host's own time is in the row."""
    library = build_libcuda(tmp_path, "launch_ns 2000\nkernel_ns 1000\nsync_ns 60000")
    ended = run("launch", library)
    assert ended.samples["pipelined"]["median"] == pytest.approx(
        c_loop_s(library, "pipelined"), rel=BY_HOST
    )
    assert ended.document["conditions"]["bound.pipelined"] == "host"


@pytest.mark.parametrize("clock", [INTERPRETED, SLOWER_CPU])
@pytest.mark.parametrize(
    ("gpu_ns", "bound"),
    [(1000, "host"), (1900, "host"), (2300, "gpu"), (3000, "gpu"), (9000, "gpu")],
)
def test_a_copy_there_and_back_takes_what_it_takes_a_c_program(
    tmp_path: Path, clock: str, gpu_ns: int, bound: str
) -> None:
    host_ns, wait_ns = 2000, 500
    script = f"copy_ns {host_ns}\ncopy_gpu_ns {gpu_ns}\nsync_ns {wait_ns}"
    ended = scripted(tmp_path, "small_copy", script, clock=clock)
    expected_s = (host_ns + max(host_ns, gpu_ns) + gpu_ns + wait_ns) * 1e-9
    assert ended.samples["round_trip_4b"]["median"] == pytest.approx(expected_s, rel=BY_GPU)
    assert ended.document["conditions"]["bound.round_trip_4b"] == bound
