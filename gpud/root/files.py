"""Files, directories and logs as root makes them: whole, with their mode, never through a link."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from gpud import logs, regular_file
from gpud.regular_file import READABLE

if TYPE_CHECKING:
    from pathlib import Path


def directory(
    path: Path, mode: int, owner: tuple[int, int] | None = None, *, setgid: bool = False
) -> None:
    """Make a directory and its parents, and give the directory itself its mode and owner.

    ``setgid``: what is made in it belongs to its group.
    """
    path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if owner is not None:
            os.fchown(descriptor, *owner)
        os.fchmod(descriptor, mode | stat.S_ISGID if setgid else mode)
    finally:
        os.close(descriptor)


def link(path: Path, target: str) -> None:
    """Make ``path`` a symbolic link to ``target``, in place of whatever file was there."""
    if path.is_symlink() and str(path.readlink()) == target:
        return
    fresh = path.with_name(f".{path.name}.link")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.rename(path)


def handed(path: Path, owner: tuple[int, int] | None) -> None:
    """Make a file in a directory of ours that ``owner`` may write into, and cannot replace.

    By its group: the owner of a file may take a lease on it, and then whoever opens it waits.
    """
    if path.is_symlink():
        path.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, READABLE)
    try:
        if owner is not None:
            os.fchown(descriptor, os.geteuid(), owner[1])
        os.fchmod(descriptor, READABLE if owner is None else READABLE | stat.S_IWGRP)
    finally:
        os.close(descriptor)


def append(path: Path, mode: int = READABLE) -> int:
    """Open a log to append to; the caller closes the descriptor."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    logs.share(descriptor, path)
    return descriptor


def rotate(path: Path, largest: int) -> None:
    """Copy a log aside and empty it: its writer keeps the descriptor and cannot be told.

    Emptied also where there is no room for the copy: a full disk must not keep it full.
    Errors: ``OSError`` when it cannot be emptied.
    """
    try:
        facts = path.stat()
    except FileNotFoundError:
        return
    if facts.st_size <= largest:
        return
    with contextlib.suppress(OSError):
        with path.open("rb") as log:
            log.seek(-largest, os.SEEK_END)  # its writer may have made it any size
            last = log.read(largest)
        mode = stat.S_IMODE(facts.st_mode)
        regular_file.replace(path.with_name(f"{path.name}.1"), last, mode)
    os.truncate(path, 0)


def tail(path: Path, lines: int, at_most: int = 32 * 1024, *, after: int = 0) -> tuple[str, ...]:
    """Give the last lines of a log beyond its first ``after`` bytes, nothing when there are none.

    A log shorter than that has been emptied since; then all of it counts.
    """
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - at_most, after if after <= end else 0))
            return tuple(file.read().decode("utf-8", "replace").splitlines()[-lines:])
    except OSError:
        return ()
