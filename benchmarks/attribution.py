"""Clock or compiler: two ways to tell, on generated streams of one kernel.

    .venv/bin/python benchmarks/attribution.py [--cases 200]

A stream is a run every 20 minutes: clock times work of a cycle times noise. The clock wanders and
now and then is low for an hour, the figure and the clock are read with an error. After 300 runs a
new driver comes, and with it either a lower clock or slower code. Two ways are held against each
other. *Label*: one detector on the figure; its alarm is explained by the runs on either side
(``gpud.agent.alerts.causes``). *Stream*: a second detector on the figure over the clock, whose
alarm says that it is the compiler; none in as many runs as it looks at says that it is the clock.
Printed: found, rightly explained, and runs until both, median and nine in ten.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from typing import TYPE_CHECKING

from gpud.agent.alerts.causes import likely
from gpud.agent.regression import causes as kinds
from gpud.agent.regression.detector import Detector, Direction, Observation
from gpud.core.alerts import Cause
from gpud.core.stats import quantile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.core.sample import Condition

KINDS = (kinds.SM_CLOCK, kinds.COMPILER)
SIZES = (0.05, 0.08, 0.12, 0.2)
BEFORE, AFTER, COMPARED = 300, 130, 20
EVERY_S = 1200.0
LAST_LOOK = 120
"""Runs of a new driver after which the detector looks no more."""
UPDATE = Cause("driver_version", "572.16", "576.02")


@dataclass(frozen=True, slots=True)
class Way:
    """What one way says of one stream: the cause, and after how many runs of the new driver."""

    cause: str | None
    runs: int


def main() -> int:
    """Print a line for each kind and size."""
    parser = argparse.ArgumentParser(description="clock or compiler: label or stream")
    parser.add_argument("--cases", type=int, default=200)
    given = parser.parse_args()
    print(f"{'':26} {'label':>34}   {'stream':>34}")
    for kind in KINDS:
        for size in SIZES:
            ways = [judged(list(stream(kind, size, seed))) for seed in range(given.cases)]
            cells = [cell([way[number] for way in ways], kind) for number in (0, 1)]
            print(f"{kind:10} -{size:4.0%} {given.cases:4} cases {cells[0]:>34}   {cells[1]:>34}")
    return 0


def stream(kind: str, size: float, seed: int) -> Iterator[dict[str, Condition]]:
    """Yield the conditions of each run, and its figure as ``value``."""
    chance = random.Random(f"{kind} {size} {seed}")
    clock_noise, figure_noise = chance.uniform(0.003, 0.02), chance.uniform(0.002, 0.01)
    wander, low = 0.0, 0
    for number in range(BEFORE + AFTER):
        new = number >= BEFORE
        wander = 0.8 * wander + chance.gauss(0, 0.6 * clock_noise)
        low = low - 1 if low else 3 * (chance.random() < 0.01)
        clock = 1.8e9 * math.exp(wander) * (0.8 if low else 1.0)
        cycle = 7e3
        clock *= 1 - size if new and kind == kinds.SM_CLOCK else 1
        pinned = cycle * math.exp(chance.gauss(0, figure_noise))
        cycle *= (1 - size if new and kind == kinds.COMPILER else 1) * math.exp(
            chance.gauss(0, figure_noise)
        )
        seen = clock * math.exp(chance.gauss(0, 0.002))
        registers = 120 if new and kind == kinds.COMPILER and seed % 3 else 128
        yield {
            "value": clock * cycle,
            "sm_clock_hertz": seen,
            "work_per_cycle": clock * cycle / seen,
            "pinned.sm_clock_hertz": seen,
            "pinned.work_per_cycle": pinned,
            "code": f"{registers} registers, 0 B local",
        }


def judged(runs: list[dict[str, Condition]]) -> tuple[Way, Way]:
    """Judge a stream by both ways."""
    figure = first_alarm([float(run["value"] or 0) for run in runs])
    cycle = first_alarm([float(run["work_per_cycle"] or 0) for run in runs])
    if figure is None:
        return Way(None, 0), Way(None, 0)
    before, after = runs[BEFORE - COMPARED : BEFORE], runs[BEFORE : BEFORE + max(figure, 5)]
    label = Way(likely(before, after, [UPDATE])[0].kind, figure)
    if cycle is None:
        return label, Way(kinds.SM_CLOCK, LAST_LOOK)
    return label, Way(kinds.COMPILER, max(figure, cycle))


def first_alarm(values: list[float]) -> int | None:
    """Give the runs of the new driver until the first alarm that a stream became worse."""
    detector = Detector(Direction.HIGHER)
    for number, value in enumerate(values):
        driver = "new" if number >= BEFORE else "old"
        alarm = detector.push(Observation(number * EVERY_S, value, driver))
        if alarm is not None and alarm.worse and number >= BEFORE:
            return number - BEFORE + 1
    return None


def cell(ways: list[Way], kind: str) -> str:
    """Write how many were found, how many of these rightly explained, and after how many runs."""
    found = [way for way in ways if way.cause is not None]
    right = sorted(float(way.runs) for way in found if way.cause == kind)
    if not right:
        return f"found {len(found)}, right 0"
    spans = f"{quantile(right, 0.5):.0f} ({quantile(right, 0.9):.0f}) runs"
    return f"found {len(found)}, right {len(right)}, {spans}"


if __name__ == "__main__":
    sys.exit(main())
