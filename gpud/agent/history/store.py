"""The history: SQLite in WAL mode, one writer, one thread.

``synchronous=FULL`` although NORMAL would survive a SIGKILL of this process: `wsl --shutdown` stops
the whole VM without a sync, and five commits a minute cost nothing.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeAlias, TypeVar

from gpud.agent.history import records, schema
from gpud.agent.history.records import Run
from gpud.agent.history.schema import FILE
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.agent.history.records import Entry

P = ParamSpec("P")
T = TypeVar("T")

Query: TypeAlias = Callable[Concatenate[sqlite3.Connection, P], T]

WAITING_LIMIT = 1000
_WRITABLE = "make the directory writable for the agent's user"
_ASIDE = "move the file away: gpud begins a new one"
_REASONS = {
    sqlite3.SQLITE_FULL: ("disk_full", "free space on the disk that holds it"),
    sqlite3.SQLITE_READONLY: ("read_only", _WRITABLE),
    sqlite3.SQLITE_CANTOPEN: ("cannot_open", _WRITABLE),
    sqlite3.SQLITE_BUSY: ("locked", "close the program that holds it open"),
    sqlite3.SQLITE_IOERR: ("io_error", "look at the disk"),
    sqlite3.SQLITE_CORRUPT: ("corrupt", _ASIDE),
    sqlite3.SQLITE_NOTADB: ("corrupt", _ASIDE),
}


class Store:
    """The open file. Not thread-safe; ``History`` gives it one thread of its own."""

    def __init__(self, directory: Path, *, doubted: bool = False) -> None:
        """Open or create the history; a corrupt file is set aside, to ``set_aside``.

        ``doubted``: every page is looked at, which takes seconds, for one of them is damaged.
        Errors: ``StoreError``.
        """
        self.path = directory / FILE
        self.set_aside: Path | None = None
        check = "integrity_check" if doubted else "quick_check"
        try:
            self._connection = self._opened(check)
        except StoreError as error:
            if error.reason != "corrupt":
                raise
            self.set_aside = self._put_aside()
            self._connection = self._opened(check)

    def append(self, rows: Sequence[Run | Entry]) -> list[StoreError]:
        """Write runs and events in one transaction; after the return they last.

        Returns one error for each row that no disk could keep; the others are written.
        Errors: ``StoreError``; then none of them is written.
        """
        return self.write(_append, rows)

    def size(self) -> int:
        """Return the bytes on the disk, the log included."""
        n_bytes = 0
        for path in (self.path, Path(f"{self.path}-wal"), Path(f"{self.path}-shm")):
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

    def close(self) -> None:
        """Close the file; what was written stays."""
        with suppress(sqlite3.Error):
            self._connection.close()

    def _opened(self, check: str) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self.path, timeout=5.0, check_same_thread=False)
        except sqlite3.Error as error:
            raise _translated(error, self.path) from error
        connection.text_factory = lambda text: text.decode(errors="replace")
        try:
            schema.refuse_newer(connection, self.path)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute(f"PRAGMA cache_size=-{schema.CACHE_KIB}")
            _check(connection, check)
            schema.migrate(connection, self.path)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error):
                raise _translated(error, self.path) from error
            raise
        return connection

    def _put_aside(self) -> Path:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        names = (f"{FILE}.corrupt-{stamp}{f'-{n}' if n > 1 else ''}" for n in count(1))
        places = (self.path.with_name(name) for name in names)
        target = next(place for place in places if not place.exists())
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{self.path}{suffix}").rename(f"{target}{suffix}")
        return target


class History:
    """The store behind one thread, with a queue for what could not be written yet.

    Nothing is lost while the disk is full or read-only: up to ``WAITING_LIMIT`` rows wait in
    memory and are written in order when it is back. Beyond that the oldest go, and are counted.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._store: Store | None = None
        self._waiting: deque[Run | Entry] = deque()
        self._writing = asyncio.Lock()  # a batch is written once, however many append at a time
        self.dropped = 0
        self.set_aside: Path | None = None
        self.opened = 0
        """How many times: once it is another, the file may have nothing of what was written."""

    @property
    def waiting(self) -> int:
        """How many runs are in memory only."""
        return sum(isinstance(row, Run) for row in self._waiting)

    def enqueue(self, *rows: Run | Entry) -> None:
        """Have ``rows`` written by the next ``append``."""
        self._waiting.extend(rows)

    async def append(self, *rows: Run | Entry) -> None:
        """Write ``rows`` after those that wait already.

        Errors: ``StoreError``; then they wait, but for what no disk could keep: that is dropped.
        A cancelled caller does not stop the write: half-way, a run is both written and waiting.
        """
        self.enqueue(*rows)
        await asyncio.shield(self._write_waiting())

    async def _write_waiting(self) -> None:
        async with self._writing:
            while len(self._waiting) > WAITING_LIMIT:
                self._waiting.popleft()
                self.dropped += 1
            batch = list(self._waiting)
            refused = await self.ask(Store.append, batch)
            for _ in batch:
                self._waiting.popleft()
            self.dropped += len(refused)
        if refused:
            raise refused[-1]

    async def read(self, query: Query[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what ``query`` reads. Errors: ``StoreError``."""
        return await self.ask(lambda store: store.read(query, *args, **kwargs))

    async def write(self, change: Query[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Change rows in one transaction: all of it lasts, or nothing. Errors: ``StoreError``."""
        return await self.ask(lambda store: store.write(change, *args, **kwargs))

    async def ask(self, method: Callable[..., T], *args: object) -> T:
        """Call a method of the store, on its thread. Errors: ``StoreError``."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._answer, method, *args)

    async def close(self) -> None:
        """Write what waits if that is possible, and close."""
        with suppress(StoreError):
            await self.append()
        self._thread.shutdown(wait=True)
        self._close()

    def _open(self, *, doubted: bool = False) -> Store:
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

    def _answer(self, method: Callable[..., T], *args: object) -> T:
        """Call the method; where damage shows, set the file aside and call it on a new one."""
        try:
            return method(self._open(), *args)
        except StoreError as error:
            self._close()
            if error.reason != "corrupt":
                raise
        try:
            return method(self._open(doubted=True), *args)
        except StoreError:
            self._close()
            raise


def _append(transaction: sqlite3.Connection, rows: Sequence[Run | Entry]) -> list[StoreError]:
    refused = []
    for row in rows:
        transaction.execute("SAVEPOINT one_row")
        try:
            if isinstance(row, Run):
                records.write_run(transaction, row)
            else:
                records.write_events(transaction, [row])
        except (sqlite3.IntegrityError, OverflowError, ValueError) as error:
            transaction.execute("ROLLBACK TO one_row")
            what = f"a run of {row.report.probe}" if isinstance(row, Run) else f"event {row.kind}"
            refused.append(StoreError(f"{what} cannot be kept: {error}", reason="unstorable"))
        transaction.execute("RELEASE one_row")
    return refused


def _check(connection: sqlite3.Connection, check: str) -> None:
    """Look for damage. Errors: ``sqlite3.DatabaseError``."""
    (verdict,) = connection.execute(f"PRAGMA {check}(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(f"malformed: {verdict}")


def _translated(error: sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if "malformed" in str(error):
        code = sqlite3.SQLITE_CORRUPT
    reason, fix = _REASONS.get(code, ("failed", None))
    if reason in {"cannot_open", "io_error"}:
        reason, fix = _cause(path, reason, fix)
    return StoreError(f"cannot write {path}: {error}", reason=reason, fix=fix)


def _cause(path: Path, reason: str, fix: str | None) -> tuple[str, str | None]:
    """Find the cause behind SQLite's "unable to open", which it does not tell."""
    folder = path.parent
    if path.exists() and not path.is_file():
        return "not_a_file", f"move {path} away; gpud restart"
    if not folder.exists():
        return "no_directory", f"mkdir -p {folder}"
    if not os.access(folder, os.W_OK):
        return _REASONS[sqlite3.SQLITE_READONLY]
    full = os.statvfs(folder).f_bavail == 0
    return _REASONS[sqlite3.SQLITE_FULL] if full else (reason, fix)
