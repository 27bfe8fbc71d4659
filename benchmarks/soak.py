"""What grows in a gpud that runs for days: memory, descriptors, threads, files; with its slope.

    .venv/bin/python benchmarks/soak.py [--minutes 180] [--keep FILE]

A whole ``gpud run`` with stand-in drivers does in one minute what its defaults do in twenty, and
meanwhile is scraped and looked at as often. It begins with a history of which every stream's level
is full, as after days: until then it takes 3 to 75 KB, which is no leak. Every half minute each
process is measured. A slope is a straight line through all samples after the first fifth, per day
of model time, with its 95 % confidence; the noise of neighbouring samples is not independent, so
that means of ten parts are compared. The budget: no slope that is above 0.5 MB or one descriptor a
day with that confidence. Roll-ups and retention go by the wall clock and are not quicker: a year of
rows is ``benchmarks/history.py``. ``--keep``: every sample, as JSON. Exit code 1 beyond the budget.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import sys
import time
from contextlib import closing
from itertools import product
from pathlib import Path
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cost import LAPTOP, processes_s
from tests.e2e.program import Program, cuda, nvml, program
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FASTER = 20
PACE = {
    "telemetry_interval_s": 10 / FASTER,
    "small_interval_s": 60 / FASTER,
    "large_interval_s": 900 / FASTER,
}
SCRAPE_S, PAGE_S, SAMPLE_S = 15 / FASTER, 300 / FASTER, 30.0
DAY_S = 86400 / FASTER
"""Real seconds of a day of model time."""
FULL = 1300
"""Runs after which a level is full and its windows lie behind it."""
WARM_UP, PARTS = 0.2, 10
T_95 = 2.306
"""Student's t for 95 % with the eight degrees of freedom of a line through ten means."""
BUDGETS = {"private MB": 0.5, "descriptors": 1.0}


def private_mb(pid: int) -> float:
    """Return the memory that no other process shares, in MB: a share rises when others end."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def descriptors(pid: int) -> float:
    """Return how many files a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def status_of(pid: int, key: str) -> float:
    """Return a figure of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


OF_A_PROCESS: dict[str, Callable[[int], float]] = {
    "private MB": private_mb,
    "descriptors": descriptors,
    "threads": lambda pid: status_of(pid, "Threads"),
    "wake-ups": lambda pid: status_of(pid, "voluntary_ctxt_switches"),
}


def folder_mb(folder: Path) -> float:
    """Return what the files below a folder take, in MB; files may go meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total / 1e6


def measured(gpud: Program) -> dict[str, float]:
    """Measure every process and both folders once."""
    assert gpud.process is not None
    helper = until(gpud.nvml_helper, "the helper of NVML")
    pids = {"root": gpud.process.pid, "agent": gpud.agent_pid(), "NVML": helper}
    sample: dict[str, float] = {}
    for process, pid in pids.items():
        assert pid is not None, f"{process} is gone"
        sample |= {f"{process} {what}": look(pid) for what, look in OF_A_PROCESS.items()}
    sample |= {f"{name} CPU s": used_s for name, used_s in processes_s(gpud).items()}
    sample["history MB"] = folder_mb(gpud.home / "var/lib/gpud")
    sample["logs MB"] = folder_mb(gpud.home / "var/log/gpud")
    return sample


def soaked(
    gpud: Program, seconds: float, keep: Path | None
) -> list[tuple[float, dict[str, float]]]:
    """Scrape and look at the page at their pace; give the samples with their days of model time."""
    begun = time.monotonic()
    samples: list[tuple[float, dict[str, float]]] = []
    due = {SCRAPE_S: 0.0, PAGE_S: 0.0, SAMPLE_S: 0.0}
    while (passed_s := time.monotonic() - begun) < seconds:
        for every_s, at_s in due.items():
            if passed_s < at_s:
                continue
            due[every_s] = passed_s + every_s
            if every_s != SAMPLE_S:
                gpud.get("/metrics" if every_s == SCRAPE_S else "/")
                continue
            samples.append((passed_s / DAY_S, measured(gpud)))
            if keep is not None:
                with keep.open("a") as file:
                    file.write(json.dumps({"days": samples[-1][0], **samples[-1][1]}) + "\n")
        time.sleep(max(begun + min(due.values()) - time.monotonic(), 0.0))
    return samples


def learned(database: Path) -> None:
    """Repeat each probe's newest run, a minute apart, so often that levels are full of them."""
    with closing(sqlite3.connect(database)) as history, history:
        history.row_factory = sqlite3.Row
        newest = "SELECT *, max(id) FROM runs WHERE failure IS NULL GROUP BY probe"
        runs = [dict(row) for row in history.execute(newest)]
        samples = [dict(row) for row in history.execute("SELECT * FROM samples")]
        number, began_s = max(run.pop("max(id)") for run in runs), time.time() - 60 * FULL
        for turn, run in product(range(FULL), runs):
            number += 1
            moment = {"id": number, "finished_s": began_s + 60 * turn, "flags": "[]"}
            insert(history, "runs", run | moment)
            for sample in samples:
                if sample["run_id"] == run["id"]:
                    median = sample["median"] * random.gauss(1, 0.01)
                    insert(history, "samples", sample | {"run_id": number, "median": median})
        history.execute("DELETE FROM states")  # the agent learns them anew from the runs


def insert(history: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    """Insert a row of these columns."""
    values = ", ".join("?" * len(row))
    line = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})"  # noqa: S608  # no input
    history.execute(line, tuple(row.values()))


def slope(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the slope of a line through the means of ten parts, and half its 95 % interval."""
    size = len(points) // PARTS
    parts = [points[at * size : (at + 1) * size] for at in range(PARTS)]
    x = [fmean(point[0] for point in part) for part in parts]
    y = [fmean(point[1] for point in part) for part in parts]
    line = linear_regression(x, y)
    residual = sum((b - line.intercept - line.slope * a) ** 2 for a, b in zip(x, y, strict=True))
    spread = sum((a - fmean(x)) ** 2 for a in x)
    return line.slope, T_95 * (residual / (PARTS - 2) / spread) ** 0.5


def main() -> int:
    """Print first and last value, largest value and slope of everything."""
    parser = argparse.ArgumentParser(description="what grows in days")
    parser.add_argument("--minutes", type=float, default=180.0)
    parser.add_argument("--keep", type=Path, help="a file for the samples")
    given = parser.parse_args()
    with program(schedule=PACE, probes={}) as gpud:
        gpud.settings |= {"cuda": cuda(gpud.home, LAPTOP), "nvml": nvml(gpud.home)}
        gpud.start()
        gpud.health("probes", 0)
        soaked(gpud, 2 * PACE["large_interval_s"], None)
        gpud.stop()
        learned(gpud.home / "var/lib/gpud/gpud.db")
        gpud.start()
        gpud.health("probes", 0)
        samples = soaked(gpud, 60 * given.minutes, given.keep)
    samples = samples[int(WARM_UP * len(samples)) :]
    if len(samples) < PARTS:
        sys.exit(f"{given.minutes:g} minutes give too few samples for a slope")
    days = samples[-1][0] - samples[0][0]
    print(f"{days:.2f} days of model time after the warm-up, {len(samples)} samples")
    print(f"{'':<20} {'first':>10} {'last':>10} {'most':>10}   a day")
    good = True
    for name in samples[0][1]:
        values = [(day, sample[name]) for day, sample in samples]
        rise, within = slope(values)
        limit = next((most for what, most in BUDGETS.items() if name.endswith(what)), None)
        over = limit is not None and rise - within > limit
        good = good and not over
        figures = [values[0][1], values[-1][1], max(value for _, value in values)]
        row = " ".join(f"{figure:>10.2f}" for figure in figures)
        print(f"{name:<20} {row}   {rise:+.3f} +- {within:.3f}{'  above the budget' * over}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
