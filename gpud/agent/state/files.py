"""Files that the agent reads and writes every few seconds: root's status, its own, the settings."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from gpud import regular_file, settings_files
from gpud.agent.state import runs, status
from gpud.agent.state.snapshot import RootState
from gpud.agent.ticks import TICK_S, to_tick_s
from gpud.core import wire
from gpud.core.errors import ConfigError, WireError
from gpud.core.health import Health, Level
from gpud.core.report import STALE_AFTER_S, RootReport
from gpud.reports import SHORT
from gpud.show import headline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpud.agent.state.board import Board
    from gpud.core.clock import Instant

LARGEST = 256 * 1024
AHEAD_S = 1.0
"""Root may write between our look at the clock and our look at the file."""


def publish_root_status(path: Path, board: Board, now: Instant) -> None:
    """Read the file and publish root's report if it is a new one, or why there is none."""
    report, silent = read_root_status(path, now)
    snapshot = board.read()
    if report is snapshot.root.report and silent == snapshot.root.silent:
        return
    comparison = None if report is None else runs.comparison(snapshot, report)
    root = RootState(report, silent, comparison)
    measure = runs.with_container_probe(snapshot, report)
    last = snapshot.root.report
    same = report is not None and last is not None and report.equals_but_times(last)
    if same and (measure, comparison) == (snapshot.measure, snapshot.root.comparison):
        board.replace_root(root)
    else:
        board.publish(root=root, measure=measure)


def read_root_status(path: Path, now: Instant) -> tuple[RootReport | None, str | None]:
    """Return root's report, or the reason why there is none.

    Units: ``now.mono_s`` is compared with the report's beat; both are CLOCK_MONOTONIC of one boot.
    """
    try:
        facts = path.lstat()
        report = _read(path, facts.st_ino, facts.st_mtime_ns)
    except FileNotFoundError:
        return None, f"{path} does not exist: no supervisor runs"
    except OSError as error:
        return None, f"cannot read {path}: {error.strerror}"
    except WireError as error:
        return None, f"{path}: {error}"
    age_s = now.mono_s - report.beat_s
    if not -AHEAD_S <= age_s <= STALE_AFTER_S:
        return None, f"{path} is no longer written: the supervisor is gone"
    return report, None


@lru_cache(maxsize=1)
def _read(path: Path, _inode: int, _written_ns: int) -> RootReport:
    """Read the file, which is looked at more often than it is written.

    Errors: ``OSError``, ``WireError``.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid not in {0, os.geteuid()}:
            raise WireError("not a file of root's")
        return wire.decode(os.read(descriptor, LARGEST), RootReport)
    finally:
        os.close(descriptor)


EVERY_S: Final = 20.0


async def check_settings(config: Path, home: str, board: Board) -> None:
    """Look at the files in a thread; publish what changed."""
    try:
        exposed = await asyncio.to_thread(settings_files.exposed, config, home)
    except ConfigError:  # `http` reports a file that cannot be used
        exposed = []
    words = "; ".join(map(str, exposed))
    before = board.read().health.get("settings")
    if words == ((before and before.detail) or ""):
        return
    level, reason = (Level.DEGRADED, "secrets_exposed") if exposed else (Level.OK, None)
    fix = "; ".join(file.fix for file in exposed) or None
    board.set_health("settings", Health(level, reason, words or None, fix))


LATEST_S: Final = 6.0
"""The file is written so often without a change, too: its age says whether the agent lives."""
NAME: Final = "status_file"
"""The component of ``health``."""
SHORT_S: Final = 9.0
"""How often the line of `gpud status --short` is written without a change."""


async def write_status(folder: Path, board: Board, now: Callable[[], Instant]) -> None:
    """Write both files of `gpud status` at once, then after changes; never ends."""
    short = folder / SHORT
    try:
        await _write_status(folder / "agent.json", short, board, now)
    finally:
        short.unlink(missing_ok=True)


async def _write_status(path: Path, short: Path, board: Board, now: Callable[[], Instant]) -> None:
    last, last_s = "", 0.0
    while True:
        document = status.document(board.read(), now=now())
        at_s = document.written_s
        try:
            regular_file.replace(path, msgspec.json.encode(document) + b"\n")
            line = f"{headline.is_problem(document):d} {headline.short(document)}"
            if line != last or not 0 <= at_s - last_s < SHORT_S:
                regular_file.replace(short, f"{at_s:.0f} {line}\n".encode())
                last, last_s = line, at_s
        except OSError as error:
            words = f"cannot write {error.filename or path}: {error.strerror}"
            fix = f"make room in {path.parent} and leave it to the agent's user; then gpud restart"
            board.set_health(NAME, Health(Level.FAILED, "not_written", words, fix))
        else:
            before = board.read().health.get(NAME)
            if before is not None and before.level is not Level.OK:
                board.set_health(NAME, Health(Level.OK))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LATEST_S - TICK_S):
                await board.changed.wait()
        await asyncio.sleep(to_tick_s())  # what changes together is written together
        board.changed.clear()
