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


def test_visits_to_a_slow_state_last_and_take_up_their_share(tmp_path: Path) -> None:
    script = f"noise 1 0.0 {tmp_path}/places\nnoise_visits 0.3 5 2\n"
    drawn = medians(tmp_path, script, 150)
    slow = [each > 1.5 * LAUNCH_NS for each in drawn]
    assert {round(each / LAUNCH_NS) for each in drawn} == {1, 2}
    assert 0.15 < sum(slow) / len(slow) < 0.5
    begun = sum(now and not before for before, now in zip([False, *slow], slow, strict=False))
    assert 2 < sum(slow) / begun < 12


def test_a_busy_spell_widens_what_a_process_sees(tmp_path: Path) -> None:
    script = f"launch_ns {LAUNCH_NS}\nnoise 1 0.0 {tmp_path}/places\nnoise_busy 0.5 3 3\n"
    library = build_libcuda(tmp_path, script)
    seen = [took(library) for _ in range(30)]
    wide = [median for median, high in seen if high > 2.5 * LAUNCH_NS]
    assert 5 < len(wide) < 25
    assert statistics.median(wide) == pytest.approx(2 * LAUNCH_NS, rel=0.1)
    usual = [median for median, high in seen if high < 1.5 * LAUNCH_NS]
    assert len(usual) + len(wide) == len(seen)
    assert statistics.median(usual) == pytest.approx(LAUNCH_NS, rel=0.05)


def test_a_graph_takes_part(tmp_path: Path) -> None:
    script = f"kernel_ns 1\ngraph_launch_ns {LAUNCH_NS * 10}\nnoise 1 0.0 {tmp_path}/places\n"
    library = build_libcuda(tmp_path, script)
    alone = took(library, "graph")[0]
    rewrite_script(library, script + "noise_busy 0.9 1e9 3\n")
    assert took(library, "graph")[0] > 1.5 * alone
