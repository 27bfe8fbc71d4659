"""Read-only access to the history beside the agent that writes it, for any user with permission.

Nothing here makes, changes or locks out anything. SQLite as such would: a reader of a WAL file
makes ``-wal`` and ``-shm`` where they are missing. So the file is opened read-only, with
``readonly_shm`` where the two are there (the agent runs, or was killed), and as ``immutable`` where
they are not (nobody writes, and the file alone is the whole history).
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpud.agent.history.schema import CACHE_KIB, FILE, MIGRATIONS, refuse_newer
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

PATIENCE_S = 2.0
"""A month of runs takes about 0.3 s; a disk that needs longer is not waited for."""
BUSY_S = 0.5
ATTEMPTS, AGAIN_S = 5, 0.02
STEPS = 10_000


def read(
    directory: Path,
    query: Callable[..., T],
    *args: object,
    patience_s: float = PATIENCE_S,
) -> T:
    """Return what ``query`` reads of the history in ``directory``; all its rows are of one moment.

    The query may run again while an agent begins or ends, so it must have no effects. Long answers
    are read in slices. Text that is no UTF-8 arrives with replacements.
    Errors: ``StoreError``, whose reason is one of no_history, not_permitted, not_a_file,
    older_schema, newer_schema, corrupt, left_behind, slow, failed.
    """
    path = directory / FILE
    until = time.monotonic() + patience_s
    failures = 0  # in a row
    while True:
        before = _files(path)
        try:
            with _opened(path, before, patience_s) as connection:
                result = query(connection, *args)
        except sqlite3.Error as error:
            # Damage is believed once it stays: an agent that ends may be writing the page.
            failures += 1
            if failures == ATTEMPTS or _slow(error):
                raise _translated(error, path, patience_s) from error
        except StoreError as error:
            # An agent that ends takes -shm away a moment before -wal.
            failures += 1
            if failures == ATTEMPTS or error.reason != "left_behind":
                raise
        else:
            if before.wal or _files(path) == before:
                return result
            failures = 0
            if time.monotonic() > until:
                raise StoreError(f"{path} changes while it is read", reason="failed")
        time.sleep(AGAIN_S)  # the agent begins or ends, and the way in is another


@dataclass(frozen=True, slots=True)
class _Files:
    """What tells one state of the history from another."""

    main: tuple[int, int, int]  # inode, size, modified (ns)
    wal: bool  # there is one that holds anything
    shm: bool


def _files(path: Path) -> _Files:
    try:
        main = path.lstat()
    except FileNotFoundError:
        raise StoreError(f"there is no {path} yet", reason="no_history") from None
    except PermissionError as error:
        raise _no_permission(path) from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}", reason="failed") from error
    if not stat.S_ISREG(main.st_mode):
        raise StoreError(f"{path} is not a regular file", reason="not_a_file")
    wal, shm = (Path(f"{path}{suffix}") for suffix in ("-wal", "-shm"))
    try:
        holds = wal.lstat().st_size > 0
    except OSError:
        holds = False
    return _Files((main.st_ino, main.st_size, main.st_mtime_ns), holds, os.path.lexists(shm))


def _mode(path: Path, files: _Files) -> str:
    if not files.wal:
        return "immutable=1"
    if not files.shm:
        raise StoreError(
            f"{path}-wal holds runs that are in no index",
            reason="left_behind",
            fix="gpud reads it at its next start",
        )
    return "readonly_shm=1"


@contextmanager
def _opened(path: Path, files: _Files, patience_s: float) -> Iterator[sqlite3.Connection]:
    uri = f"{path.absolute().as_uri()}?mode=ro&{_mode(path, files)}"
    with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S)) as connection:
        connection.text_factory = lambda text: text.decode(errors="replace")
        connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        until = time.monotonic() + patience_s
        connection.set_progress_handler(lambda: time.monotonic() > until, STEPS)
        if refuse_newer(connection, path) < len(MIGRATIONS):
            raise StoreError(
                f"{path} was written by an older gpud",
                reason="older_schema",
                fix="gpud migrates it at its next start",
            )
        connection.execute("BEGIN")  # all queries see one moment
        yield connection


def _translated(error: sqlite3.Error, path: Path, patience_s: float) -> StoreError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if _slow(error):
        message = f"{path} was not read within {patience_s:g} s"
        return StoreError(message, reason="slow", fix="look at the disk")
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return StoreError(
            f"{path} is damaged: {error}",
            reason="corrupt",
            fix="restart gpud: it is set aside at start",
        )
    unreadable = [p for p in (path, Path(f"{path}-wal"), Path(f"{path}-shm")) if _refused(p)]
    if unreadable:
        return _no_permission(unreadable[0])
    return StoreError(f"cannot read {path}: {error}", reason="failed")


def _slow(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT


def _refused(path: Path) -> bool:
    return os.path.lexists(path) and not os.access(path, os.R_OK, effective_ids=True)


def _no_permission(path: Path) -> StoreError:
    return StoreError(f"you may not read {path}", reason="not_permitted")
