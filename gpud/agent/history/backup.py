"""A copy of the history while the agent writes it: whole, of one moment, and a history itself."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.agent import reader
from gpud.agent.schema import FILE
from gpud.core.errors import GpudError, StoreError

if TYPE_CHECKING:
    from typing import BinaryIO

    from gpud.agent.bringing import Bring

PATIENCE_S: Final = 600.0
NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
"""What file systems say that know no hard links; Windows' disks are among them."""

ITS_DISK: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY})
FORMATS_AT: Final = 18
ROLLBACK: Final = b"\x01\x01"
"""The two format numbers of an SQLite file (its documentation, 1.3.3): with these it is one file
that needs no log beside it to be read, as after ``PRAGMA journal_mode=DELETE``."""


def copy(directory: Path, target: Path, bring: Bring | None = None) -> int:
    """Copy the history in ``directory`` to ``target``, which must not exist; give its bytes.

    The writer is not held up. Under its name the file is whole or not there at all. With ``bring``
    somebody else reads, and needs as much room beside the history for a moment.
    Errors: ``StoreError`` of the history, ``GpudError`` of the target.
    """
    if os.path.lexists(target):
        raise _taken(target)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as error:
        raise GpudError(f"cannot write {target}: {error.strerror}") from error
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123  # of a descriptor
            if bring is None:
                reader.ask(directory, lambda source: _copied(source, part), patience_s=PATIENCE_S)
            else:
                bring(lambda stream: _streamed(directory, stream), file)
        _last(part)
        size = part.stat().st_size
        _named(part, target)
        _last(target.parent)
    except OSError as error:
        raise GpudError(f"cannot write {target}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            part.unlink()
    return size


def _streamed(directory: Path, stream: BinaryIO) -> str:
    """Copy to a file beside the history, whose owner this is, and from there to the stream."""
    beside = directory / FILE
    part = directory / f".{FILE}.{os.getpid()}.part"
    try:
        _clear(directory)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            reader.ask(directory, lambda source: _copied(source, part), patience_s=PATIENCE_S)
            with part.open("rb") as copied:
                shutil.copyfileobj(copied, stream)
        finally:
            part.unlink()
    except PermissionError as error:
        raise StoreError(f"you may not write beside {beside}", reason="not_permitted") from error
    except OSError as error:
        raise GpudError(f"cannot write beside {beside}: {error.strerror}") from error
    return "whole"


def _clear(directory: Path) -> None:
    """Remove what copies left that were killed: each is as large as the history."""
    for part in directory.glob(f".{FILE}.*.part"):
        if not Path("/proc", part.suffixes[-2][1:]).exists():
            with suppress(OSError):
                part.unlink()


def _copied(source: sqlite3.Connection, part: Path) -> None:
    """Copy in one step, of the moment the source is read at: one that is written starts none anew.

    Errors: ``sqlite3.Error`` of the source, ``OSError`` of the copy.
    """
    source.execute("SELECT count(*) FROM sqlite_master").fetchone()
    # No locks: nobody else knows the file, and Windows' disks keep none.
    with closing(sqlite3.connect(f"{part.absolute().as_uri()}?nolock=1", uri=True)) as copied:
        copied.execute("PRAGMA synchronous=OFF")
        try:
            source.backup(copied, pages=-1)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in ITS_DISK:
                raise OSError(errno.ENOSPC, str(error)) from error
            raise
    with part.open("r+b") as file:
        file.seek(FORMATS_AT)
        file.write(ROLLBACK)
    with closing(sqlite3.connect(f"{part.absolute().as_uri()}?mode=ro&nolock=1", uri=True)) as made:
        (verdict,) = made.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreError(f"the history is damaged: {verdict}", reason="corrupt")


def _named(part: Path, target: Path) -> None:
    """Give it its name, and take that from nobody."""
    try:
        target.hardlink_to(part)
    except FileExistsError:
        raise _taken(target) from None
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if os.path.lexists(target):
            raise _taken(target) from None
        part.rename(target)


def _taken(target: Path) -> GpudError:
    return GpudError(f"{target} is there already", fix="remove it, or choose another name")


def _last(path: Path) -> None:
    """See to it that what is written is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
