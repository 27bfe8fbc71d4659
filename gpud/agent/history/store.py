"""The history: SQLite in WAL mode, one writer, one thread.

``synchronous=FULL`` although NORMAL would survive a SIGKILL of this process: `wsl --shutdown` stops
the whole VM without a sync, and five commits a minute cost nothing.
"""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeAlias, TypeVar

from gpud.agent.history import queries, schema, writes
from gpud.agent.history.schema import FILE
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.agent.history.records import Run

P = ParamSpec("P")
T = TypeVar("T")

Query: TypeAlias = Callable[Concatenate[sqlite3.Connection, P], T]

WAITING_LIMIT = 1000


class Store:
    """The open file. Not thread-safe; ``History`` gives it one thread of its own."""

    def __init__(self, directory: Path, *, doubted: bool = False) -> None:
        """Open or create the history; a corrupt file is set aside, to ``set_aside``.

        ``doubted``: every page is looked at, which takes seconds, for one of them is damaged.
        Errors: ``StoreError``.
        """
        self.path = directory / FILE
        self.set_aside: Path | None = None
        self._check = "integrity_check" if doubted else "quick_check"
        try:
            self._connection = self._opened()
        except sqlite3.DatabaseError as error:
            if not _is_corrupt(error):
                raise _translated(error, self.path) from error
            self.set_aside = self._put_aside()
            try:
                self._connection = self._opened()
            except sqlite3.DatabaseError as second:
                raise _translated(second, self.path) from second
        self._identity = _identity(self.path)
        self._beside = {
            path: _identity(path) for path in (Path(f"{self.path}-wal"), Path(f"{self.path}-shm"))
        }

    @property
    def replaced(self) -> bool:
        """Whether somebody has taken the file away, or put another in its place."""
        return _identity(self.path) != self._identity

    def append(self, runs: Sequence[Run]) -> list[StoreError]:
        """Write runs with their samples in one transaction; after the return they last.

        Gives one error for each run that no disk could keep; the others are written.
        Errors: ``StoreError``; then none of them is written.
        """
        return self.write(_append, runs)

    def size(self) -> int:
        """Return the bytes on the disk, the log included."""
        n_bytes = 0
        for path in (self.path, *self._beside):
            with suppress(OSError):
                n_bytes += path.stat().st_size
        return n_bytes

    def read(self, query: Query[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what ``query`` reads. Errors: ``StoreError``."""
        try:
            return query(self._connection, *args, **kwargs)
        except sqlite3.Error as error:
            raise _translated(error, self.path) from error

    def write(self, change: Query[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Change rows in one transaction: all of it lasts, or nothing. Errors: ``StoreError``."""
        try:
            with self._connection as transaction:
                transaction.execute("BEGIN IMMEDIATE")
                return change(transaction, *args, **kwargs)
        except sqlite3.Error as error:
            raise _translated(error, self.path) from error

    def check(self) -> None:
        """Read every page: damage may lie where nobody reads for weeks. Errors: ``StoreError``.

        Over a connection of its own: what this one has read before, it has in memory.
        """
        try:
            with closing(
                sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
            ) as fresh:
                verdict = fresh.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.Error as error:
            raise _translated(error, self.path) from error
        if verdict != "ok":
            reason, fix = _REASONS[sqlite3.SQLITE_CORRUPT]
            raise StoreError(f"{self.path} is damaged: {verdict}", reason=reason, fix=fix)

    def close(self) -> None:
        """Close the file; what was written stays."""
        replaced = self.replaced
        with suppress(sqlite3.Error):
            self._connection.close()
        # SQLite leaves the log of a file that is gone, and would play it into the one in its place.
        for path, identity in self._beside.items() if replaced else ():
            if identity is not None and _identity(path) == identity:
                with suppress(OSError):
                    path.unlink()

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=5.0, check_same_thread=False)
        connection.text_factory = lambda text: text.decode(errors="replace")
        try:
            schema.refuse_newer(connection, self.path)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute(f"PRAGMA cache_size=-{schema.CACHE_KIB}")
            (verdict,) = connection.execute(f"PRAGMA {self._check}(1)").fetchone()
            if verdict != "ok":
                raise sqlite3.DatabaseError(f"malformed: {verdict}")  # noqa: TRY301
            schema.migrate(connection, self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _put_aside(self) -> Path:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        target = self.path.with_name(f"{FILE}.corrupt-{stamp}")
        again = 1
        while target.exists():
            again += 1
            target = self.path.with_name(f"{FILE}.corrupt-{stamp}-{again}")
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{self.path}{suffix}").rename(f"{target}{suffix}")
        return target


class History:
    """The store behind one thread, with a queue for runs that could not be written yet.

    Nothing is lost while the disk is full or read-only: up to ``WAITING_LIMIT`` runs wait in
    memory and are written in order when it is back. Beyond that the oldest go, and are counted.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._store: Store | None = None
        self._waiting: deque[Run] = deque()
        self._writing = asyncio.Lock()  # a batch is written once, however many append at a time
        self.dropped = 0
        self.set_aside: Path | None = None
        self.opened = 0
        """How many times: once it is another, the file may have nothing of what was written."""

    @property
    def waiting(self) -> int:
        """How many runs are in memory only."""
        return len(self._waiting)

    async def append(self, *runs: Run) -> None:
        """Write ``runs`` after those that wait already.

        Errors: ``StoreError``; then they wait, but for what no disk could keep: that is dropped.
        A cancelled caller does not stop the write: half-way, a run is both written and waiting.
        """
        self._waiting.extend(runs)
        await asyncio.shield(self._write_waiting())

    async def _write_waiting(self) -> None:
        async with self._writing:
            while len(self._waiting) > WAITING_LIMIT:
                self._waiting.popleft()
                self.dropped += 1
            batch = list(self._waiting)
            loop = asyncio.get_running_loop()
            refused = await loop.run_in_executor(self._thread, self._write, batch)
            for _ in batch:
                self._waiting.popleft()
            self.dropped += len(refused)
        if refused:
            raise refused[-1]

    async def last_finished_s(self, probe: str) -> float | None:
        """Give the end of the newest run of ``probe``, those that wait included.

        Errors: ``StoreError`` when the history cannot be read.
        """
        for run in reversed(self._waiting):
            if run.report.probe == probe:
                return run.finished_s
        return await self.read(queries.last_finished_s, probe)

    async def read(self, query: Query[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what ``query`` reads. Errors: ``StoreError``."""
        return await self.ask(lambda store: store.read(query, *args, **kwargs))

    async def write(self, change: Query[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Change rows in one transaction: all of it lasts, or nothing. Errors: ``StoreError``."""
        return await self.ask(lambda store: store.write(change, *args, **kwargs))

    async def ask(self, question: Callable[[Store], T]) -> T:
        """Put a question to the store, on its thread. Errors: ``StoreError``."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._answered, question)

    async def close(self) -> None:
        """Write what waits if that is possible, and close."""
        with suppress(StoreError):
            await self.append()
        self._thread.shutdown(wait=True)
        if self._store is not None:
            self._store.close()

    def _open(self, *, doubted: bool = False) -> Store:
        if self._store is not None and self._store.replaced:
            self._close()
        if self._store is None:
            self._store = Store(self._directory, doubted=doubted)
            self.set_aside = self._store.set_aside or self.set_aside
            self.opened += 1
        return self._store

    def _close(self) -> None:
        # Opened anew next time: after a remount the old descriptors are worth nothing.
        if self._store is not None:
            self._store.close()
            self._store = None

    def _write(self, batch: list[Run]) -> list[StoreError]:
        return self._answered(lambda store: store.append(batch))

    def _answered(self, question: Callable[[Store], T]) -> T:
        """Answer; where damage shows, set the file aside and answer out of a new one."""
        try:
            return question(self._open())
        except StoreError as error:
            self._close()
            if error.reason != "corrupt":
                raise
        try:
            return question(self._open(doubted=True))
        except StoreError:
            self._close()
            raise


def _append(transaction: sqlite3.Connection, runs: Sequence[Run]) -> list[StoreError]:
    refused = []
    for run in runs:
        transaction.execute("SAVEPOINT run")
        try:
            writes.run(transaction, run)
        except (sqlite3.IntegrityError, OverflowError, ValueError) as error:
            transaction.execute("ROLLBACK TO run")
            message = f"a run of {run.report.probe} cannot be kept: {error}"
            refused.append(StoreError(message, reason="unstorable"))
        transaction.execute("RELEASE run")
    return refused


def _identity(path: Path) -> tuple[int, int] | None:
    """Tell one file from another of the same name; None for no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_corrupt(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB} or "malformed" in str(error)


_REASONS = {
    sqlite3.SQLITE_FULL: ("disk_full", "free space on the disk that holds it"),
    sqlite3.SQLITE_READONLY: ("read_only", "make the directory writable for the agent's user"),
    sqlite3.SQLITE_CANTOPEN: ("cannot_open", "make the directory writable for the agent's user"),
    sqlite3.SQLITE_BUSY: ("locked", "close the program that holds it open"),
    sqlite3.SQLITE_IOERR: ("io_error", "look at the disk"),
    sqlite3.SQLITE_CORRUPT: ("corrupt", "move the file away: gpud begins a new one"),
    sqlite3.SQLITE_NOTADB: ("corrupt", "move the file away: gpud begins a new one"),
}


def _translated(error: sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    reason, fix = _REASONS.get(code & 0xFF, ("failed", None))
    if reason in {"cannot_open", "io_error"}:
        reason, fix = _by_the_directory(path, reason, fix)
    return StoreError(f"cannot write {path}: {error}", reason=reason, fix=fix)


def _by_the_directory(path: Path, reason: str, fix: str | None) -> tuple[str, str | None]:
    """Find the cause behind SQLite's "unable to open": it tells neither EROFS nor ENOSPC apart."""
    try:
        with closing((path.parent / f".{FILE}.try").open("wb", buffering=0)) as tried:
            tried.write(b"x" * 4096)
    except OSError as error:
        if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
            return _REASONS[sqlite3.SQLITE_READONLY]
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return _REASONS[sqlite3.SQLITE_FULL]
        if error.errno == errno.ENOENT:
            return "no_directory", f"mkdir -p {path.parent}"
    finally:
        with suppress(OSError):
            (path.parent / f".{FILE}.try").unlink()
    return reason, fix
