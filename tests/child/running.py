"""Start real probe children, the way the agent does, and read what they leave behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.standins.build import build_libcuda, build_submit_loop, build_virtual_clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

CHILD = (sys.executable, "-I", "-m", "gpud.child")
GPU = "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000000"
"""What the stand-in says its first device is."""
INTERPRETED = "700 40"
"""Virtual nanoseconds of a call and of a reading of the clock, for a Python program ..."""
COMPILED = "0 20"
"""... and for one in C; ``virtual_clock.c`` has the rest."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A child that has ended. ``code`` is negative where a signal ended it."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one document on stdout: a single line, and nothing beside it."""
        assert self.out.count("\n") == 1, self
        document: dict[str, Any] = json.loads(self.out, parse_constant=_refuse)
        return document

    @property
    def failure(self) -> dict[str, Any]:
        """Why there is no number, after looking that the run says nothing else."""
        report = self.document
        assert self.code == 1, self
        assert report["samples"] == []
        assert "Traceback" not in self.err
        failure: dict[str, Any] = report["failure"]
        return failure

    @property
    def samples(self) -> dict[str, dict[str, Any]]:
        """The figures by mode, of a run that must have gone well."""
        assert self.code == 0, self
        assert self.document["failure"] is None
        return {sample["mode"]: sample for sample in self.document["samples"]}


def fastest_s(sample: dict[str, Any]) -> float:
    """The fastest of a mode's calls as the clock saw it, with what was subtracted put back.

    The stand-in spins for as long as its script says and no less, and whatever else the machine
    does makes a call longer: from below this is exact. The subtracted null call is a median, and
    may have met a slow core where the fastest real call met none.
    """
    least: float = sample["minimum"]
    null: float = sample["null_median"]
    return round(least + null, 12)  # a part of a nanosecond: what a float cannot add up


def ask(
    option: str,
    given: str | bytes,
    timeout_s: float = 30,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Give one child bytes on stdin and wait for its end."""
    content = given.encode() if isinstance(given, str) else given
    ended = subprocess.run(
        [*CHILD, option],
        input=content,
        capture_output=True,
        check=False,
        timeout=timeout_s,
        env=environment,
    )
    return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def run(probe: str, library: Path, *, clock: str | None = None, **job: Any) -> Ended:
    """Run one probe against a library; on the stand-in's first GPU, unless ``job`` names one.

    ``clock``: time is virtual, and this is what a call and a reading of the clock cost in it.
    """
    given = {"probe": probe, "gpu": GPU, "cuda_library": str(library), **job}
    environment = _virtual(library.parent, clock) if clock else None
    return ask("--run", json.dumps(given), environment=environment)


def scripted(
    folder: Path,
    probe: str,
    script: str = "",
    without: Iterable[str] = (),
    *,
    clock: str | None = None,
    **job: Any,
) -> Ended:
    """Run one probe against a stand-in that behaves as ``script`` says."""
    return run(probe, build_libcuda(folder, script, without), clock=clock, **job)


def c_loop_s(library: Path, mode: str, count: int = 300, row: int = 200) -> float:
    """Give what a C program measures in virtual time: the median, for each launch of a row."""
    loop, environment = build_submit_loop(library.parent), _virtual(library.parent, COMPILED)
    command = list(map(str, (loop, library, count, mode, 0, row)))
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    taken_ns, clock_ns = map(int, ended.stdout.split()[:2])
    return (taken_ns - clock_ns) * 1e-9 / (row if mode in {"pipelined", "graph"} else 1)


def _virtual(folder: Path, clock: str) -> dict[str, str]:
    preloaded = str(build_virtual_clock(folder))
    return os.environ | {"LD_PRELOAD": preloaded, "VIRTUAL_CLOCK": clock}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
