"""Runs by the thousand, as an agent writes them: for what needs a history that is long."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.agent.store import Run, Store
from gpud.core import stats
from gpud.core.sample import Backend, Device, Failure, Flag, Reason, RunReport, Unit

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

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
    samples = tuple(stats.summarised([figure], mode=mode, unit=Unit.SECONDS) for mode in modes)
    told: dict[str, Condition] = {"probe_version": 1, "driver_version": "572.16", **conditions}
    device = replace(DEVICE, uuid=gpu)
    report = RunReport(probe, Backend.CUDA, device, samples, conditions=told, duration_s=0.2)
    return Run(report, finished_s, "boot", flags)


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


@contextmanager
def memory() -> Iterator[Path]:
    """A folder that waits for no disk where the system has one: for stories told many times."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)


@contextmanager
def opened(folder: Path) -> Iterator[Store]:
    """Open it without waiting for the disk: it is processes that die in tests, no machines."""
    store = Store(folder, now=str)
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
