"""Check of the virtual environment: it still fits the Python it was made for."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path, PurePosixPath

from gpud.doctor.finding import Finding, advice, combined, ok, problem
from gpud.doctor.machine import Machine

TITLE = "Python"
ORDER = 170
SUMMARY = "the virtual environment's Python is the one it was made for, and bytecode is there"
TREE = "/opt/gpud"
INSTALL = "run deploy/install again"
_VERSION = re.compile(r"^version(?:_info)? *= *(\d+\.\d+)", re.MULTILINE)
_NAME = re.compile(r"python(\d+\.\d+)$")


def look(machine: Machine) -> Finding:
    """Look at the environment that runs this, and at the installed one."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    config = Path(sys.prefix, "pyvenv.cfg")
    made_for = _VERSION.search(config.read_text(errors="replace")) if config.is_file() else None
    if made_for is not None and made_for[1] != version:
        own = _replaced(sys.prefix, made_for[1], version, "make the environment again")
    else:
        own = ok(f"{version} in {sys.prefix}")
    return combined(own, _installed(machine) if machine.installed else None)


def _replaced(place: str, made_for: str, version: str, fix: str) -> Finding:
    return problem(f"{place} was made for Python {made_for} and finds {version}", fix)


def _installed(machine: Machine) -> Finding | None:
    config = machine.text(f"{TREE}/pyvenv.cfg")
    if config is None:
        return problem(f"{TREE} is no virtual environment", INSTALL)
    program = machine.at(f"{TREE}/bin/python")
    if not os.path.exists(program):  # noqa: PTH110  # Path raises where a component is hidden
        return problem(f"{TREE}/bin/python leads nowhere", INSTALL)
    made_for = _VERSION.search(config)
    version = _NAME.search(PurePosixPath(os.path.realpath(program)).name)
    if made_for is None:
        return None
    if version is not None and version[1] != made_for[1]:
        return _replaced(TREE, made_for[1], version[1], INSTALL)
    package = f"{TREE}/lib/python{made_for[1]}/site-packages/gpud"
    if not machine.names(f"{package}/__pycache__"):
        return advice(
            f"{package} has no bytecode: every start of gpud takes longer",
            f"sudo {TREE}/bin/python -m compileall -q {TREE}/lib",
        )
    return None
