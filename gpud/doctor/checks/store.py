"""The history on disk: there, fed, and with room to grow. No SQLite ever opens it."""

from __future__ import annotations

import os
import pwd
import stat
from typing import TYPE_CHECKING, Any

from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.doctor.machine import Machine

TITLE = "store"
ORDER = 180
SUMMARY = "the history's file, its size, its last write, and the free space beside it"
FILE = "gpud.db"
MIB = 1024 * 1024
LEAST_FREE, LITTLE_FREE = 100 * MIB, 1024 * MIB
MAGIC = b"SQLite format 3\0"


def look(machine: Machine) -> Finding:
    """Look at the files from outside, and take the agent's word for what goes into them."""
    folder = machine.settings.state_dir
    place = f"{folder}/{FILE}"
    try:
        if not stat.S_ISREG(os.lstat(place).st_mode):
            return problem(
                f"{place} is no plain file", f"stop gpud, move {place} away, start gpud again"
            )
        with open(place, "rb", opener=_carefully) as file:  # opener
            facts = os.fstat(file.fileno())
            begins = file.read(len(MAGIC))
        written_s = facts.st_mtime
        if os.path.exists(f"{place}-wal"):  # noqa: PTH110
            written_s = max(written_s, os.stat(f"{place}-wal").st_mtime)  # noqa: PTH116
        size: int | None = facts.st_size
    except FileNotFoundError:
        size, begins, written_s = None, b"", 0.0
    except PermissionError:
        seen = withheld(place, rights(folder), machine.health("store"), machine.agent.get("store"))
        return combined(seen, told(machine.health("store")), room(folder, free(folder)))
    except OSError as error:
        return combined(
            unknown(f"{place} cannot be read: {error.strerror}", "look at its disk"),
            told(machine.health("store")),
        )
    seen = judged(place, size, begins, age_s=max(machine.now.wall_s - written_s, 0.0))
    return combined(seen, told(machine.health("store")), room(folder, free(folder)))


def judged(place: str, size: int | None, begins: bytes, *, age_s: float) -> Finding:
    """Judge the file by its first bytes. Units: bytes, seconds."""
    if size is None:
        return ok(f"{place} is not there yet: gpud makes it when it measures")
    if size and begins != MAGIC:
        return problem(
            f"{place} is no SQLite database", f"stop gpud, move {place} away, start gpud again"
        )
    return ok(f"{place}, {size / MIB:.1f} MiB, last write {_ago(age_s)} ago")


def withheld(place: str, whose: str, health: Mapping[str, Any], size: object) -> Finding:
    """Say what is known of a file that is not for everybody: the agent's word is enough."""
    theirs = f"{place} is not for you to read, as it should be: its folder is {whose}"
    if health.get("level") != 0:
        return unknown(theirs, "`sudo gpud doctor` looks at the file itself")
    if not isinstance(size, dict):
        return ok(f"{theirs}; the agent writes to it")
    words = f"{size['n_bytes'] / MIB:.1f} MiB, {size['runs']:,} runs"
    return ok(f"{theirs}; the agent writes to it: {words}")


def rights(folder: str) -> str:
    """Say whose a folder is and who may enter it: "gpud's, mode 0750"."""
    try:
        facts = os.stat(folder)  # noqa: PTH116
    except OSError as error:
        return f"behind another ({error.strerror})"
    try:
        owner = pwd.getpwuid(facts.st_uid).pw_name
    except KeyError:
        owner = f"uid {facts.st_uid}"
    return f"{owner}'s, mode {stat.S_IMODE(facts.st_mode):04o}"


def told(health: Mapping[str, Any]) -> Finding | None:
    """Pass on what the agent says of its own writing."""
    if not health.get("level"):
        return None
    return problem(str(health.get("detail")), str(health.get("fix") or "gpud status says more"))


def room(folder: str, left: int | None) -> Finding | None:
    """Judge the free space of the file system. Units: bytes."""
    if left is None or left >= LITTLE_FREE:
        return None
    words = f"{left / MIB:.0f} MiB free for {folder}"
    fix = "make room: `docker system df` shows what images and volumes take"
    return problem(words, fix) if left < LEAST_FREE else advice(words, fix)


def free(folder: str) -> int | None:
    """Give the bytes left for ordinary users where the folder is, or will be."""
    while folder not in {"", "/"} and not os.path.isdir(folder):  # noqa: PTH112
        folder = os.path.dirname(folder)  # noqa: PTH120
    try:
        facts = os.statvfs(folder or "/")
    except OSError:
        return None
    return facts.f_bavail * facts.f_frsize


def _carefully(path: str, flags: int) -> int:
    """Open no link: the folder is the agent's user's, and this may be root."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW)


def _ago(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
