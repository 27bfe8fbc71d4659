"""From ``gpud run`` to the first /metrics answer, and what the processes weigh afterwards.

    .venv/bin/python benchmarks/start.py [--trials 10] [--rest 30]

The budgets: 1.5 s to the first answer; agent 64 MB, root 40 MB. Stand-in drivers, no dockerd.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.e2e.program import Program, children_of, program, until
from tests.standins.build import build_libcuda, build_libnvml

USUAL = {
    "telemetry_interval_s": 10,
    "small_interval_s": 60,
    "large_interval_s": 900,
    "jitter_ratio": 0.1,
}


def rss_mb(pid: int) -> float:
    """Resident memory in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_s(pid: int) -> float:
    """CPU time of a process and of its children that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def started(gpud: Program) -> float:
    """Start it and give the seconds to the first answer."""
    begun = time.monotonic()
    gpud.start()
    until(gpud.metrics, "the first answer")
    return time.monotonic() - begun


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--rest", type=float, default=30.0)
    given = parser.parse_args()
    times = []
    with program(schedule=USUAL) as gpud:
        driver = gpud.home / "driver"
        driver.mkdir()
        gpud.settings |= {
            "cuda": {"library": str(build_libcuda(driver))},
            "nvml": {"library": str(build_libnvml(driver))},
        }
        for _ in range(given.trials):
            times.append(started(gpud))
            gpud.stop()
        print(f"first /metrics answer  median {median(times):.2f} s  worst {max(times):.2f} s")
        started(gpud)
        gpud.health("probes", 0)
        time.sleep(given.rest)  # the rest is what is measured
        assert gpud.process is not None
        agent = gpud.agent_pid()
        assert agent is not None
        before, begun = cpu_s(agent) + cpu_s(gpud.process.pid), time.monotonic()
        time.sleep(given.rest)
        used = cpu_s(agent) + cpu_s(gpud.process.pid) - before
        print(f"root   {rss_mb(gpud.process.pid):5.1f} MB")
        print(f"agent  {rss_mb(agent):5.1f} MB")
        for child in children_of(agent):
            print(f"helper {rss_mb(child):5.1f} MB")
        share = 100 * used / (time.monotonic() - begun)
        print(f"CPU of root, agent and ended children: {share:.2f} % of a core")


if __name__ == "__main__":
    main()
