"""Launches in a row and copies there and back, where the host or the GPU is the slower side.

Time is virtual: the C program beside the probe pays nothing for a call, the probe 700 ns.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.child.running import INTERPRETED, c_loop_s, run, scripted
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from pathlib import Path

SLOWER_CPU = "1100 60"
HOST, GPU = 0.01, 0.02
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
        within = HOST if bound == "host" else GPU
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
        c_loop_s(library, "pipelined"), rel=HOST
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
    assert ended.samples["round_trip_4b"]["median"] == pytest.approx(expected_s, rel=GPU)
    assert ended.document["conditions"]["bound.round_trip_4b"] == bound
