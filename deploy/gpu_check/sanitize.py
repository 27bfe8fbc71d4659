"""gpud's kernels under NVIDIA's compute-sanitizer, where that is on PATH: clean or not."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import toolchain
from .processes import Reference, Refused, finished, reference_run

if TYPE_CHECKING:
    from collections.abc import Sequence

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
SMALL = (
    *(
        option
        for item in ("launch", "triad", "memory_latency", "nbody", "matmul", "tensor", "types")
        for option in ("--only", item)
    ),
    *(
        "--once",
        "--triad-bytes",
        "1048576",
        "--bodies",
        "1024",
        "--matmul",
        "128",
        "--tensor",
        "256",
    ),
)
"""Every kernel once, verified: the tools make a kernel up to a hundred times slower."""
FOUND = 99
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")


@dataclass(frozen=True, slots=True)
class Checked:
    """What one tool says. ``kernels``: the names it launched; ``dirty``: those it complains of.

    A tool that did not get as far as its summary has not run, and says nothing of any kernel.
    """

    tool: str
    ran: bool
    clean: bool
    kernels: tuple[str, ...]
    dirty: tuple[str, ...]
    said: str  # why it did not run, or the first complaint; empty when clean


def available() -> str | None:
    """Find the program."""
    return toolchain.tool("compute-sanitizer")


def sanitized(sanitizer: str, reference: Reference, uuid: str) -> list[Checked]:
    """Run every tool over a program that launches each of gpud's kernels once."""
    reference.contexts.add(len(TOOLS))
    return [_checked(sanitizer, tool, reference.command(uuid, *SMALL)) for tool in TOOLS]


def _checked(sanitizer: str, tool: str, command: Sequence[str]) -> Checked:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        options = [f"--tool={tool}", f"--error-exitcode={FOUND}", f"--log-file={log}"]
        if tool == "memcheck":  # a kernel is looked for in one module after the other
            options.append("--report-api-errors=no")
        try:
            ended = finished([sanitizer, *options, *command], "")
        except Refused as error:
            return Checked(tool, ran=False, clean=False, kernels=(), dirty=(), said=str(error))
        text = log.read_text(errors="replace") if log.exists() else ""
    return outcome(tool, ended.returncode, ended.stdout, ended.stderr, text)


def outcome(tool: str, code: int, stdout: str, stderr: str, log: str) -> Checked:
    """Read a tool's exit code, its log, and what the program under it said."""
    run = reference_run(0 if code == FOUND else code, stdout, stderr)
    kernels = tuple(f"gpud_{name}" for name in run.verified)
    complaints = [line.removeprefix("=========").strip() for line in log.splitlines()]
    complaints = [line for line in complaints if line and not line.startswith("COMPUTE-SANITIZER")]
    summary = SUMMARY.search(log)
    if code == 0 and summary and summary[1] == "0" and run.failure is None:
        return Checked(tool, ran=True, clean=True, kernels=kernels, dirty=(), said="")
    dirty = tuple(sorted(set(re.findall(r"gpud_\w+", log))))
    said = complaints[0] if complaints else run.failure or f"it ended with code {code}"
    ran = summary is not None
    return Checked(tool, ran=ran, clean=False, kernels=kernels, dirty=dirty, said=said)
