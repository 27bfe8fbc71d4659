"""What the history costs: disk space over time, and how long questions, passes and writes take.

    .venv/bin/python benchmarks/history.py [--days 30] [--folder DIR]

Ten streams of four probes, each run once a minute with the conditions of a GPU, written by the
store itself; the daily pass sums up and deletes as the agent's does. And the telemetry of one GPU
and of eight, a row a minute each. Budgets: the last day's rows
of 30 days within 0.5 s, start of Python included; one piece of the pass no longer than a run may
wait to be written, 0.1 s; a write beside a reader as quick as without one.
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from gpud.agent.history import charts, queries, reader, retention, telemetry
from gpud.agent.history.export import Selection, runs_after
from gpud.agent.history.records import Run
from gpud.agent.history.schema import FILE
from gpud.agent.history.store import Store
from gpud.agent.history.telemetry import TelemetryRow
from gpud.agent.serve.api.history import chart_query
from gpud.agent.serve.api.parameters import HistoryParameters
from gpud.agent.serve.http.response import Body
from gpud.agent.serve.local.exporting import RUNS_AT_ONCE
from gpud.child import summary
from gpud.core.sample import Backend, Device, RunReport, Unit
from tests import snapshots

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

DAY_S, MINUTE_S = 86400, 60
MIB = 2**20
RAW_DAYS, ROLLUP_DAYS = 30.0, 730.0
MODES = {
    "launch": ("submit", "roundtrip", "pipelined", "graph", "first_launch"),
    "event": ("pair", "kernel", "record"),
    "small_copy": ("round_trip_4b",),
    "cpu_call": ("call",),
}
DEVICE = Device(0, "GPU-0f0e0d0c-1", "GPU", "0000:01:00.0", "8.9", 46, 1 << 22, 1 << 33)
CONDITIONS = {
    "probe_version": 1,
    "driver_version": "572.16",
    "cuda_version": "12.8",
    "nvml_version": "570.86.10",
    "kernel": "5.15.167.4-microsoft-standard-WSL2",
    **{
        f"{moment}.{name}": value
        for moment in ("before", "after")
        for name, value in (
            ("clock_sm_hertz", 1.98e9),
            ("clock_memory_hertz", 8.0e9),
            ("pstate", 2.0),
            ("temperature_celsius", 51.0),
            ("power_watts", 38.5),
            ("power_limit_watts", 140.0),
            ("pcie_generation", 4.0),
            ("pcie_width", 8.0),
            ("utilization_gpu_ratio", 0.0),
            ("memory_used_bytes", 1.2e9),
            ("memory_free_bytes", 7.1e9),
            ("throttle_reasons", "none"),
            ("ac", True),
            ("battery_ratio", 0.97),
        )
    },
}


def templates() -> tuple[RunReport, ...]:
    """Give one report for each probe, as large as a real one."""
    chance = random.Random(1)
    found = []
    for probe, modes in MODES.items():
        samples = tuple(
            summary.summarised(
                [chance.lognormvariate(0, 0.1) * 1e-5 for _ in range(200)],
                mode=mode,
                unit=Unit.SECONDS,
                null=[1e-7] * 50,
                with_buckets=probe == "launch",
            )
            for mode in modes
        )
        on_gpu = probe != "cpu_call"
        found.append(
            RunReport(
                probe,
                Backend.CUDA if on_gpu else Backend.CPU,
                DEVICE if on_gpu else None,
                samples,
                conditions=dict(CONDITIONS),
                duration_s=0.2,
            )
        )
    return tuple(found)


def day(number: int, began_s: float, reports: tuple[RunReport, ...]) -> Iterator[list[Run]]:
    """Give a day's runs, an hour at a time, so that as much is written at once as fits memory."""
    for hour in range(24):
        first_s = began_s + number * DAY_S + hour * 60 * MINUTE_S
        yield [
            Run(replace(report), first_s + minute * MINUTE_S + place, "boot")
            for minute in range(60)
            for place, report in enumerate(reports)
        ]


def passed(store: Store) -> tuple[float, float]:
    """Do what the hourly pass does; give the longest piece and the sum, in seconds."""
    pieces: tuple[Callable[[sqlite3.Connection], bool], ...] = (
        retention.roll_up,
        lambda open_: retention.forget_runs(open_, RAW_DAYS),
        lambda open_: retention.forget_the_rest(open_, ROLLUP_DAYS),
    )
    longest = whole = 0.0
    for piece in pieces:
        more = True
        while more:
            began = time.perf_counter()
            more = store.write(piece)
            took = time.perf_counter() - began
            longest, whole = max(longest, took), whole + took
    return longest, whole


def lived(
    store: Store, number: int, began_s: float, reports: tuple[RunReport, ...]
) -> tuple[float, float]:
    """Write a day, and do its pass; give what that took, as ``passed`` does."""
    for runs in day(number, began_s, reports):
        store.append(runs)
    return passed(store)


def telemetry_row(at_s: int, gpu: int, chance: random.Random) -> TelemetryRow:
    """Give a minute of a GPU at some work."""

    def three(mean: float, spread: float, digit: float) -> tuple[float, float, float]:
        values = [round(chance.gauss(mean, spread) / digit) * digit for _ in range(6)]
        return sum(values) / 6, min(values), max(values)

    gauges = (
        *three(55, 2, 1.0),
        *three(40, 9, 0.001),
        *three(1.5e9, 2e8, 15e6),
        *three(7e9, 0, 1.0),
        *three(0.4, 0.1, 0.01),
        *three(2e9, 1e7, 4096.0),
    )
    shares = [chance.choice((0.0, 0.5, 1 / 6)) if place in {0, 2} else 0.0 for place in range(12)]
    return TelemetryRow(MINUTE_S, at_s, f"{DEVICE.uuid}-{gpu:030}", 6, (*gauges, *shares))


def telemetry_cost(gpus: int, days: int = 5) -> str:
    """Write some days of telemetry; tell bytes a row and the CPU time of a minute's write."""
    chance, began_s = random.Random(1), int(time.time()) // 3600 * 3600
    minutes = [
        [telemetry_row(began_s + minute * MINUTE_S, gpu, chance) for gpu in range(gpus)]
        for minute in range(days * DAY_S // MINUTE_S)
    ]
    with tempfile.TemporaryDirectory(prefix="gpud-history-") as folder:
        store = Store(Path(folder))
        store.read(lambda c: c.execute("PRAGMA synchronous=OFF"))
        empty, before_s = store.size(), time.process_time()
        for rows in minutes:
            store.write(telemetry.write_minutes, rows)
        cpu_s = (time.process_time() - before_s) / len(minutes)
        (count,) = store.read(lambda c: c.execute("SELECT count(*) FROM telemetry").fetchone())
        store.read(lambda c: c.execute("PRAGMA wal_checkpoint(TRUNCATE)"))
        n_bytes = (store.size() - empty) / count
        store.close()
    month, year = 30 * 24 * 60 * gpus, 365 * 24 * gpus
    sizes = f"{month * n_bytes / MIB:.0f} MiB of minutes, {year * n_bytes / MIB:.1f} MiB a year"
    return f"{n_bytes:.0f} B a row: {sizes} of hours; {cpu_s * 1e6:.0f} us of CPU time a minute"


def asked(home: Path, *words: str) -> tuple[float, float]:
    """Ask the program itself; give the seconds from start to end, and those of CPU time."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "gpud", "--home", home, "history", *words],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, cpu_s


def writes(store: Store, run: Run, count: int = 200) -> list[float]:
    """Write runs one by one; give how long each took, ascending."""
    found = []
    for _ in range(count):
        began = time.perf_counter()
        store.append([run])
        found.append(time.perf_counter() - began)
    return sorted(found)


def beside_a_reader(state: Path, store: Store, run: Run) -> list[float]:
    """Write while another connection exports without a pause."""
    stop = threading.Event()

    def export() -> None:
        after: int | None = 0
        while not stop.is_set():
            _, after = reader.read(state, runs_after, Selection(), after, RUNS_AT_ONCE)

    exporting = threading.Thread(target=export)
    exporting.start()
    try:
        return writes(store, run)
    finally:
        stop.set()
        exporting.join()


def told(wall_s: float, cpu_s: float) -> str:
    """Write how long something took, and how much of it was work."""
    return f"{wall_s:.2f} s, {cpu_s:.2f} s of CPU time"


def p(values: list[float], share: float) -> str:
    """Write a percentile of ascending seconds."""
    return f"{values[int(share * (len(values) - 1))] * 1e3:.1f} ms"


def main() -> None:
    """Write the days, tell the sizes on the way, then ask."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--folder", type=Path, help="where to, and it stays there")
    chosen = parser.parse_args()
    home = chosen.folder or Path(tempfile.mkdtemp(prefix="gpud-history-"))
    try:
        measure(home, chosen.days)
    finally:
        if chosen.folder is None:
            shutil.rmtree(home)


def measure(home: Path, days: int) -> None:
    """Print the table."""
    state = home / "var/lib/gpud"
    state.mkdir(parents=True)
    reports = templates()
    began_s = time.time() // 3600 * 3600 - days * DAY_S
    store = Store(state)
    store.read(lambda c: c.execute("PRAGMA synchronous=OFF"))  # to be done today
    longest = most = 0.0
    print("  days       file    runs kept   hours kept     a pass  longest piece")
    for number in range(days):
        piece, whole = lived(store, number, began_s, reports)
        longest, most = max(longest, piece), max(most, whole)
        if number + 1 in {1, 10, 30, 40, 60, 90, 180, 270, days}:
            (hours,) = store.read(lambda c: c.execute("SELECT count(*) FROM rollups").fetchone())
            n_bytes, runs_kept = store.size(), store.read(queries.run_count)
            print(
                f"{number + 1:>6} {n_bytes / MIB:>6.0f} MiB {runs_kept:>12,} {hours:>12,}"
                f" {most:>8.2f} s {longest * 1e3:.0f} ms",
                flush=True,
            )
            longest = most = 0.0
    store.read(lambda c: c.execute("PRAGMA synchronous=FULL"))
    print("\ntelemetry")
    for gpus in (1, 8):
        print(f"  {gpus} GPU{'s' if gpus > 1 else ''}: {telemetry_cost(gpus)}")
    print("\ngpud history, from start to end (budget of the first: 0.5 s)")
    for words in (("--since", "1d"), (), ("--since", "1d", "--probe", "launch", "--json")):
        took = sorted(asked(home, *words) for _ in range(5))
        print(f"  {' '.join(words) or '(the newest 100)':<40} {told(*took[2])}")
    print(f"  {'export':<40} {told(*asked(home, 'export'))}")
    target = home / "copy.db"
    print(f"  {'backup':<40} {told(*asked(home, 'backup', str(target)))}")
    with suppress(OSError):
        target.unlink()
    now_s = began_s + days * DAY_S
    print("\n/api/v1/history?probe=launch, the answer itself")
    snapshot = snapshots.full()
    for label, range_days in (("a day", 1), ("two days", 2), ("30 days", 30), ("a year", 365)):
        query = HistoryParameters(probe="launch", since=now_s - range_days * DAY_S)
        began = time.perf_counter()
        body = Body.of(charts.read(state, chart_query(query, snapshot, now_s=now_s), snapshot))
        took = time.perf_counter() - began
        print(f"  {label:<40} {took * 1e3:.0f} ms, {len(body.packed) / 1e3:.1f} kB on the wire")
    run = Run(reports[0], now_s, "boot")
    alone, beside = writes(store, run), beside_a_reader(state, store, run)
    print("\nwriting one run, on this disk")
    print(f"  {'alone':<40} median {p(alone, 0.5)}, p99 {p(alone, 0.99)}")
    print(f"  {'while another exports':<40} median {p(beside, 0.5)}, p99 {p(beside, 0.99)}")
    began = time.perf_counter()
    store.close()
    Store(state).close()
    print(f"opening it, every page looked at: {time.perf_counter() - began:.1f} s")
    print(f"largest the file was: {(state / FILE).stat().st_size / MIB:.0f} MiB")


if __name__ == "__main__":
    main()
