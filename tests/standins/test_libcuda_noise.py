"""Processes that use the stand-in differ from one to the next, as their script says."""

import math
import statistics
from pathlib import Path

import pytest

from tests.standins.build import build_libcuda, rewrite_script
from tests.standins.loaded import loop

LAUNCH_NS = 10_000
RUNS = 60


def medians(folder: Path, script: str, runs: int = RUNS) -> list[float]:
    """How long a launch takes in each of so many processes, in nanoseconds without the clock."""
    library = build_libcuda(folder, f"launch_ns {LAUNCH_NS}\n{script}")
    return [took(library)[0] for _ in range(runs)]


def took(library: Path, mode: str = "submit") -> tuple[float, float]:
    """Median and 90th percentile."""
    median, clock, _, high, _ = loop(library, 250, mode)
    return median - clock, high - clock


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


def test_a_script_that_is_replaced_goes_on_in_the_same_row(tmp_path: Path) -> None:
    script = f"noise 7 0.1 {tmp_path}/places\n"
    straight = medians(tmp_path, script, 8)
    (tmp_path / "places").unlink()
    library = build_libcuda(tmp_path, f"launch_ns {LAUNCH_NS}\n{script}")
    before = [took(library)[0] for _ in range(4)]
    rewrite_script(library, f"launch_ns {LAUNCH_NS * 1.12:.0f}\n{script}")
    after = [took(library)[0] / 1.12 for _ in range(4)]
    assert before + after == pytest.approx(straight, rel=1e-3)  # whole nanoseconds
