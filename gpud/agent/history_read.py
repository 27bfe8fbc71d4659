"""The history as somebody else reads it: ``gpud probe``, beside the agent that writes.

Nothing here makes, changes or locks out anything. SQLite as such would: a reader of a WAL file
makes ``-wal`` and ``-shm`` where they are missing. So the file is opened read-only, with
``readonly_shm`` where the two are there (the agent runs, or was killed), and as ``immutable`` where
they are not (nobody writes, and the file alone is the whole history).
"""

from __future__ import annotations

import math
import os
import sqlite3
import stat
import time
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.agent.schema import MIGRATIONS
from gpud.agent.store import FILE
from gpud.core.errors import StoreError
from gpud.core.stats import median

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

PATIENCE_S = 2.0
"""A month of runs takes about 0.3 s; a disk that needs longer is not waited for."""
BUSY_S = 0.5
ATTEMPTS, AGAIN_S = 5, 0.02
STEPS = 10_000
FLAGS_SINCE = 2
"""The schema that has ``runs.flags`` and ``samples.peaks``."""
LAST_RUNS = 5
"""So many of the newest runs say how long the next will take."""


@dataclass(frozen=True, slots=True)
class Series:
    """Figures that compare with each other; ``gpu`` is a UUID, None for the CPU."""

    gpu: str | None
    probe: str
    mode: str
    version: int


@dataclass(frozen=True, slots=True)
class Past:
    """What the history holds. Units: ``medians`` in the probe's own, ``durations`` in seconds."""

    medians: Mapping[Series, tuple[float, ...]] = field(default_factory=dict)
    durations: Mapping[tuple[str | None, str], float] = field(default_factory=dict)


def past(directory: Path, probes: Sequence[str], *, since_s: float) -> Past:
    """Read the good runs of ``probes`` that finished after ``since_s`` (Unix time).

    Runs that the agent flagged (the GPU was busy, its clocks low ...) are no part of what is
    normal. Errors: ``StoreError``, whose reason is one of no_history, not_permitted, not_a_file,
    newer_schema, corrupt, left_behind, slow, failed.
    """
    path = directory / FILE
    for last in (*(False,) * (ATTEMPTS - 1), True):
        before = _files(path)
        try:
            found = _read(path, _mode(path, before), probes, since_s)
        except sqlite3.Error as error:
            if last or _files(path) == before:
                raise _translated(error, path) from error
        except StoreError as error:
            # An agent that ends takes -shm away a moment before -wal.
            if last or error.reason != "left_behind":
                raise
        else:
            if before.wal or _files(path) == before:
                return found
        time.sleep(AGAIN_S)  # the agent begins or ends, and the way in is another
    raise StoreError(f"{path} changes while it is read", reason="failed")


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


def _read(path: Path, mode: str, probes: Sequence[str], since_s: float) -> Past:
    uri = f"{path.absolute().as_uri()}?mode=ro&{mode}"
    with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S)) as connection:
        until = time.monotonic() + PATIENCE_S
        connection.set_progress_handler(lambda: time.monotonic() > until, STEPS)
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        if schema > len(MIGRATIONS):
            raise StoreError(
                f"{path} was written by a newer gpud (schema {schema})", reason="newer_schema"
            )
        connection.execute("BEGIN")  # all probes at one moment
        good = "r.probe = ? AND r.finished_s >= ? AND r.failure IS NULL"
        if schema >= FLAGS_SINCE:
            good += " AND r.flags = '[]'"
        medians: defaultdict[Series, list[float]] = defaultdict(list)
        durations: dict[tuple[str | None, str], float] = {}
        for probe in probes:
            # Between the modes of a distribution that has two lies no median to compare with.
            one = f"{good} AND s.peaks IS NULL" if schema >= FLAGS_SINCE else good
            for series, figure in _figures(connection, one, probe, since_s):
                medians[series].append(figure)
            durations |= _durations(connection, good, probe, since_s)
        return Past({series: tuple(figures) for series, figures in medians.items()}, durations)


def _figures(
    connection: sqlite3.Connection, good: str, probe: str, since_s: float
) -> Iterator[tuple[Series, float]]:
    rows = connection.execute(
        "SELECT r.gpu_uuid, s.mode, CASE WHEN json_valid(r.conditions) THEN"  # noqa: S608  # ours
        " json_extract(r.conditions, '$.probe_version') END, s.median"
        f" FROM runs r JOIN samples s ON s.run_id = r.id WHERE {good}",
        (probe, since_s),
    )
    for gpu, mode, version, figure in rows:
        if isinstance(version, int) and _plain(figure):
            yield Series(gpu, probe, mode, version), figure


def _durations(
    connection: sqlite3.Connection, good: str, probe: str, since_s: float
) -> dict[tuple[str | None, str], float]:
    rows = connection.execute(
        f"SELECT r.gpu_uuid, r.duration_s FROM runs r WHERE {good}"  # noqa: S608  # ours
        " ORDER BY r.finished_s DESC LIMIT 200",
        (probe, since_s),
    )
    newest: defaultdict[str | None, list[float]] = defaultdict(list)
    for gpu, duration_s in rows:
        if _plain(duration_s) and len(newest[gpu]) < LAST_RUNS:
            newest[gpu].append(duration_s)
    return {(gpu, probe): median(values) for gpu, values in newest.items() if values}


def _plain(value: Any) -> bool:  # noqa: ANN401  # a column may hold anything
    return isinstance(value, float) and math.isfinite(value)


def _translated(error: sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_INTERRUPT:
        message = f"{path} was not read within {PATIENCE_S:g} s"
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


def _refused(path: Path) -> bool:
    return os.path.lexists(path) and not os.access(path, os.R_OK, effective_ids=True)


def _no_permission(path: Path) -> StoreError:
    return StoreError(f"you may not read {path}", reason="not_permitted", fix="sudo gpud probe")
