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
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpud.agent.history.schema import CACHE_KIB, FILE, NEWEST, refuse_newer
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PATIENCE_S = 2.0
"""A month of runs takes about 0.3 s; a disk that needs longer is not waited for."""
BUSY_S = 0.5
ATTEMPTS, AGAIN_S = 5, 0.02
STEPS = 10_000
PASSING = frozenset({"corrupt", "failed", "not_permitted"})
"""Reasons that are believed once they stay: an agent that begins or ends may be the cause."""


def read(
    directory: Path, query: Callable[..., T], *args: object, patience_s: float = PATIENCE_S
) -> T:
    """Return what ``query`` reads of the history in ``directory``; all its rows are of one moment.

    The query may run again while an agent begins or ends, so it must have no effects. Long answers
    are read in slices. Text that is no UTF-8 arrives with replacements.
    Errors: ``StoreError``, whose reason is one of no_history, not_permitted, not_a_file,
    older_schema, newer_schema, corrupt, slow, failed.
    """
    path = directory / FILE
    for _ in range(ATTEMPTS - 1):
        try:
            return _answer(path, _mode(path), query, args, patience_s)
        except StoreError as error:
            if error.reason not in PASSING:
                raise
        time.sleep(AGAIN_S)
    return _answer(path, _mode(path), query, args, patience_s)


def _mode(path: Path) -> str:
    """Return how the file is to be opened. Errors: ``StoreError``."""
    try:
        main = path.lstat()
    except FileNotFoundError:
        raise StoreError(f"there is no {path} yet", reason="no_history") from None
    except OSError as error:
        reason = "not_permitted" if isinstance(error, PermissionError) else "failed"
        raise StoreError(f"cannot read {path}: {error.strerror}", reason=reason) from error
    if os.geteuid() == 0 != main.st_uid:
        fix = "without sudo, as a member of gpud-users while gpud runs"
        message = f"{path} is another user's, and root does not open it"
        raise StoreError(message, reason="not_permitted", fix=fix)
    if not stat.S_ISREG(main.st_mode):
        raise StoreError(f"{path} is not a regular file", reason="not_a_file")
    return "readonly_shm" if os.path.lexists(f"{path}-shm") else "immutable"


def _answer(
    path: Path, mode: str, query: Callable[..., T], args: tuple[object, ...], patience_s: float
) -> T:
    uri = f"{path.absolute().as_uri()}?mode=ro&{mode}=1"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S)) as connection:
            connection.text_factory = lambda text: text.decode(errors="replace")
            connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
            until_s = time.monotonic() + patience_s
            connection.set_progress_handler(lambda: time.monotonic() > until_s, STEPS)
            if refuse_newer(connection, path) < NEWEST:
                fix = "gpud migrates it at its next start"
                message = f"{path} was written by an older gpud"
                raise StoreError(message, reason="older_schema", fix=fix)
            connection.execute("BEGIN")  # all queries see one moment
            return query(connection, *args)
    except sqlite3.Error as error:
        raise _translated(error, path, patience_s) from error


def _translated(error: sqlite3.Error, path: Path, patience_s: float) -> StoreError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_INTERRUPT:
        message = f"{path} was not read within {patience_s:g} s"
        return StoreError(message, reason="slow", fix="look at the disk")
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        fix = "restart gpud: it is set aside at start"
        return StoreError(f"{path} is damaged: {error}", reason="corrupt", fix=fix)
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        if os.path.lexists(file) and not os.access(file, os.R_OK, effective_ids=True):
            return StoreError(f"you may not read {file}", reason="not_permitted")
    return StoreError(f"cannot read {path}: {error}", reason="failed")
