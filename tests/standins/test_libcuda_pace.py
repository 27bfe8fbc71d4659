"""Launches of the stand-in take the time their script says, whatever its distribution."""

import math
import statistics
from pathlib import Path

import pytest

from tests.standins.build import build_libcuda
from tests.standins.loaded import loop


@pytest.mark.parametrize(
    ("mode", "sequence_ns"),
    [
        ("submit", 20_000),
        ("roundtrip", 20_000 + 1_000 + 100_000),
        ("pipelined", 10 * 20_000 + 1_000 + 100_000),
        ("graph", 50_000 + 10 * 3_000 + 10 * 1_000 + 100_000),
    ],
)
def test_the_loop_measures_what_its_mode_says(tmp_path: Path, mode: str, sequence_ns: int) -> None:
    script = "launch_ns 20000\nkernel_ns 1000\nsync_ns 100000\n"
    script += "graph_launch_ns 50000\ngraph_node_ns 3000\n"
    middle, pair, low, high, far = loop(build_libcuda(tmp_path, script), 300, mode, 0, 10)
    assert pair == 20
    assert low == middle == high == far == sequence_ns + pair


LAUNCH_NS = 10_000
RUNS = 60


def medians(folder: Path, script: str, runs: int = RUNS) -> list[float]:
    """How long a launch takes in each of so many processes, in nanoseconds without the clock."""
    library = build_libcuda(folder, f"launch_ns {LAUNCH_NS}\n{script}")
    return [took - clock for took, clock, *_ in (loop(library, 250) for _ in range(runs))]


def test_processes_scatter_as_a_log_normal_variate_that_the_seed_decides(tmp_path: Path) -> None:
    script = f"noise 7 0.1 {tmp_path}/places\n"
    drawn = medians(tmp_path, script)
    logarithms = [math.log(each / LAUNCH_NS) for each in drawn]
    assert statistics.mean(logarithms) == pytest.approx(0, abs=0.04)
    assert statistics.stdev(logarithms) == pytest.approx(0.1, rel=0.3)

    (tmp_path / "places").unlink()
    again = medians(tmp_path, script, 10)
    assert again == drawn[:10]
    (tmp_path / "places").unlink()
    other = medians(tmp_path, script.replace("noise 7", "noise 8"), 10)
    assert other != pytest.approx(drawn[:10], rel=0.03)
