"""Submission latency as the launch probe reports it, beside a C loop over the same library.

    .venv/bin/python benchmarks/submit.py [--trials 20] [--launch-ns 5000] [--library PATH]

Each trial runs the C loop, gpud's child and the C loop again, and compares the child with the
mean of the two. Without ``--library`` it is the stand-in libcuda, whose launch spins for
``--launch-ns``; with it, a real driver and its first GPU. The budget is 3 % at 5 us. Exit code 1
when the median is beyond.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.standins.build import build_libcuda, build_submit_loop

CALLS = 4000
BUDGET = 3.0  # percent
CHILD = (sys.executable, "-I", "-m", "gpud.child")


def main() -> int:
    """Print one line a trial, then the median and the worst error."""
    given = _arguments()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        library = given.library or build_libcuda(folder, f"launch_ns {given.launch_ns}")
        loop = build_submit_loop(folder)
        uuid = _child("--inventory", {"cuda_library": str(library)})["devices"][0]["uuid"]
        job = {"probe": "launch", "cuda_library": str(library), "gpu": uuid}
        errors = []
        print("trial    C loop     gpud    error")
        for trial in range(1, given.trials + 1):
            before_s = c_loop(loop, library)
            samples = _child("--run", job)["samples"]
            theirs_s = (before_s + c_loop(loop, library)) / 2
            ours_s = next(each["median"] for each in samples if each["mode"] == "submit")
            errors.append(100 * (ours_s / theirs_s - 1))
            print(f"{trial:5} {theirs_s * 1e9:6.0f} ns {ours_s * 1e9:5.0f} ns {errors[-1]:+6.2f} %")
    sizes = sorted(map(abs, errors))
    middle = median(sizes)
    print(f"|error|: median {middle:.2f} %, worst {sizes[-1]:.2f} %; budget {BUDGET:g} %")
    return 0 if middle <= BUDGET else 1


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
    launch_ns, clock_ns, *_ = map(int, said.split())
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
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--launch-ns", type=int, default=5000, help="of the stand-in")
    parser.add_argument("--library", type=Path, help="a real libcuda.so.1")
    given = parser.parse_args()
    if given.trials < 1:
        parser.error("--trials must be 1 or more")
    return given


if __name__ == "__main__":
    sys.exit(main())
