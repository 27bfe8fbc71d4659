"""What probes and telemetry cost the machine: GPU and CPU seconds, and of an hour of the schedule.

    .venv/bin/python benchmarks/cost.py [--library PATH]

Without ``--library`` it is the stand-in libcuda, scripted as a laptop's card under WSL2: its GPU
seconds are computed and its CPU seconds hold what the stand-in itself takes. With it, a real driver
and its first GPU. Telemetry is asked of the stand-in NVML. The budgets are 0.1 % of the GPU and,
agent and supervisor included, 0.5 % of one core. Exit code 1 when the GPU's is exceeded.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpud.agent.measure.pace import LARGE_S, SMALL_S
from gpud.core.sections import ScheduleSettings
from tests.standins.build import build_libcuda, build_libnvml

CHILD = (sys.executable, "-I", "-m", "gpud.child")
HELPER = (sys.executable, "-I", "-m", "gpud.agent.telemetry.nvml")
COLLECTIONS = 200
REPEATS = 3
GPU_BUDGET, CPU_BUDGET = 0.1, 0.5  # percent
LAPTOP = """
launch_ns 12000
sync_ns 20000
copy_ns 12000
kernel_ns 1800
flops_per_second 1.5e13
tensor_flops_per_second 6e13
bytes_per_second 4.6e11
host_copy_bytes_per_second 2.2e10
pageable_h2d_bytes_per_second 8e9
pageable_d2h_bytes_per_second 8e9
device.0.sm_count 46
device.0.l2_bytes 37748736
device.0.total_mem 12884901888
device.0.free_mem 11000000000
"""


def main() -> int:
    """Print one line a probe, then the shares of an hour."""
    parser = argparse.ArgumentParser(description="what the probes cost")
    parser.add_argument("--library", type=Path, help="a real libcuda.so.1")
    given = parser.parse_args()
    interval_s = {"small": SMALL_S, "large": LARGE_S}
    rounds = 3600 / interval_s["small"]
    gpu_s = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        library = given.library or build_libcuda(Path(scratch), LAPTOP)
        job = {"cuda_library": str(library), "cache_dir": scratch}
        uuid = served([job])[0][0]["devices"][0]["uuid"]
        specs = {spec["name"]: spec for spec in listed()}
        on = {
            name: {"probe": name, "gpu": uuid if spec["backend"] == "cuda" else None, **job}
            for name, spec in specs.items()
        }
        print(f"{'probe':<12} {'an hour':>8} {'GPU':>9} {'CPU':>9} {'wall':>9}")
        empty_s = served([])[1]
        cpu_s = rounds * empty_s
        first = "launch"  # opens the context in each round
        for name in sorted(specs, key=lambda name: name != first):
            often = 3600 / interval_s[specs[name]["pace"]] / specs[name]["every"]
            before = [] if name == first or specs[name]["backend"] == "cpu" else [on[first]]
            without_s = served(before)[1]
            documents, with_s = served([*before, on[name]])
            report, own_s = documents[-1], max(with_s - without_s, 0.0)
            gpu_s += often * report["gpu_seconds"]
            cpu_s += often * own_s
            took = (report["gpu_seconds"], own_s, report["duration_s"])
            print(f"{name:<12} {often:>8g} " + " ".join(f"{s * 1e3:6.0f} ms" for s in took))
        print(f"{'a process':<12} {rounds:>8g} {'':>9} {empty_s * 1e3:6.0f} ms")
        start_s, each_s = telemetry(build_libnvml(Path(scratch)))
        often = 3600 / ScheduleSettings().telemetry_interval_s
        cpu_s += often * each_s + start_s  # the helper is begun anew each hour
        print(f"{'telemetry':<12} {often:>8g} {'':>9} {each_s * 1e3:6.2f} ms")
    gpu_share, cpu_share = gpu_s / 36, cpu_s / 36
    print(f"GPU {gpu_share:.3f} %, budget {GPU_BUDGET:g} %")
    print(f"CPU {cpu_share:.3f} % of one core, budget {CPU_BUDGET:g} % with agent and supervisor")
    return 0 if gpu_share <= GPU_BUDGET else 1


def listed() -> list[dict[str, Any]]:
    """Ask which probes there are."""
    ended = subprocess.run([*CHILD, "--list"], capture_output=True, text=True, check=True)
    probes: list[dict[str, Any]] = json.loads(ended.stdout)["probes"]
    return probes


def served(jobs: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], float]:
    """Have a child do jobs as in a round, three times; its documents and its fewest CPU seconds."""
    used_s = []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = subprocess.run(
            [*CHILD, "--serve"],
            input="".join(f"{json.dumps(job)}\n" for job in jobs),
            capture_output=True,
            text=True,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if ended.returncode:
            sys.exit(f"{jobs[-1:]}: {ended.stdout}{ended.stderr}")
    return [json.loads(line) for line in ended.stdout.splitlines()], min(used_s)


def telemetry(library: Path) -> tuple[float, float]:
    """CPU seconds of the NVML helper's start with one collection, and of each further one."""
    used_s = []
    for questions in (1, 1 + COLLECTIONS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [*HELPER, str(library)],
            input="{}\n" * questions,
            capture_output=True,
            text=True,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return used_s[0], max(used_s[1] - used_s[0], 0.0) / COLLECTIONS


if __name__ == "__main__":
    sys.exit(main())
