"""A week of ten streams at one a minute, through the judge and a real history.

    .venv/bin/python benchmarks/regression.py [--days 7] [--directory DIR]

Runs come as fast as the history takes them: nine modes of a probe on one GPU and one on the CPU,
three driver updates of which one costs 12 %, slow-state visits and busy hours. Printed: memory day
by day, what a sample costs beside the write, and how long a start takes right after a kill, after a
clean stop, and where every state is lost. All seconds are of the processor, so neighbours do not
count. Exit code 1 where a budget is exceeded: 120 s a week, 1 ms a sample, 8 MB of growth after the
second day.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import math
import random
import resource
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpud.agent.alerts.state import AlertState
from gpud.agent.history.records import Run
from gpud.agent.history.schema import FILE
from gpud.agent.history.store import History
from gpud.agent.regression.detector import Spans
from gpud.agent.regression.service import Regression
from gpud.agent.state.board import Board
from gpud.core.clock import Instant
from gpud.core.sample import Backend, Device, Flag, RunReport, Sample, Unit
from tests.events import made

if TYPE_CHECKING:
    from collections.abc import Iterator

MODES = tuple(f"mode_{number}" for number in range(9))
GPU = Device(0, "GPU-0", "RTX 4070", "0000:01:00.0", "8.9", 46, 1 << 25, 12 << 30)
FIRST_S = 1_760_000_000.0
DAY_S, MINUTE_S = 86400.0, 60.0
DRIVERS = ("566.36", "572.16", "576.02", "580.88")
BUDGET_S, BUDGET_SAMPLE_S, BUDGET_GROWTH_KB = 120.0, 1e-3, 8192


def main() -> int:
    """Print a line a day, then what it took."""
    parser = argparse.ArgumentParser(description="a week of ten streams through the judge")
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--directory", type=Path, help="on the disk to be measured")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        return asyncio.run(measured(Path(scratch), given.days))


async def measured(folder: Path, days: int) -> int:
    """Run the week and the restarts; give the exit code."""
    one = Life(folder)
    await one.begin()
    began_s, resident = time.process_time(), list[int]()
    print(f"{'day':>4} {'RSS MB':>8} {'alarms':>7} {'seconds':>8}")
    for runs, run in enumerate(week(days), start=1):
        async with one.regression.turn:
            await one.history.append(run)
            one.regression.evaluate(run)
        if runs % (2 * 1440) == 0:
            resident.append(resident_kb())
            spent_s = time.process_time() - began_s
            alarms = sum(len(standing.open) for standing in one.board.read().streams.values())
            print(f"{len(resident):>4} {resident[-1] / 1024:>8.1f} {alarms:>7} {spent_s:>8.1f}")
        if runs % 100 == 0:
            await asyncio.sleep(0)  # as between two runs of a minute: states are written then
    total_s = time.process_time() - began_s
    await one.end(killed=True)
    (bare := folder / "bare").mkdir()
    write_s = await written(bare, days)
    samples = days * 1440 * (len(MODES) + 1)
    each_s = (total_s - write_s) / samples
    for words, change in (
        ("after a kill", lambda: None),
        ("after a clean stop", lambda: None),
        ("with every state lost", lambda: lost(folder)),
    ):
        change()
        again = Life(folder)
        began_s = time.process_time()
        await again.begin()
        print(f"start {words}: {time.process_time() - began_s:.2f} s")
        await again.end(killed=False)
    growth_kb = resident[-1] - resident[min(1, len(resident) - 1)]
    print(f"{samples:,} samples in {total_s:.1f} s, {write_s:.1f} s of it for writing runs")
    print(f"{each_s * 1e3:.3f} ms a sample, budget {BUDGET_SAMPLE_S * 1e3:g} ms")
    print(f"{growth_kb / 1024:+.1f} MB since the second day, budget {BUDGET_GROWTH_KB / 1024:g} MB")
    well = (
        total_s <= BUDGET_S * days / 7
        and each_s <= BUDGET_SAMPLE_S
        and growth_kb <= BUDGET_GROWTH_KB
    )
    return 0 if well else 1


class Life:
    """A judge with its history and alerts."""

    def __init__(self, folder: Path) -> None:
        self.history = History(folder)
        self.board = Board(made("1", 0.0))
        alerts = AlertState(self.history, board=self.board, now=now)
        self.regression = Regression(self.history, alerts, Spans(), board=self.board, now=now)
        self.task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start it, and wait until the past is known."""
        self.task = asyncio.create_task(self.regression.run())
        await self.regression.ready()

    async def end(self, *, killed: bool) -> None:
        """Stop it, as SIGKILL does or cleanly."""
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task
        if not killed:
            await self.regression.close()
        await self.history.close()


def now() -> Instant:
    """Read the clocks."""
    return Instant(time.time(), time.monotonic())


def week(days: int) -> Iterator[Run]:
    """Give two runs a minute."""
    rng = random.Random(7)
    for minute in range(days * 1440):
        at_s = FIRST_S + minute * MINUTE_S
        age = minute / (days * 1440)
        driver = DRIVERS[int(age * len(DRIVERS))]
        slower = 1.12 if driver == DRIVERS[2] else 1.0
        flags: tuple[Flag, ...] = ()
        if minute % 1440 > 1260:
            flags = (Flag.BUSY,) if rng.random() < 0.7 else ()
        elif rng.random() < 0.04:
            flags = (Flag.LOW,)
        known = {
            "driver_version": driver,
            "kernel": "6.6.87.2-microsoft-standard-WSL2",
            "windows_build": "10.0.26100.4349",
            "probe_version": 1,
            **{f"after.{name}": 1.5e9 for name in ("clock_sm_hertz", "clock_memory_hertz")},
        }
        samples = tuple(
            sample(mode, 1e-5 * slower * math.exp(rng.gauss(0, 0.02))) for mode in MODES
        )
        launch = RunReport("launch", Backend.CUDA, GPU, samples, conditions=known)
        yield Run(launch, at_s, "boot", flags)
        call = (sample("call", 4e-7 * math.exp(rng.gauss(0, 0.01))),)
        cpu = RunReport("cpu_call", Backend.CPU, None, call, conditions=known)
        yield Run(cpu, at_s + 1, "boot", ())


def sample(mode: str, value: float) -> Sample:
    """Give one mode's figures."""
    return Sample(mode, Unit.SECONDS, 100, value, value, value, value, value, value)


async def written(folder: Path, days: int) -> float:
    """Write the same runs without a judge; give the seconds."""
    history = History(folder)
    began_s = time.process_time()
    for run in week(days):
        await history.append(run)
    spent_s = time.process_time() - began_s
    await history.close()
    return spent_s


def lost(folder: Path) -> None:
    """Take all states away."""
    with closing(sqlite3.connect(folder / FILE)) as connection, connection:
        connection.execute("DELETE FROM states")


def resident_kb() -> int:
    """Give the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


if __name__ == "__main__":
    sys.exit(main())
