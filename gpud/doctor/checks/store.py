"""Check of the history on disk: its file, its last write, the free space. It is never opened."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from gpud import regular_file
from gpud.core.health import Level
from gpud.doctor.finding import Finding, advice, check, combined, ok, problem, unknown
from gpud.doctor.machine import Machine

FILE = "gpud.db"
MIB = 1024 * 1024
LEAST_FREE, LITTLE_FREE = 100 * MIB, 1024 * MIB
MAGIC = b"SQLite format 3\0"


@check(180, "store")
def store(machine: Machine) -> Finding:
    """File of the history, its size, its last write, and the free space beside it."""
    folder = machine.settings.state_dir
    health = machine.unwell("store")
    fix = (health and health.fix) or "gpud status says more"
    written = problem(str(health.detail), fix) if health else None
    return combined(_file(machine, f"{folder}/{FILE}"), written, _free_space(folder))


def _file(machine: Machine, place: str) -> Finding:
    replace = f"stop gpud, move {place} away, start gpud again"
    try:
        facts = os.lstat(place)
        if not stat.S_ISREG(facts.st_mode):
            return problem(f"{place} is no plain file", replace)
        # The folder belongs to the agent's user, and this may be root: no link is followed.
        begin = regular_file.read(place, len(MAGIC), os.O_NOFOLLOW)
        log = Path(f"{place}-wal")
        written_s = max(facts.st_mtime, log.stat().st_mtime if log.exists() else 0.0)
    except FileNotFoundError:
        return ok(f"{place} is not there yet: gpud makes it when it measures")
    except PermissionError:
        return _unreadable(machine, place)
    except OSError as error:
        return unknown(f"{place} cannot be read: {error.strerror}", "look at its disk")
    if begin and begin != MAGIC:
        return problem(f"{place} is no SQLite database", replace)
    age = _words(max(machine.now.wall_s - written_s, 0.0))
    return ok(f"{place}, {facts.st_size / MIB:.1f} MiB, last write {age} ago")


def _unreadable(machine: Machine, place: str) -> Finding:
    """Pass on what the agent says of a file that is not for everybody."""
    rights = _rights(os.path.dirname(place))  # noqa: PTH120
    evidence = f"{place} is not for you to read, as it should be: its folder is {rights}"
    health, size = machine.health("store"), machine.agent.store
    if health is None or health.level is not Level.OK:
        return unknown(evidence, "`sudo gpud doctor` looks at the file itself")
    words = f": {size.n_bytes / MIB:.1f} MiB, {size.runs:,} runs" if size else ""
    return ok(f"{evidence}; the agent writes to it{words}")


def _rights(folder: str) -> str:
    try:
        facts = os.stat(folder)  # noqa: PTH116
    except OSError as error:
        return f"behind another ({error.strerror})"
    try:
        owner = pwd.getpwuid(facts.st_uid).pw_name
    except KeyError:
        owner = f"uid {facts.st_uid}"
    return f"{owner}'s, mode {stat.S_IMODE(facts.st_mode):04o}"


def _free_space(folder: str) -> Finding | None:
    """Check the space for ordinary users where the folder is, or will be."""
    while folder not in {"", "/"} and not os.path.isdir(folder):  # noqa: PTH112
        folder = os.path.dirname(folder)  # noqa: PTH120
    try:
        facts = os.statvfs(folder or "/")
    except OSError:
        return None
    free = facts.f_bavail * facts.f_frsize
    if free >= LITTLE_FREE:
        return None
    fix = "make room: `docker system df` shows what images and volumes take"
    evidence = f"{free / MIB:.0f} MiB free for {folder}"
    return problem(evidence, fix) if free < LEAST_FREE else advice(evidence, fix)


def _words(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
