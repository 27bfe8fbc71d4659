"""Checks of the installation: files that root runs, the Python environment, the sudo rules."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from gpud.doctor.finding import Finding, advice, check, combined, ok, problem
from gpud.doctor.machine import Machine, writable_by_others

TREE = "/opt/gpud"
ALSO = ("/etc/gpud/gpud.toml", "/etc/sudoers.d")
MOST_FILES = 20_000
MOST_SHOWN = 3
AGAIN = "run deploy/install again"
_VERSION = re.compile(r"^version(?:_info)? *= *(\d+\.\d+)", re.MULTILINE)
_NAME = re.compile(r"python(\d+\.\d+)$")


@check(150, "installation")
def installation(machine: Machine) -> Finding:
    """No component that root runs is writable by anybody else."""
    if not machine.installed:
        return ok(f"a development run in {machine.settings.home}: it is yours, all of it")
    if not machine.exists(TREE):
        return problem(f"{TREE} is not there, and gpud's files begin at /", "run deploy/install")
    paths = dict.fromkeys([*_with_parents(machine, TREE, *ALSO), *_below_tree(machine)])
    writable = [f"{path} ({why})" for path in paths if (why := _not_roots(machine.at(path)))]
    if not writable:
        return ok(f"everything on the path of {TREE} belongs to root alone")
    more = len(writable) - MOST_SHOWN
    shown = ", ".join(writable[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
    fix = f"sudo chown root:root PATH; sudo chmod go-w PATH; better: remove {TREE}, deploy/install"
    return problem(f"not root's alone: {shown}", fix)


def _not_roots(path: Path) -> str | None:
    """Say why another user than root can change a file; None if none can."""
    try:
        facts = path.lstat()
    except OSError:
        return None
    if facts.st_uid != 0:
        return f"owner {facts.st_uid}"
    return None if stat.S_ISLNK(facts.st_mode) else writable_by_others(facts)


def _below_tree(machine: Machine) -> Iterator[str]:
    """Yield every path below the installed tree, and those its links lead to."""
    root = str(machine.at("/")).rstrip("/")
    places = (
        f"{folder}/{name}"
        for folder, folders, files in os.walk(machine.at(TREE))
        for name in (*folders, *files)
    )
    for place in islice(places, MOST_FILES):
        yield place.removeprefix(root)
        if os.path.islink(place):  # noqa: PTH114  # thousands
            yield from _with_parents(machine, os.path.realpath(place).removeprefix(root))


def _with_parents(machine: Machine, *paths: str) -> Iterator[str]:
    for path in paths:
        for part in (*reversed(PurePosixPath(path).parents), path):
            if os.path.lexists(machine.at(str(part))):
                yield str(part)


@check(170, "Python")
def python(machine: Machine) -> Finding:
    """Virtual environment: its Python is the one it was made for, and bytecode is there."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    config = Path(sys.prefix, "pyvenv.cfg")
    made_for = _VERSION.search(config.read_text(errors="replace")) if config.is_file() else None
    own = ok(f"{version} in {sys.prefix}")
    if made_for is not None and made_for[1] != version:
        own = _replaced(sys.prefix, made_for[1], version, "make the environment again")
    return combined(own, _installed_python(machine) if machine.installed else None)


def _replaced(place: str, made_for: str, version: str, fix: str) -> Finding:
    return problem(f"{place} was made for Python {made_for} and finds {version}", fix)


def _installed_python(machine: Machine) -> Finding | None:
    config = machine.text(f"{TREE}/pyvenv.cfg")
    if config is None:
        return problem(f"{TREE} is no virtual environment", AGAIN)
    program = machine.at(f"{TREE}/bin/python")
    if not os.path.exists(program):  # noqa: PTH110  # Path raises where a component is hidden
        return problem(f"{TREE}/bin/python leads nowhere", AGAIN)
    made_for = _VERSION.search(config)
    version = _NAME.search(PurePosixPath(os.path.realpath(program)).name)
    if made_for is None:
        return None
    if version is not None and version[1] != made_for[1]:
        return _replaced(TREE, made_for[1], version[1], AGAIN)
    package = f"{TREE}/lib/python{made_for[1]}/site-packages/gpud"
    if not machine.names(f"{package}/__pycache__"):
        return advice(
            f"{package} has no bytecode: every start of gpud takes longer",
            f"sudo {TREE}/bin/python -m compileall -q {TREE}/lib",
        )
    return None
