"""Histories as an agent writes them: one run, runs by the hour, and figures that differ as real do.

``tests/browser/past.py`` tells a longer story with these.
"""

from __future__ import annotations

import csv
import io
import math
import os
import signal
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gpud import cli
from gpud.agent.history.records import Run
from gpud.agent.history.schema import MINUTE_S
from gpud.agent.history.store import Store
from gpud.agent.history.telemetry import FIGURES, GAUGES, PARTS, TelemetryRow, write_minutes
from gpud.child import summary
from gpud.core.sample import Backend, Device, Failure, Flag, Reason, RunReport, Sample, Unit

if TYPE_CHECKING:
    import random
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping

    import pytest

    from gpud.core.sample import Condition

HOUR_S, DAY_S = 3600, 86400
BEGUN_S = 1_800_000_000 // HOUR_S * HOUR_S
DEVICE = Device(0, "GPU-1", "n", "0000:01:00.0", "8.9", 46, 1, 1)


def run(
    finished_s: float,
    figure: float = 1e-5,
    *,
    flags: tuple[Flag, ...] = (),
    gpu: str = "GPU-1",
    probe: str = "launch",
    modes: tuple[str, ...] = ("submit",),
    **conditions: Condition,
) -> Run:
    samples = tuple(summary.summarised([figure], mode=mode, unit=Unit.SECONDS) for mode in modes)
    return made(
        finished_s,
        probe,
        replace(DEVICE, uuid=gpu),
        samples,
        flags=flags,
        conditions={"driver_version": "572.16", **conditions},
    )


def made(
    finished_s: float,
    probe: str,
    device: Device | None,
    samples: tuple[Sample, ...] = (),
    *,
    failure: Failure | None = None,
    flags: tuple[Flag, ...] = (),
    boot: str = "boot",
    duration_s: float = 0.2,
    conditions: Mapping[str, Condition] | None = None,
) -> Run:
    """A run of what was measured, or of why nothing was; without a device it is the CPU's."""
    report = RunReport(
        probe,
        Backend.CPU if device is None else Backend.CUDA,
        device,
        samples,
        failure=failure,
        conditions={"probe_version": 1, **(conditions or {})},
        duration_s=duration_s,
    )
    return Run(report, finished_s, boot, flags)


def spread(mode: str, unit: Unit, median: float) -> Sample:
    """A sample about a median, with a longest call as there always is one."""
    return Sample(
        mode,
        unit,
        n=200,
        median=median,
        p10=0.97 * median,
        p90=1.04 * median,
        p99=1.1 * median,
        minimum=0.9 * median,
        maximum=2 * median,
    )


def figure(rng: random.Random, level: float, unit: Unit, slower: float = 1.0) -> float:
    """A run's median: they differ by 1.5 % about their level. ``slower`` than it, in any unit."""
    level *= math.exp(rng.gauss(0, 0.015))
    return level * slower if unit is Unit.SECONDS else level / slower


def failed(finished_s: float, detail: str = "no answer") -> Run:
    failure = Failure(Reason.HUNG, detail)
    return Run(RunReport("launch", Backend.CUDA, failure=failure), finished_s, "boot")


def hours(
    count: int, *, since_s: float = BEGUN_S, each: int = 1, figure: float = 1e-5
) -> list[Run]:
    """Give ``each`` runs in every one of ``count`` hours."""
    return [
        run(since_s + hour * HOUR_S + number, figure)
        for hour in range(count)
        for number in range(each)
    ]


def telemetry(
    at_s: float, temperature: float | None = 60.0, *, gpu: str = "GPU-1", n: int = 6, **more: float
) -> TelemetryRow:
    """A minute of telemetry; ``more`` are steady fields, and shares of throttling by column."""
    figures = {name: more.get(name) for name in FIGURES}
    for gauge, value in {"temperature_celsius": temperature, **more}.items():
        figures |= {f"{gauge}_{part}": value for part in PARTS} if gauge in GAUGES else {}
    at_s = int(at_s) // MINUTE_S * MINUTE_S
    return TelemetryRow(MINUTE_S, at_s, gpu, n, tuple(figures.values()))


@contextmanager
def memory() -> Iterator[Path]:
    """A folder that waits for no disk where the system has one: for stories told many times."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)


@contextmanager
def opened(folder: Path) -> Iterator[Store]:
    """Open it without waiting for the disk: it is processes that die in tests, no machines."""
    store = Store(folder)
    store._connection.execute("PRAGMA synchronous=OFF")
    try:
        yield store
    finally:
        store.close()


def done(store: Store, piece: Callable[[sqlite3.Connection], bool]) -> int:
    """Work until there is no more to do; say in how many pieces."""
    pieces = 1
    while store.write(piece):
        pieces += 1
    return pieces


def column(store: Store, query: str) -> list[object]:
    return store.read(lambda connection: [row[0] for row in connection.execute(query)])


class Asked:
    """A home with a history in it, and `gpud history`; ``words`` stand before those of a call."""

    def __init__(self, home: Path, capture: pytest.CaptureFixture[str], *words: str) -> None:
        self.home = home
        self.state = home / "var/lib/gpud"
        self._capture = capture
        self._words = words
        self.stderr = ""

    def written(self, *runs: Run) -> None:
        with opened(self.state) as store:
            assert store.append(list(runs)) == []

    def minutes(self, *minutes: TelemetryRow) -> None:
        with opened(self.state) as store:
            store.write(write_minutes, minutes)

    def __call__(self, *words: str, code: int = 0) -> str:
        assert cli.main(["--home", str(self.home), "history", *self._words, *words]) == code
        out, self.stderr = self._capture.readouterr()
        return out

    def table(self, *words: str) -> list[list[str]]:
        return [line.split() for line in self(*words).splitlines()]

    def csv(self, *words: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self(*words))))


def rfc(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")


def killing(moment: int) -> Callable[[str], None]:
    """Give a trace callback of SQLite that kills this process at the n-th statement."""
    left = moment

    def count(_: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return count
