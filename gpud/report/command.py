"""``gpud report``: the verb, its output and its exit code."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from gpud.agent import bringing, reader
from gpud.agent.byhand import terminal
from gpud.agent.store import FILE
from gpud.core.errors import GpudError, StoreError
from gpud.core.sample import SCHEMA_VERSION
from gpud.report import page, rows, text
from gpud.report.build import build, without_bins

if TYPE_CHECKING:
    from gpud.agent.bringing import Bring
    from gpud.report.model import Report

WELL, PROBLEM = 0, 1
DAY_S: Final = 86400.0
STDOUT: Final = "-"
WORSE: Final = "worse"


def run(
    directory: Path,
    days: float,
    *,
    html: str | None,
    as_json: bool,
    bring: Bring = bringing.here,
) -> int:
    """Print the report of the last ``days``, or write it as a page; 1 where something is worse.

    ``html`` is a file, or ``-`` for stdout. Errors: ``StoreError``, ``PermissionError`` where the
    history may not be read, ``GpudError`` where the page cannot be written.
    """
    if html not in {None, STDOUT} and not as_json:
        return _filed(Path(str(html)), directory, days, bring)
    found = report(directory, days, now_s=time.time())
    if as_json:
        terminal.put(json.dumps(document(found)) + "\n")
    elif html == STDOUT:
        terminal.put(page.drawn(found))
    else:
        shown = text.lines(found)
        if terminal.ascii_only(sys.stdout):
            shown = [(line.translate(terminal.ASCII), style) for line, style in shown]
        terminal.show(shown)
    return PROBLEM if found.headline.worse else WELL


def report(directory: Path, days: float, *, now_s: float) -> Report:
    """Read the history and make the report. Errors: as those of ``run``."""
    since_s = now_s - days * DAY_S
    try:
        found = reader.ask(
            directory, lambda c: rows.read(c, since_s, now_s), patience_s=rows.PATIENCE_S
        )
    except StoreError as error:
        if error.reason == "not_permitted":
            raise PermissionError(str(error)) from error
        if error.reason == "no_history":
            raise GpudError(str(error), fix="gpud makes it with its first run") from error
        raise
    size = sum(_size(directory / f"{FILE}{suffix}") for suffix in ("", "-wal"))
    return build(found, since_s=since_s, until_s=now_s, file_bytes=size)


def document(found: Report) -> dict[str, Any]:
    """Give the report as plain JSON data; the course of each stream is in /api/v1/history."""
    return {"schema_version": SCHEMA_VERSION, **asdict(without_bins(found))}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _renamed(temporary: Path, path: Path) -> None:
    try:
        temporary.replace(path)
    except OSError as error:
        raise GpudError(f"cannot write {path}: {error.strerror}") from error


def _filed(path: Path, directory: Path, days: float, bring: Bring) -> int:
    """Write the page whole or not at all, and never through a link that somebody put there."""

    def drawn(stream: BinaryIO) -> str:
        found = report(directory, days, now_s=time.time())
        stream.write(page.drawn(found).encode())
        return WORSE if found.headline.worse else ""

    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        file = temporary.open("xb")
    except OSError as error:
        raise GpudError(f"cannot write {path}: {error.strerror}") from error
    try:
        with file:
            word = bring(drawn, file)
        _renamed(temporary, path)
    except BaseException:  # Ctrl-C too
        temporary.unlink(missing_ok=True)
        raise
    terminal.put(f"{path} has the report; it opens in any browser\n")
    return PROBLEM if word == WORSE else WELL
