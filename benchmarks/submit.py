"""Submission latency as the launch probe reports it, beside a C loop over the same library.

    .venv/bin/python benchmarks/submit.py [--trials 15] [--launch-ns 5000] [--library PATH]
    .venv/bin/python benchmarks/submit.py --sweep [--trials 15]

Each trial runs the C loop, gpud's child and the C loop again, and compares the child with the
mean of the two. Without ``--library`` it is the stand-in libcuda, whose launch spins for
``--launch-ns``; with it, a real driver and its first GPU. ``--sweep`` goes through launches of
0.5 to 100 us, two kinds of launch and a heavy tail, each on a quiet machine and with one core
busy. The budget is 3 %. Exit code 1 when a median is beyond.
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
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.standins.build import build_libcuda, build_submit_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

CALLS = 4000
BUDGET = 3.0  # percent
CHILD = (sys.executable, "-I", "-m", "gpud.child")
SWEEP = {
    **{f"{ns / 1000:g} us": f"launch_ns {ns}" for ns in (500, 2000, 5000, 20000, 100000)},
    "5 us, 30 % 12 us": "launch_ns 5000\nlaunch_ns_second 12000 0.3",
    "5 us, heavy tail": "launch_ns 5000\nlaunch_tail_ns 20000 0.3",
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
        for trial, (theirs_s, ours_s) in enumerate(_trials(loop, library, given.trials), 1):
            errors.append(100 * (ours_s / theirs_s - 1))
            print(f"{trial:5} {theirs_s * 1e9:6.0f} ns {ours_s * 1e9:5.0f} ns {errors[-1]:+6.2f} %")
    sizes = sorted(map(abs, errors))
    middle = median(sizes)
    print(f"|error|: median {middle:.2f} %, worst {sizes[-1]:.2f} %; budget {BUDGET:g} %")
    return 0 if middle <= BUDGET else 1


def _sweep(folder: Path, loop: Path, trials: int) -> int:
    print("| launch | machine | C loop | gpud | error: signed median | median | worst |")
    print("|---|---|---|---|---|---|---|")
    beyond = False
    for name, script in SWEEP.items():
        library = build_libcuda(folder, script)
        for busy in (False, True):
            with _busy(max(os.sched_getaffinity(0)) if busy else None):
                pairs = list(_trials(loop, library, trials))
            errors = [100 * (ours_s / theirs_s - 1) for theirs_s, ours_s in pairs]
            sizes = sorted(map(abs, errors))
            theirs_s, ours_s = (median(side) for side in zip(*pairs, strict=True))
            beyond = beyond or median(sizes) > BUDGET
            machine = "one core busy" if busy else "quiet"
            figures = f"{theirs_s * 1e6:.3f} us | {ours_s * 1e6:.3f} us | {median(errors):+.2f} %"
            print(f"| {name} | {machine} | {figures} | {median(sizes):.2f} % | {sizes[-1]:.2f} % |")
    return 1 if beyond else 0


def _trials(loop: Path, library: Path, count: int) -> Iterator[tuple[float, float]]:
    """Yield seconds of the C loop and of the launch probe."""
    uuid = _child("--inventory", {"cuda_library": str(library)})["devices"][0]["uuid"]
    job = {"probe": "launch", "cuda_library": str(library), "gpu": uuid}
    for _ in range(count):
        before_s = c_loop(loop, library)
        samples = _child("--run", job)["samples"]
        theirs_s = (before_s + c_loop(loop, library)) / 2
        yield theirs_s, next(each["median"] for each in samples if each["mode"] == "submit")


@contextmanager
def _busy(core: int | None) -> Iterator[None]:
    """Keep one core busy, or none."""
    if core is None:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", SPINNING, str(core)]) as process:
        yield
        process.kill()


def c_loop(program: Path, library: Path) -> float:
    """Give the median launch of the C loop less its clock pair, in seconds."""
    # As the child sets them: one index is one GPU, and the first launch does not load lazily.
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_MODULE_LOADING": "EAGER"}
    said = subprocess.run(
        [program, library, str(CALLS)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    ).stdout
    launch_ns, clock_ns = map(int, said.split()[:2])
    return (launch_ns - clock_ns) * 1e-9


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
