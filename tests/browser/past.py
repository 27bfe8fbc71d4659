"""A year of one-minute runs as a history keeps it: hours for all of it, runs for the last day."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from gpud.agent.history import records
from gpud.agent.history.records import Entry
from gpud.agent.history.schema import MINUTE_S
from gpud.agent.history.telemetry import REASONS, write_minutes
from gpud.agent.state.facts import DRIVER_VERSION
from gpud.core.sample import Flag, Unit
from tests import snapshots
from tests.histories import DAY_S, HOUR_S, figure, made, opened, spread, telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpud.agent.history.records import Run
    from gpud.agent.history.telemetry import TelemetryRow
    from gpud.core.sample import Device

NOW_S: Final = snapshots.NOW.wall_s
YEAR: Final = 365
OLDER, OLD, NEW = "561.09", "566.36", "572.16"
"""Drivers, and below since how many days each is there."""
SINCE_DAYS: Final = {OLDER: 365.0, OLD: 150.0, NEW: 9.25}
SLOWER: Final = 1.12
HOLE_H: Final = (8.0, 6.5)
"""The lid was closed so many hours before now, and open again at the other."""
BATCH: Final = 2000
HOT_H: Final = (5.0, 3.5)
"""Somebody works on the GPU in between, and it becomes too hot."""
DRIFT_DAYS: Final = (6.0, 1.5)
"""Submission becomes slower little by little in between, in a ``drifting`` past."""
HOLE_DAYS: Final = (61.0, 47.0)
INSERT: Final = "INSERT INTO rollups VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
LEVELS: Final = {
    "launch": {
        "submit": (12.4e-6, Unit.SECONDS),
        "roundtrip": (24e-6, Unit.SECONDS),
        "pipelined": (6.2e-6, Unit.SECONDS),
    },
    "copy": {
        "host_to_device": (24.1e9, Unit.BYTES_PER_SECOND),
        "device_to_host": (25.3e9, Unit.BYTES_PER_SECOND),
    },
    "triad": {"triad": (460e9, Unit.BYTES_PER_SECOND)},
    "matmul": {"matmul": (14.2e12, Unit.FLOPS_PER_SECOND)},
    "tensor": {"tensor": (58.0e12, Unit.FLOPS_PER_SECOND)},
    "nbody": {"nbody": (20e12, Unit.FLOPS_PER_SECOND)},
    "container_nbody": {"nbody": (16e12, Unit.FLOPS_PER_SECOND)},
    "cpu_call": {"call": (4e-7, Unit.SECONDS)},
}


def by_driver(ago: float) -> float:
    """The newest driver costs 12 %."""
    return SLOWER if ago <= SINCE_DAYS[NEW] else 1.0


def never(ago: float) -> float:
    """Submission takes as long as ever."""
    del ago
    return 1.0


def drifting(ago: float) -> float:
    """Submission becomes slower for some days, and stays so."""
    begun, ended = DRIFT_DAYS
    return 1.0 + (SLOWER - 1.0) * max(0.0, min(1.0, (begun - ago) / (begun - ended)))


@dataclass
class Past:
    """What was measured until ``NOW_S``, from one seed."""

    device: Device = snapshots.DEVICE
    spacing_s: float = 60.0  # between runs
    days_of_runs: float = 1.0
    large_every: int = 1  # rounds: in how many a probe of throughput runs once
    levels: dict[str, dict[str, tuple[float, Unit]]] = field(default_factory=lambda: dict(LEVELS))
    slowdown: Callable[[float], float] = by_driver  # of submission, by days before the end
    hot_h: tuple[float, float] = HOT_H
    last_run_h: float = 0.0  # before the end
    rng: random.Random = field(default_factory=lambda: random.Random(7))

    def write(self, folder: Path, days: int = YEAR) -> None:
        """Fill the history in ``folder``."""
        with opened(folder) as store:
            rows = list(self.hours(days))
            store.write(lambda t: t.executemany(INSERT, rows))
            store.write(
                records.write_events,
                [
                    Entry(NOW_S - SINCE_DAYS[new] * DAY_S, DRIVER_VERSION, {"old": old, "new": new})
                    for old, new in ((OLDER, OLD), (OLD, NEW))
                ],
            )
            for batch in batched(self.runs(), BATCH):
                store.append(batch)
            store.write(write_minutes, list(self.minutes()))

    def hours(self, days: int) -> Iterator[tuple[object, ...]]:
        """Give the rows of whole hours until the runs begin."""
        first = int((NOW_S - days * DAY_S) // HOUR_S)
        for hour in range(first, int((NOW_S - self.days_of_runs * DAY_S) // HOUR_S)):
            ago = (NOW_S - hour * HOUR_S) / DAY_S
            if HOLE_DAYS[0] > ago > HOLE_DAYS[1]:
                continue
            for probe, mode, level, unit in self.modes():
                driver = driver_at(hour * HOUR_S)
                median = self.figure(mode, level, unit, ago)
                gpu = "" if probe == "cpu_call" else self.device.uuid
                ends = (
                    0.97 * median,
                    1.04 * median,
                    0.9 * median,
                    self.rng.uniform(1.1, 2) * median,
                )
                yield (hour * 3600, gpu, probe, mode, 1, driver, unit, 60, 0, median, *ends)

    def runs(self) -> Iterator[Run]:
        """Give the runs of the last days."""
        at_s = NOW_S - self.days_of_runs * DAY_S
        turn = 0
        while at_s < NOW_S - 1 - self.last_run_h * HOUR_S:
            ago_h = (NOW_S - at_s) / HOUR_S
            if not HOLE_H[0] > ago_h > HOLE_H[1]:
                flags = (Flag.BUSY,) if 3 > ago_h > 2.5 else ()
                for probe, modes in self.levels.items():
                    if turn % self.large_every == 0 or probe in {"launch", "cpu_call"}:
                        yield self.run(at_s, probe, modes, flags)
            at_s += self.spacing_s
            turn += 1

    def run(
        self, at_s: float, probe: str, modes: dict[str, tuple[float, Unit]], flags: tuple[Flag, ...]
    ) -> Run:
        driver = driver_at(at_s)
        ago = (NOW_S - at_s) / DAY_S
        samples = tuple(
            spread(mode, unit, self.figure(mode, level, unit, ago))
            for mode, (level, unit) in modes.items()
        )
        device = None if probe == "cpu_call" else self.device
        return made(
            at_s, probe, device, samples, flags=flags, conditions={"driver_version": driver}
        )

    def minutes(self) -> Iterator[TelemetryRow]:
        """Give the telemetry of the last day: work warms the GPU, and heat slows it for an hour."""
        heat = 52.0
        for minute in range(int((NOW_S - DAY_S) // MINUTE_S), int(NOW_S // MINUTE_S)):
            ago_h = (NOW_S - minute * MINUTE_S) / HOUR_S
            if HOLE_H[0] > ago_h > HOLE_H[1]:
                continue
            used = max(0.0, min(1.0, 0.9 if self.hot_h[0] > ago_h > self.hot_h[1] else 0.05))
            used = min(1.0, used + abs(self.rng.gauss(0, 0.04)))
            heat += (45 + 43 * used - heat) / 12 + self.rng.gauss(0, 0.3)
            hot = max(0.0, min(1.0, (heat - 80) / 5))
            idle = 1.0 if used < 0.1 else 0.0
            held = {"thermal": hot, "idle": idle}
            yield telemetry(
                minute * MINUTE_S,
                round(heat, 1),
                gpu=self.device.uuid,
                n=6,
                power_watts=12 + 100 * used - 20 * hot,
                clock_sm_hertz=(0.4e9 if idle else 2.4e9 - 0.9e9 * hot),
                clock_memory_hertz=0.8e9 if idle else 8e9,
                utilization_gpu_ratio=used,
                memory_used_bytes=1.2e9 + 6e9 * used,
                **{f"throttle_{reason}_ratio": held.get(reason, 0.0) for reason in REASONS},
            )

    def modes(self) -> Iterator[tuple[str, str, float, Unit]]:
        for probe, modes in self.levels.items():
            for mode, (level, unit) in modes.items():
                yield probe, mode, level, unit

    def figure(self, mode: str, level: float, unit: Unit, ago: float) -> float:
        slower = self.slowdown(ago) if mode == "submit" else 1.0
        return figure(self.rng, level, unit, slower)


def batched(runs: Iterator[Run], most: int) -> Iterator[list[Run]]:
    while batch := list(islice(runs, most)):
        yield batch


def driver_at(at_s: float) -> str:
    ago = (NOW_S - at_s) / DAY_S
    return next(name for name in (NEW, OLD, OLDER) if ago <= SINCE_DAYS[name] or name == OLDER)
