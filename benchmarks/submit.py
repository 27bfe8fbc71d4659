"""Latencies as the launch probe reports them, beside a C loop over the same library, in real time.

    .venv/bin/python benchmarks/submit.py [--trials 15] [--launch-ns 5000] [--library PATH]
    .venv/bin/python benchmarks/submit.py --sweep [--trials 15]

Each trial runs the C loop, gpud's child and the C loop again, and compares the child with the
mean of the two. Without ``--library`` it is the stand-in libcuda, whose launch spins for
``--launch-ns``; with it, a real driver and its first GPU. ``--sweep`` goes through launches of
0.5 to 100 us, two kinds of launch and a heavy tail, and through round trips, rows and graphs where
the host and where the GPU is the slower side, each on a quiet machine and with one core busy; of
submissions below 10 us it gives the net p99 beside the C loop's too. The budget is 3 %. Exit code 1
when a median is beyond.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.standins.build import build_libcuda, build_submit_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTS = {"submit": 4000, "roundtrip": 300, "pipelined": 5, "graph": 5}
ROW = 200
BUDGET = 3.0  # percent
CHILD = (sys.executable, "-I", "-m", "gpud.child")
WAITING = "launch_ns 5000\nsync_ns 12000\ngraph_launch_ns 60000\ngraph_node_ns 1500"
SWEEP = {
    **{
        f"{ns / 1000:g} us": ("submit", f"launch_ns {ns}")
        for ns in (500, 2000, 5000, 20000, 100000)
    },
    "5 us, 30 % 12 us": ("submit", "launch_ns 5000\nlaunch_ns_second 12000 0.3"),
    "5 us, heavy tail": ("submit", "launch_ns 5000\nlaunch_tail_ns 20000 0.3"),
    "5 us, GPU 1.5": ("roundtrip", WAITING),
    "5 us, GPU 1.5, a row": ("pipelined", WAITING),
    "a graph, GPU 1.5": ("graph", WAITING),
    **{
        f"{host / 1000:g} us, GPU {gpu / 1000:g}, a row": (
            "pipelined",
            f"launch_ns {host}\nkernel_ns {gpu}",
        )
        for host, gpu in ((2000, 1000), (2000, 2100), (1000, 1600), (2000, 3000), (2000, 5000))
    },
}
SPINNING = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


def main() -> int:
    """Print one line a trial, or one a launch cost."""
    given = _arguments()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        loop = build_submit_loop(folder)
        if given.sweep:
            return _sweep(folder, loop, given.trials)
        library = given.library or build_libcuda(folder, f"launch_ns {given.launch_ns}")
        print("trial    C loop     gpud    error")
        errors = []
        trials = _trials(loop, library, "submit", given.trials)
        for trial, (theirs_s, ours_s, _) in enumerate(trials, 1):
            errors.append(100 * (ours_s / theirs_s - 1))
            print(f"{trial:5} {theirs_s * 1e9:6.0f} ns {ours_s * 1e9:5.0f} ns {errors[-1]:+6.2f} %")
    sizes = sorted(map(abs, errors))
    middle = median(sizes)
    print(f"|error|: median {middle:.2f} %, worst {sizes[-1]:.2f} %; budget {BUDGET:g} %")
    return 0 if middle <= BUDGET else 1


def _sweep(folder: Path, loop: Path, trials: int) -> int:
    print("| launch | machine | C loop | gpud | error: signed median | median | worst | net p99 |")
    print("|---|---|---|---|---|---|---|---|")
    beyond = False
    for name, (mode, script) in SWEEP.items():
        library = build_libcuda(folder, f"{script}\ntime_line 1")
        for busy in (False, True):
            with _busy(max(os.sched_getaffinity(0)) if busy else None):
                found = list(_trials(loop, library, mode, trials))
            errors = [100 * (ours_s / theirs_s - 1) for theirs_s, ours_s, _ in found]
            tails = [100 * (tail - 1) for *_, tail in found if tail is not None]
            sizes = sorted(map(abs, errors))
            theirs_s = median(each[0] for each in found)
            ours_s = median(each[1] for each in found)
            beyond = beyond or median(sizes) > BUDGET
            machine = "one core busy" if busy else "quiet"
            figures = f"{theirs_s * 1e6:.3f} us | {ours_s * 1e6:.3f} us | {median(errors):+.2f} %"
            tail = f"{median(tails):+.1f} %" if tails else ""
            sides = f"{median(sizes):.2f} % | {sizes[-1]:.2f} % | {tail}"
            print(f"| {name} | {machine} | {figures} | {sides} |", flush=True)
    return 1 if beyond else 0


def _trials(
    loop: Path, library: Path, mode: str, count: int
) -> Iterator[tuple[float, float, float | None]]:
    """Yield seconds of the C loop and of the launch probe, and the ratio of their p99."""
    uuid = _child("--serve", {"cuda_library": str(library)})["devices"][0]["uuid"]
    job = {"probe": "launch", "cuda_library": str(library), "gpu": uuid}
    for _ in range(count):
        before = c_loop(loop, library, mode)
        samples = _child("--serve", job)["samples"]
        theirs_s, tail_s = map(mean, zip(before, c_loop(loop, library, mode), strict=True))
        ours = next(each for each in samples if each["mode"] == mode)
        net_s = ours["p99_net"]
        yield theirs_s, ours["median"], None if net_s is None else net_s / tail_s


@contextmanager
def _busy(core: int | None) -> Iterator[None]:
    """Keep one core busy, or none."""
    if core is None:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", SPINNING, str(core)]) as process:
        yield
        process.kill()


def c_loop(program: Path, library: Path, mode: str) -> tuple[float, float]:
    """Give median and p99 of the C loop's launches less its clock pair, in seconds."""
    # As the child sets them: one index is one GPU, and the first launch does not load lazily.
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_MODULE_LOADING": "EAGER"}
    said = subprocess.run(
        [program, library, str(COUNTS[mode]), mode, "0", str(ROW)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    ).stdout
    launch_ns, clock_ns, _, _, tail_ns = map(int, said.split())
    scale = 1e-9 / (ROW if mode in {"pipelined", "graph"} else 1)
    return (launch_ns - clock_ns) * scale, (tail_ns - clock_ns) * scale


def _child(option: str, job: dict[str, str]) -> dict[str, Any]:
    ended = subprocess.run(
        [*CHILD, option], input=json.dumps(job), capture_output=True, text=True, check=False
    )
    if ended.returncode:
        sys.exit(f"{option}: {ended.stdout}{ended.stderr}")
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="submission latency beside a C loop")
    parser.add_argument("--trials", type=int, default=15)
    parser.add_argument("--launch-ns", type=int, default=5000, help="of the stand-in")
    parser.add_argument("--library", type=Path, help="a real libcuda.so.1")
    parser.add_argument("--sweep", action="store_true", help="of the stand-in's launch costs")
    given = parser.parse_args()
    if given.trials < 1:
        parser.error("--trials must be 1 or more")
    return given


if __name__ == "__main__":
    sys.exit(main())
