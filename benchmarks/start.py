"""From ``gpud run`` to the first /metrics answer, and what the processes weigh afterwards.

    .venv/bin/python benchmarks/start.py [--trials 10] [--rest 30]

Memory is PSS: pages that several processes share count in parts. Beside each process stands its
floor, a process that has only imported the libraries it is made with. Stand-in drivers, no dockerd.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.e2e.program import Program, only, program, until
from tests.standins.build import build_libcuda, build_libnvml

FIRST_S = 0.8
WEIGHTS_MB = {
    "root": (24, "msgspec, structlog, ctypes, subprocess, logging.handlers"),
    "agent": (
        45,
        (
            "msgspec, structlog, asyncio, ssl, sqlite3, uvicorn, h11, starlette.applications,"
            " prometheus_client, apscheduler.schedulers.asyncio, logging.handlers"
        ),
    ),
    "helper": (17, "pynvml, json, argparse"),
}
"""Budget of each process, and the libraries that it cannot be without."""
PROBES = only("cpu_call", "cpu_matmul", "launch", "nbody", "triad")
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


def pss_mb(pid: int) -> float:
    """Memory in MB, shared pages in parts."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))


def floor_mb(modules: str) -> float:
    """Memory of a process that imports modules and nothing else."""
    program = (
        f"import sys; sys.modules['rich'] = None; import {modules}; print(flush=True); input()"
    )
    line = [sys.executable, "-I", "-c", program]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = pss_mb(process.pid)
        process.communicate(b"\n")
    return found


def cpu_s(pid: int) -> float:
    """CPU time of a process and of its children that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def started(gpud: Program) -> tuple[float, float]:
    """Start it and give the seconds to the first answer, and how many the processors worked."""
    begun = time.monotonic()
    gpud.start()
    until(gpud.metrics, "the first answer")
    took_s = time.monotonic() - begun
    agent = gpud.agent_pid()
    assert gpud.process is not None
    assert agent is not None
    return took_s, cpu_s(agent) + cpu_s(gpud.process.pid)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--rest", type=float, default=30.0)
    given = parser.parse_args()
    times = []
    with program(schedule=USUAL, probes=PROBES) as gpud:
        driver = gpud.home / "driver"
        driver.mkdir()
        gpud.settings |= {
            "cuda": {"library": str(build_libcuda(driver))},
            "nvml": {"library": str(build_libnvml(driver))},
        }
        for _ in range(given.trials):
            times.append(started(gpud))
            gpud.stop()
        took_s, work_s = zip(*times, strict=True)
        found = f"median {median(took_s):.2f} s  worst {max(took_s):.2f} s"
        print(f"first /metrics answer  {found}, budget {FIRST_S} s; CPU {median(work_s):.2f} s")
        started(gpud)
        gpud.health("probes", 0)
        time.sleep(given.rest)  # the rest is what is measured
        assert gpud.process is not None
        agent = gpud.agent_pid()
        assert agent is not None
        before, begun = cpu_s(agent) + cpu_s(gpud.process.pid), time.monotonic()
        time.sleep(given.rest)
        used = cpu_s(agent) + cpu_s(gpud.process.pid) - before
        helper = until(gpud.nvml_helper, "the helper of NVML")
        pids = {"root": gpud.process.pid, "agent": agent, "helper": helper}
        for name, (budget, modules) in WEIGHTS_MB.items():
            weight, floor = pss_mb(pids[name]), floor_mb(modules)
            print(f"{name:<6} {weight:5.1f} MB of {budget}; its libraries alone {floor:5.1f} MB")
        share = 100 * used / (time.monotonic() - begun)
        print(f"CPU of root, agent and ended children: {share:.2f} % of a core")


if __name__ == "__main__":
    main()
