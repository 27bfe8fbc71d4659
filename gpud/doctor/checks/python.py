"""Whether the virtual environment still fits the Python it was made for."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from gpud.doctor.finding import Finding, advice, combined, ok, problem

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = "Python"
ORDER = 170
SUMMARY = "the virtual environment's Python is the one it was made for, and bytecode is there"
TREE = "/opt/gpud"
_VERSION = re.compile(r"^version(?:_info)? *= *(\d+\.\d+)", re.MULTILINE)
_NAME = re.compile(r"python(\d+\.\d+)$")


def look(machine: Machine) -> Finding:
    """Look at the installed environment, and at the one that runs this."""
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    own = Path(sys.prefix, "pyvenv.cfg")
    made = _made(own.read_text(errors="replace")) if own.is_file() else None
    shown = f"{mine} in {sys.prefix}"
    found = judged(sys.prefix, made, mine, "make the environment again") or ok(shown)
    if not machine.installed:
        return found
    return combined(found, _installed(machine))


def judged(place: str, made: str | None, runs: str | None, fix: str) -> Finding | None:
    """Judge two minor versions; an update of the distribution moves one and not the other."""
    if made is None or runs is None or made == runs:
        return None
    return problem(f"{place} was made for Python {made} and finds {runs}", fix)


def _installed(machine: Machine) -> Finding | None:
    text = machine.text(f"{TREE}/pyvenv.cfg")
    if text is None:
        return problem(f"{TREE} is no virtual environment", "run deploy/install again")
    program = machine.at(f"{TREE}/bin/python")
    if not os.path.exists(program):  # noqa: PTH110  # Path raises where a component is hidden
        return problem(f"{TREE}/bin/python leads nowhere", "run deploy/install again")
    named = _NAME.search(PurePosixPath(os.path.realpath(program)).name)
    made, runs = _made(text), named[1] if named else None
    if wrong := judged(TREE, made, runs, "run deploy/install again"):
        return wrong
    package = f"{TREE}/lib/python{made}/site-packages/gpud"
    if made is not None and not machine.names(f"{package}/__pycache__"):
        return advice(
            f"{package} has no bytecode: every start of gpud takes longer",
            f"sudo {TREE}/bin/python -m compileall -q {TREE}/lib",
        )
    return None


def _made(text: str) -> str | None:
    found = _VERSION.search(text)
    return found[1] if found else None
