"""CPU that `gpud top` takes: its own process, and what the agent and NVML's helper take more.

    .venv/bin/python benchmarks/top.py [--seconds 60]

A whole ``gpud run`` with stand-in drivers of a desktop and 19 processes on its GPU, in a window of
120 columns and 40 rows. The budget: 3 % of a core for ``gpud top`` itself. Exit code 1 above it.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cost import DESKTOP
from tests.e2e.program import Program, cuda, nvml, only, program
from tests.terminals import Window, window
from tests.waiting import until

BUDGET = 3.0  # percent of a core
WARM_UP_S = 15.0
PROCESSES = ",".join(f"{pid}:{pid << 20}" for pid in range(1, 20))
SCRIPT = f"device.0.compute_pids {PROCESSES}\n"
PROBES = only("cpu_call", "cpu_matmul", "launch", "nbody", "triad")
SCHEDULE = {"telemetry_interval_s": 10.0, "small_interval_s": 60.0, "large_interval_s": 900.0}


def cpu_s(pid: int) -> float:
    """Give the CPU time of a process so far. Source: /proc/PID/stat."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def shares(pids: dict[str, int], seconds: float, shown: Window | None = None) -> dict[str, float]:
    """Give the percent of a core of each process, while the window is read."""
    begun_s, before = time.monotonic(), {name: cpu_s(pid) for name, pid in pids.items()}
    while (left_s := begun_s + seconds - time.monotonic()) > 0:
        if shown is None:
            time.sleep(left_s)
        elif select.select([shown], [], [], left_s)[0]:
            shown.read()
    took_s = time.monotonic() - begun_s
    return {name: 100 * (cpu_s(pid) - before[name]) / took_s for name, pid in pids.items()}


def lasting(gpud: Program) -> dict[str, int]:
    """Give the processes that stay."""
    agent = until(gpud.agent_pid, "the agent")
    return {"agent": agent, "helper of NVML": until(gpud.nvml_helper, "the helper of NVML")}


def main() -> int:
    """Print the shares without and with it."""
    parser = argparse.ArgumentParser(description="what gpud top takes")
    parser.add_argument("--seconds", type=float, default=60.0, help="to watch, each time")
    seconds = parser.parse_args().seconds
    with program(schedule=SCHEDULE, probes=PROBES) as gpud:
        gpud.settings["cuda"] = cuda(gpud.home, DESKTOP)
        gpud.settings["nvml"] = nvml(gpud.home, SCRIPT)
        gpud.start()
        gpud.status_when(lambda d: d["probes"], "figures")
        time.sleep(WARM_UP_S)
        without = shares(lasting(gpud), seconds)
        with window(gpud.command("top"), rows=40, columns=120) as shown:
            begun_s = time.monotonic()
            shown.expect("q leave")
            first_s, start_s = time.monotonic() - begun_s, cpu_s(shown.pid)
            beside = shares({"gpud top": shown.pid, **lasting(gpud)}, seconds, shown)
            shown.send("q")
            size = len(shown.everything) / seconds
    print(f"gpud top: {beside['gpud top']:.2f} % of one core, budget {BUDGET:g} %")
    print(f"  its first screen after {first_s:.2f} s and {start_s:.2f} s of CPU; {size:,.0f} B/s")
    for name, share in without.items():
        print(f"{name}: {share:.2f} % without it, {beside[name]:.2f} % beside it")
    return 0 if beside["gpud top"] <= BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
