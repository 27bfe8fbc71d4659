"""Launches of the stand-in take the time their script says, whatever its distribution."""

import math
import statistics
from pathlib import Path

import pytest

from tests.standins.build import build_libcuda
from tests.standins.loaded import loop


def paced(folder: Path, script: str, *arguments: object) -> tuple[int, ...]:
    """Median, clock pair, 10th, 90th and 99th percentile in virtual nanoseconds."""
    return loop(build_libcuda(folder, script), *arguments)


def test_a_second_way_of_launching_takes_its_share(tmp_path: Path) -> None:
    script = "launch_ns 5000\nlaunch_ns_second 40000 0.3\n"
    middle, _, low, high, _ = paced(tmp_path, script, 2000)
    assert low == middle == 5_020
    assert high == 40_020
    middle, _, low, _, _ = paced(tmp_path, script.replace("0.3", "0.7"), 2000)
    assert (low, middle) == (5_020, 40_020)


def test_a_tail_leaves_the_middle_where_it_was(tmp_path: Path) -> None:
    script = "launch_ns 5000\nlaunch_tail_ns 100000 0.2\n"
    middle, _, low, high, far = paced(tmp_path, script, 2000)
    assert low == middle == 5_020
    # Pareto: half of a fifth lies above the scale times 2^(2/3) - 1, a twentieth of it above 6.37.
    assert high >= 5_000 + 58_700 * 0.8
    assert far >= 5_000 + 637_000 * 0.7
    assert far <= 5_000 + 100 * 100_000


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
    middle, pair, low, high, far = paced(tmp_path, script, 300, mode, 0, 10)
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
