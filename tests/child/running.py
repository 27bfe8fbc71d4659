"""Start real probe children, the way the agent does, and read what they leave behind."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CHILD = (sys.executable, "-I", "-m", "gpud.child")
GPU = "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000000"
"""What the stand-in says its first device is."""


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


def ask(option: str, given: str | bytes, timeout_s: float = 30) -> Ended:
    """Give one child bytes on stdin and wait for its end."""
    content = given.encode() if isinstance(given, str) else given
    ended = subprocess.run(
        [*CHILD, option], input=content, capture_output=True, check=False, timeout=timeout_s
    )
    return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def run(probe: str, library: Path, **job: Any) -> Ended:
    """Run one probe against a library; on the stand-in's first GPU, unless ``job`` names one."""
    given = {"probe": probe, "gpu": GPU, "cuda_library": str(library), **job}
    return ask("--run", json.dumps(given))


def scripted(
    folder: Path, probe: str, script: str = "", without: Iterable[str] = (), **job: Any
) -> Ended:
    """Run one probe against a stand-in that behaves as ``script`` says."""
    return run(probe, build_libcuda(folder, script, without), **job)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
