"""What one scrape costs the agent: two GPUs of which everything is known, in both formats.

    .venv/bin/python benchmarks/scrape.py [--scrapes 500] [--hung]

``again`` is what it costs where nothing has changed since the last one. The budget is 10 ms at the
99th percentile for 500 series. Nothing of HTTP is in it, compression is. ``--hung`` scrapes a whole
gpud over HTTP instead, beside an NVML that answers and beside one that hangs, in turns.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpud.agent.serve.metrics.collector import Format, SnapshotCollector
from gpud.agent.telemetry.answers import Answer
from gpud.core.sample import Inventory
from tests import snapshots
from tests.agent.serve.metrics.scraping import OPENMETRICS, settings
from tests.e2e.program import cuda, nvml, only, program
from tests.events import inventory_taken, run_finished, source_answered
from tests.waiting import until

if TYPE_CHECKING:
    from gpud.agent.serve.metrics.collector import Texts
    from gpud.agent.state.snapshot import Snapshot

BUDGET_MS, BUDGET_SERIES = 10, 500
PAUSE_S = 0.1
WALL_S, MONO_S = snapshots.NOW.wall_s, snapshots.NOW.mono_s


def two_gpus() -> Snapshot:
    """Give everything there is to know, of a second card too."""
    other = replace(
        snapshots.DEVICE, index=1, uuid=f"{snapshots.DEVICE.uuid}2", pci_bus_id="0000:02:00.0"
    )
    identity = {"uuid": other.uuid, "pci_bus_id": other.pci_bus_id}
    second = tuple(
        replace(one, gpu=1, value=identity.get(one.field, one.value))
        for one in snapshots.READINGS
        if one.gpu is not None
    )
    snapshot = snapshots.full()
    for event in (
        inventory_taken(Inventory((snapshots.DEVICE, other), "12.8"), WALL_S),
        run_finished(replace(snapshots.launches(), device=other), other.uuid, WALL_S, MONO_S),
        source_answered(
            Answer("nvml", 5, WALL_S, MONO_S, (*snapshots.READINGS, *second), duration_s=0.02),
            WALL_S,
        ),
    ):
        snapshot = event(snapshot)
    return snapshot


def over_http(script: str, count: int) -> list[float]:
    """Scrape a gpud whose NVML follows this script; seconds of each answer, sorted."""
    with program(probes=only("launch", "cpu_call")) as gpud:
        gpud.settings |= {"cuda": cuda(gpud.home), "nvml": nvml(gpud.home, script)}
        gpud.start()
        until(lambda: gpud.value("gpud_probe_runs_total", probe="launch"), "a run")
        connection = http.client.HTTPConnection("127.0.0.1", gpud.port, timeout=20.0)
        took_s = []
        for _ in range(count):
            begun_s = time.monotonic()
            connection.request("GET", "/metrics")
            connection.getresponse().read()
            took_s.append(time.monotonic() - begun_s)
            time.sleep(PAUSE_S)
        connection.close()
    return sorted(took_s)


def beside_hung_nvml(count: int) -> None:
    """Print median, 99th percentile and worst of scrapes beside both kinds of NVML."""
    print(f"{'':<20} {'n':>5} {'p50':>8} {'p99':>8} {'worst':>8}")
    for name, script in (("NVML answers", ""), ("NVML hangs", "hang nvmlDeviceGetPowerUsage 3\n")):
        took_ms = [1e3 * took_s for took_s in over_http(script, count)]
        high = took_ms[len(took_ms) * 99 // 100]
        print(
            f"{name:<20} {len(took_ms):>5} {median(took_ms):>5.1f} ms {high:>5.1f} ms"
            f" {took_ms[-1]:>5.1f} ms"
        )


def main() -> None:
    """Print a line for each format, with and without the names of dcgm-exporter."""
    parser = argparse.ArgumentParser(description="what a scrape costs")
    parser.add_argument("--scrapes", type=int, default=500)
    parser.add_argument("--hung", action="store_true")
    given = parser.parse_args()
    if given.hung:
        beside_hung_nvml(given.scrapes)
        return
    snapshot = two_gpus()
    ways: dict[str, tuple[SnapshotCollector, str, Texts | None]] = {}
    for name, accept in (("text", ""), ("OpenMetrics", OPENMETRICS)):
        for beside, chosen in (("", settings()), (" and dcgm", settings("dcgm"))):
            collector = SnapshotCollector(lambda: snapshot, chosen, lambda: snapshots.NOW, "laptop")
            ways[f"{name}{beside}"] = (collector, accept, None)
            ways[f"{name}{beside}, again"] = (collector, accept, {})
    times_ms: dict[str, list[float]] = {name: [] for name in ways}
    bodies = dict[str, bytes]()
    for _ in range(given.scrapes):
        for name, (collector, accept, texts) in ways.items():  # in turns: other load hits all alike
            begun = time.perf_counter()
            bodies[name] = Format.of(accept).encoded(collector, texts)
            gzip.compress(bodies[name], compresslevel=1)
            times_ms[name].append((time.perf_counter() - begun) * 1e3)
    print(f"{'':<29} {'series':>6} {'KB':>4} {'p50':>8} {'p99':>8} {'to text':>8}")
    for name, body in bodies.items():
        middle, high = median(times_ms[name]), sorted(times_ms[name])[given.scrapes * 99 // 100]
        series = sum(not line.startswith(b"#") for line in body.splitlines())
        print(
            f"{name:<29} {series:>6} {len(body) / 1e3:>4.0f} {middle:>5.2f} ms {high:>5.2f} ms"
            f" {middle / median(times_ms['text']):>8.2f}"
        )
    print(f"budget {BUDGET_MS} ms at the 99th percentile for {BUDGET_SERIES} series")


if __name__ == "__main__":
    main()
