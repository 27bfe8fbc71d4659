"""Whether root runs anything here that somebody else could write."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from gpud.doctor.finding import Finding, ok, problem

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    loose: dict[str, str] = {}
    for path in _run_by_root(machine):
        why = trouble(machine.at(path))
        if why is not None:
            loose[path] = why
    return judged(loose)


def judged(loose: dict[str, str]) -> Finding:
    """Judge the paths that somebody else can write, each with why."""
    if not loose:
        return ok(f"everything on the path of {TREE} belongs to root alone")
    shown = [f"{path} ({why})" for path, why in list(loose.items())[:MOST_SHOWN]]
    more = len(loose) - len(shown)
    return problem(
        f"not root's alone: {', '.join(shown)}{f' and {more} more' if more else ''}",
        f"sudo chown root:root PATH; sudo chmod go-w PATH; better: remove {TREE}, deploy/install",
    )


def trouble(path: Path) -> str | None:
    """Say why somebody else than root can change what lies here; None when nobody can."""
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


def _run_by_root(machine: Machine) -> Iterator[str]:
    seen: set[str] = set()
    for start in (TREE, *ALSO):
        yield from _with_parents(machine, start, seen)
    count = 0
    root = str(machine.at("/")).rstrip("/")
    for folder, folders, files in os.walk(machine.at(TREE)):
        below = folder.removeprefix(root)
        for name in (*folders, *files):
            count += 1
            if count > MOST_FILES:
                return
            yield f"{below}/{name}"
            if os.path.islink(os.path.join(folder, name)):  # noqa: PTH114, PTH118  # thousands
                target = os.path.realpath(f"{folder}/{name}").removeprefix(root)
                yield from _with_parents(machine, target, seen)


def _with_parents(machine: Machine, path: str, seen: set[str]) -> Iterator[str]:
    for part in (*reversed(PurePosixPath(path).parents), PurePosixPath(path)):
        shown = str(part)
        if shown not in seen and os.path.lexists(machine.at(shown)):
            seen.add(shown)
            yield shown
