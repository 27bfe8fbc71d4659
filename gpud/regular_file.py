"""Regular files, read without waiting and replaced as a whole.

A pipe or a device in a file's place is an error.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

LARGEST = 64 << 10
"""Bytes that ``text`` reads, unless the caller says otherwise."""
READABLE = 0o644
"""Mode of a file that everybody may read."""


class NotRegularError(OSError):
    """A path leads to something else than a regular file."""


def opened(path: str | Path, flags: int = 0) -> BinaryIO:
    """Open a file to read. Errors: ``OSError``, also for what is no regular file.

    Nothing else is opened, even for a moment: some devices do things then.
    """
    place = os.open(path, flags | os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise NotRegularError(errno.EINVAL, "it is not a regular file")
        again = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        return open(os.open(f"/proc/self/fd/{place}", again), "rb")  # noqa: PTH123  # of a descriptor
    except OSError as error:
        error.filename = str(path)  # for whoever mends it
        raise
    finally:
        os.close(place)


def read(path: str | Path, limit: int, flags: int = 0) -> bytes:
    """Read the first ``limit`` bytes. Errors: as those of ``opened``."""
    with opened(path, flags) as file:
        return file.read(limit)


def text(path: str | Path, limit: int = LARGEST) -> str | None:
    """Read the first ``limit`` bytes as text; None for what is missing, unreadable or not regular.

    For files of the machine, which may be anything. Errors: none.
    """
    try:
        return read(path, limit).decode(errors="replace")
    except OSError:
        return None


def replace(path: Path, content: bytes, mode: int = READABLE) -> None:
    """Put ``content`` in place of ``path`` in one moment, for everybody to read by default.

    A reader sees the old or the new. Errors: ``OSError``, and nothing is left of it.
    """
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(fresh, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
        fresh.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
