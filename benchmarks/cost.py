"""What gpud costs a machine: GPU and CPU time of each probe, and CPU of all its processes.

    .venv/bin/python benchmarks/cost.py [--minutes 5] [--library PATH]

For two machines side by side, plain Linux and one that looks like WSL2, ``gpud run`` goes on with
its defaults in a home of its own, and after a warm-up its processes are watched for some minutes.
Children of the schedule are measured one probe at a time and counted as often as the rounds of a
day have them, because the costly ones come once an hour and take turns. The row "each round" is the
CPU of a whole child with cpu_call and launch. Drivers are stand-ins: their GPU seconds are
computed, and CPU seconds hold what a driver takes for a call, without what it takes to compute what
a GPU would, and without waits for it. With ``--library`` the children have a real driver and its
first GPU. The budgets are 0.1 % of the GPU and 0.5 % of one core; exit code 1 above either.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpud.agent.measure import pace
from gpud.agent.measure.gpu_contexts import GpuContexts
from gpud.core.sample import Backend, ProbeSpec
from gpud.core.sections import ScheduleSettings
from tests.e2e.program import Program, cuda, nvml, program
from tests.standins.build import build_libcuda
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

CHILD = (sys.executable, "-I", "-m", "gpud.child")
REPEATS, ATTEMPTS = 3, 9
FIRST_ROUND_S, WARM_UP_S = 600.0, 30.0
"""After the first round, which has every probe."""
GPU_BUDGET, CPU_BUDGET = 0.1, 0.5  # percent
CARD = """
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
LAPTOP = f"launch_ns 12000\nsync_ns 20000\ncopy_ns 12000{CARD}"
DESKTOP = f"launch_ns 2500\nsync_ns 5000\ncopy_ns 4000{CARD}"


class Machine(NamedTuple):
    """A machine to look like: its kernel's release, empty for this one, and its driver's script."""

    name: str
    kernel: str
    script: str


MACHINES = (
    Machine("plain Linux", "", DESKTOP),
    Machine("WSL2", "5.15.167.4-microsoft-standard-WSL2", LAPTOP),
)


def main() -> int:
    """Print the children and the processes of both machines."""
    parser = argparse.ArgumentParser(description="what gpud costs")
    parser.add_argument("--minutes", type=float, default=5.0, help="to watch the processes")
    parser.add_argument("--library", type=Path, help="a real libcuda.so.1")
    given = parser.parse_args()
    shares = watched(60 * given.minutes)
    for machine, parts in shares.items():
        print(f"{machine.name}: {worded(parts)}", flush=True)
    good = True
    for machine in MACHINES:
        gpu, children = of_children(machine, given.library)
        parts = {**shares[machine], "children": children}
        cpu = sum(parts.values())
        print(f"{machine.name}: GPU {gpu:.3f} %, budget {GPU_BUDGET:g} %")
        print(f"{machine.name}: CPU {cpu:.3f} % of one core, budget {CPU_BUDGET:g} %")
        print(f"{machine.name}: {worded(parts)}\n", flush=True)
        good = good and gpu <= GPU_BUDGET and cpu <= CPU_BUDGET
    return 0 if good else 1


def worded(parts: dict[str, float]) -> str:
    """Write the percent of a core of each part."""
    return ", ".join(f"{name} {share:.3f}" for name, share in parts.items())


def watched(seconds: float) -> dict[Machine, dict[str, float]]:
    """Run gpud on all machines at once; give the percent of a core of its lasting processes."""
    with ExitStack() as stack:
        running = {machine: stack.enter_context(home(machine)) for machine in MACHINES}
        for gpud in running.values():
            gpud.start()
        for gpud in running.values():
            for spec in listed():
                until(partial(gpud.runs, spec["name"]), f"a run of {spec['name']}", FIRST_ROUND_S)
        time.sleep(WARM_UP_S)
        before = {machine: processes_s(gpud) for machine, gpud in running.items()}
        time.sleep(seconds)
        after = {machine: processes_s(gpud) for machine, gpud in running.items()}
    return {
        machine: {
            name: 100 * (used_s - before[machine][name]) / seconds for name, used_s in now.items()
        }
        for machine, now in after.items()
    }


@contextmanager
def home(machine: Machine) -> Iterator[Program]:
    """Make a home with the defaults, without dockerd, on a machine that has been up for long."""
    with program(schedule={}, probes={}) as gpud:
        if machine.kernel:
            tree = gpud.home / "sysroot"
            (tree / "proc/sys/kernel").mkdir(parents=True)
            (tree / "proc/sys/kernel/osrelease").write_text(f"{machine.kernel}\n")
            (tree / "proc/uptime").write_text("5000.00 1.00\n")
            gpud.sysroot = str(tree)
        gpud.settings |= {"cuda": cuda(gpud.home, machine.script), "nvml": nvml(gpud.home)}
        yield gpud


def processes_s(gpud: Program) -> dict[str, float]:
    """Return the CPU seconds so far of the agent, the helper of NVML and the supervisor."""
    pids = {"agent": gpud.agent_pid(), "NVML": gpud.nvml_helper()}
    pids["root"] = gpud.process and gpud.process.pid
    used_s = {}
    for name, pid in pids.items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used_s[name] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return used_s


def of_children(machine: Machine, library: Path | None) -> tuple[float, float]:
    """Print what each probe costs; return the percent of the GPU and of a core of all."""
    specs = [msgspec.convert(spec, ProbeSpec) for spec in listed()]
    with tempfile.TemporaryDirectory() as scratch:
        ledger = Path(scratch, "ledger")
        ledger.touch()
        script = f"{machine.script}ledger {ledger}\n"
        library = library or build_libcuda(Path(scratch), script)
        served = partial(_served, ledger)
        job = {"cuda_library": str(library), "cache_dir": scratch, "budget_s": 60}
        uuid = served([job])[0][0]["devices"][0]["uuid"]
        base = [{"probe": "cpu_call", **job}, {"probe": "launch", "gpu": uuid, **job}]
        print(f"{machine.name:<14} {'an hour':>8} {'GPU':>9} {'CPU':>9}", flush=True)
        documents, round_s = served(base)
        costs = {"cpu_call": (0.0, round_s), "launch": (documents[-1]["gpu_seconds"], 0.0)}
        for spec in specs:
            if spec.name not in costs:  # it comes after those of each round
                asked = {"probe": spec.name, "gpu": uuid if spec.backend is Backend.CUDA else None}
                documents, with_s = served([*base, {**asked, **job}])
                costs[spec.name] = documents[-1]["gpu_seconds"], with_s - round_s
        plan = pace.plan(ScheduleSettings(), wsl2=bool(machine.kernel), on_battery="seldom")
        gpu_costs_s = {name: gpu_s for name, (gpu_s, _) in costs.items()}
        often = an_hour(plan, specs, gpu_costs_s, Path(scratch))
        row("an empty child", often["cpu_call"], 0.0, served([])[1])
    for name, (gpu_s, cpu_s) in costs.items():
        row("each round" if name == "cpu_call" else name, often[name], gpu_s, cpu_s)
    gpu, cpu = (sum(often[name] * cost[i] for name, cost in costs.items()) / 36 for i in range(2))
    return gpu, cpu


def an_hour(
    plan: pace.PacePlan, specs: list[ProbeSpec], costs_s: dict[str, float], folder: Path
) -> dict[str, float]:
    """Play the rounds of a day after those of a young boot; return how often an hour has each."""
    rounds = pace.Rounds(plan, GpuContexts(folder, "boot", plan.budget))
    runs, at_s = Counter[str](), 0.0
    while at_s < 25 * 3600:
        turn = rounds.begin(specs, at_s, costs_s, on_battery=False)
        for spec in turn.probes:
            rounds.ran(spec)
        if at_s >= 3600:
            runs.update(spec.name for spec in turn.probes)
        at_s += rounds.interval_s()
    return {spec.name: runs[spec.name] / 24 for spec in specs}


def row(name: str, often: float, gpu_s: float, cpu_s: float) -> None:
    """Print a line of the table of children."""
    print(f"{name:<14} {often:>8.2f} {gpu_s * 1e3:6.0f} ms {cpu_s * 1e3:6.0f} ms", flush=True)


def listed() -> list[dict[str, Any]]:
    """Ask which probes there are on a machine with one GPU."""
    ended = subprocess.run([*CHILD, "--list"], capture_output=True, text=True, check=True)
    probes: list[dict[str, Any]] = json.loads(ended.stdout)["probes"]
    return [probe for probe in probes if not probe.get("peer")]


def _served(ledger: Path, jobs: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], float]:
    """Have a child do jobs as in a round, some times; its documents and its fewest CPU seconds.

    Runs that a busy machine has cut short do not count, nor does the time in which the stand-in
    computes what a GPU would.
    """
    used_s: list[float] = []
    for _ in range(ATTEMPTS):
        ledger.write_text("")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = subprocess.run(
            [*CHILD, "--serve"],
            input="".join(f"{json.dumps(job)}\n" for job in jobs),
            capture_output=True,
            text=True,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if ended.returncode == 0:
            good, contexts = ended.stdout, map(json.loads, ledger.read_text().splitlines())
            computed_s = sum(context["compute_seconds"] for context in contexts)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            used_s.append(used - computed_s)
        if len(used_s) == REPEATS:
            break
    if not used_s:
        sys.exit(f"{jobs[-1:]}: {ended.stdout}{ended.stderr}")
    return [json.loads(line) for line in good.splitlines()], min(used_s)


if __name__ == "__main__":
    sys.exit(main())
