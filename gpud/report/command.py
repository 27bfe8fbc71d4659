"""``gpud report``: the verb, its output and its exit code."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpud.agent import reader
from gpud.agent.byhand import terminal
from gpud.agent.store import FILE
from gpud.core.errors import GpudError, StoreError
from gpud.core.sample import SCHEMA_VERSION
from gpud.report import page, rows, text
from gpud.report.build import build, without_bins

if TYPE_CHECKING:
    from gpud.report.model import Report

WELL, PROBLEM = 0, 1
DAY_S: Final = 86400.0
STDOUT: Final = "-"


def run(directory: Path, days: float, *, html: str | None, as_json: bool) -> int:
    """Print the report of the last ``days``, or write it as a page; 1 where something is worse.

    ``html`` is a file, or ``-`` for stdout. Errors: ``StoreError``, ``PermissionError`` where the
    history may not be read, ``GpudError`` where the page cannot be written.
    """
    found = report(directory, days, now_s=time.time())
    if as_json:
        terminal.put(json.dumps(document(found)) + "\n")
    elif html == STDOUT:
        terminal.put(page.drawn(found))
    elif html is not None:
        _write(Path(html), page.drawn(found))
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


def _write(path: Path, drawn: str) -> None:
    """Write the page whole or not at all, and never through a link that somebody put there."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(drawn)
        temporary.replace(path)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            temporary.unlink(missing_ok=True)
        raise GpudError(f"cannot write {path}: {error.strerror}") from error
    terminal.put(f"{path} has the report; it opens in any browser\n")
