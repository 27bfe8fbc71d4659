"""Log files from their ends: the newest lines first, and then those that are still to come.

Nothing here waits for a writer, follows a link, or holds a file up: the agent's directory is the
agent's, and root may be who reads.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOCK: Final = 64 << 10
LONGEST: Final = 1 << 20
"""Bytes of one line; what goes on for longer is taken for several."""
LARGEST: Final = 16 << 20
"""Bytes of a file, from its end: more than gpud lets a log become, and its writer may do so."""
ROTATED: Final = 9
"""Numbers of older files that are looked for."""


def backwards(path: Path, size: int | None = None) -> Iterator[str]:
    """Give the lines of a file from its last to its first, then those of the files it was before.

    ``size``: where the file itself ended when somebody began to follow it. A file that is gone is
    passed over. Errors: ``OSError`` of one that is there and cannot be read.
    """
    for number in range(ROTATED + 1):
        older = path if number == 0 else path.with_name(f"{path.name}.{number}")
        try:
            descriptor = opened(older)
        except FileNotFoundError:
            continue
        try:
            end = os.fstat(descriptor).st_size
            yield from _lines(descriptor, end if size is None or number else min(size, end))
        finally:
            os.close(descriptor)


def opened(path: Path) -> int:
    """Open a regular file to read. Errors: ``OSError``, also for what is none."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no plain file", str(path))


def _lines(descriptor: int, end: int) -> Iterator[str]:
    rest = b""
    first = max(0, end - LARGEST)
    while end > first:
        begin = max(first, end - BLOCK)
        block = os.pread(descriptor, end - begin, begin)
        end = begin
        block = block.replace(b"\0", b"")  # a hole, or what a crash of the machine left
        rest, *lines = (block + rest).split(b"\n")
        for line in reversed(lines):
            if line:
                yield line.decode(errors="replace")
        if len(rest) > LONGEST:
            yield rest.decode(errors="replace")
            rest = b""
    if rest:
        yield rest.decode(errors="replace")


@dataclass(slots=True)
class Followed:
    """One file that others write: rotated, cut, taken away or not there yet."""

    path: Path
    descriptor: int | None = None
    offset: int = 0
    partial: bytes = field(default=b"")

    def begin(self) -> int | None:
        """Begin behind the last whole line; gives where that is, None where there is no file.

        Errors: ``OSError`` for a file that cannot be read.
        """
        try:
            self.descriptor = opened(self.path)
        except FileNotFoundError:
            return None
        end = os.fstat(self.descriptor).st_size
        last = os.pread(self.descriptor, BLOCK, max(0, end - BLOCK))
        whole = last.rfind(b"\n") + 1
        self.offset = end - len(last) + whole if whole else end
        return self.offset

    def fresh(self) -> list[str]:
        """Give the whole lines that have come since. Errors: ``OSError``."""
        lines = [] if self.descriptor is None else self._read(self.descriptor)
        try:
            now = self.path.lstat()
        except FileNotFoundError:  # renamed a moment ago; its writer makes another
            return lines
        if self.descriptor is not None:
            held = os.fstat(self.descriptor)
            if (held.st_dev, held.st_ino) == (now.st_dev, now.st_ino):
                return lines
            lines += self._read(self.descriptor)  # what came between the look and the rename
            self.close()
        with suppress(FileNotFoundError):
            self.descriptor = opened(self.path)
            lines += self._read(self.descriptor)
        return lines

    def close(self) -> None:
        """Let go of the file."""
        if self.descriptor is not None:
            os.close(self.descriptor)
        self.descriptor, self.offset, self.partial = None, 0, b""

    def _read(self, descriptor: int) -> list[str]:
        size = os.fstat(descriptor).st_size
        if size < self.offset:  # emptied by who copied it aside
            self.offset, self.partial = 0, b""
        if size - self.offset > LARGEST:
            self.offset, self.partial = size - LARGEST, b""
        found: list[str] = []
        while block := os.pread(descriptor, BLOCK, self.offset):
            self.offset += len(block)
            block = block.replace(b"\0", b"")
            *lines, self.partial = (self.partial + block).split(b"\n")
            found += [line.decode(errors="replace") for line in lines if line]
            if len(self.partial) > LONGEST:
                found.append(self.partial.decode(errors="replace"))
                self.partial = b""
        return found
