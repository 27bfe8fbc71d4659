"""Check of the installation: nobody but root can write what root runs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from gpud.doctor.finding import Finding, ok, problem
from gpud.doctor.machine import Machine

TITLE = "installation"
ORDER = 150
SUMMARY = "no component that root runs is writable by anybody else"
TREE = "/opt/gpud"
ALSO = ("/etc/gpud/gpud.toml", "/etc/sudoers.d")
MOST_FILES = 20_000
MOST_SHOWN = 3


def look(machine: Machine) -> Finding:
    """Walk the installed tree, everything above it and everything its links lead to."""
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
    """Say why somebody else than root can change a file; None if nobody can."""
    try:
        facts = path.lstat()
    except OSError:
        return None
    if facts.st_uid != 0:
        return f"owner {facts.st_uid}"
    if stat.S_ISLNK(facts.st_mode):
        return None
    sticky = stat.S_ISDIR(facts.st_mode) and facts.st_mode & stat.S_ISVTX
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
        return f"mode {stat.S_IMODE(facts.st_mode):04o}"
    return None


def _below_tree(machine: Machine) -> Iterator[str]:
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
