"""``gpud logs``: what agent, root and dockerd wrote, as one log by time, with ``-f`` what comes.

A line that cannot be read belongs to the one before it, as a traceback does. No read waits for a
writer or follows a link: the agent's directory is the agent's, and the reader may be root.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import re
import select
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from gpud import output, regular_file
from gpud.arguments import COMPONENTS, LEVELS, NO_PERMISSION, OK
from gpud.core.errors import NotRunningError
from gpud.core.text import escaped
from gpud.reports import supervisor
from gpud.show.view import PLAIN, QUIET, Span, View, line, narrowed
from gpud.units import local

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from gpud.place import Place
    from gpud.show.view import Line

FILES: Final = {"agent": "agent/agent.log", "root": "root.log", "dockerd": "dockerd.log"}
USUAL: Final = 100
"""Lines, where neither a time nor a number is given."""
EVERY_S: Final = 0.3
"""How often a followed file is looked at."""
LARGEST: Final = 16 << 20
"""Bytes of a file, from its end: more than gpud lets a log become, and its writer may do so."""
ROTATED: Final = 9
"""Numbers of older files that are looked for."""
LONGEST: Final = 400
"""Characters of one value that are drawn."""
COLOURS: Final = dict(zip(LEVELS, ("dim", "green", "yellow", "red", "bold red"), strict=True))
SYNONYMS: Final = {"warn": "warning", "fatal": "critical", "panic": "critical", "trace": "debug"}
_DOCKERD: Final = re.compile(r'time="([^"]*)" level=(\w+) (?:msg=)?(.*)')


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line: its event and what goes with that.

    ``at_s`` is Unix time, None where the line does not say; ``level`` likewise.
    """

    component: str
    event: str
    rest: str = ""
    at_s: float | None = None
    level: str | None = None


class LogFile:
    """A log that another process writes, rotates, empties, or has not made yet."""

    def __init__(self, component: str, path: Path) -> None:
        self.component = component
        self.path = path
        self.exists = False
        self._inode = self._end = 0  # of what was read last
        self._partial = b""

    def fresh(self) -> Iterator[LogEntry]:
        """Return entries of whole lines since the last look, the newest first. Errors: ``OSError``.

        A line is decoded when its entry is taken: of a long log few are.
        """
        data = self._partial
        try:
            file = regular_file.opened(self.path, os.O_NOFOLLOW)
        except FileNotFoundError:  # renamed a moment ago; its writer makes another
            return iter(())
        with file:
            now, self.exists = os.fstat(file.fileno()), True
            if now.st_ino != self._inode or now.st_size < self._end:
                data, self._inode, self._end = b"", now.st_ino, 0
            data += _tail(file, self._end)
            self._end = file.tell()
        whole, feed, self._partial = data.rpartition(b"\n")
        return _backwards(self.component, whole + feed)

    def past(self) -> Iterator[LogEntry]:
        """Return entries of older files from the newest back, as far as they can be read."""
        for number in range(1, ROTATED + 1):
            path = self.path.with_name(f"{self.path.name}.{number}")
            with suppress(OSError), regular_file.opened(path, os.O_NOFOLLOW) as file:
                self.exists = True
                yield from _backwards(self.component, _tail(file))


def run(options: argparse.Namespace, place: Place) -> int:
    """Print what was written, and with ``--follow`` what is, until Ctrl-C.

    Returns 0, 3 where there is no log yet, 4 where none may be read.
    """
    settings = place.usable_settings()
    folder = Path(settings.log_dir)
    names = tuple(dict.fromkeys(options.component)) or COMPONENTS
    logs = [LogFile(name, folder / FILES[name]) for name in names]
    fresh = _fresh(logs, place)
    _print(_newest(fresh, options), options)
    while options.follow and fresh and not _reader_left(EVERY_S):
        fresh = _fresh(list(fresh), place)
        news = (entry for entries in fresh.values() for entry in [*entries][::-1])
        _print(sorted(_severe(news, options.level), key=_at), options)
    if any(log.exists for log in fresh):
        return OK
    if len(fresh) < len(logs):
        return NO_PERMISSION
    if names == ("dockerd",) and supervisor(Path(settings.run_dir)):
        fix = "`gpud status` says why; a dockerd of others: sudo journalctl -u docker"
        raise NotRunningError("gpud has started no dockerd: there is no log of it", fix=fix)
    raise NotRunningError(f"there is no log in {folder} yet", fix=place.start_command)


def read(component: str, raw: str) -> LogEntry:
    """Read a line; one that cannot be read is an entry with nothing but its text. Errors: none."""
    if component == "dockerd":
        match = _DOCKERD.fullmatch(raw)
        stamp, level, event = match.groups() if match else ("", "", raw)
        return LogEntry(component, event, "", _moment(stamp), _level(level))
    try:
        fields: Any = json.loads(raw)
        event, stamp = str(fields.pop("event")), fields.pop("timestamp")
        level = _level(fields.pop("level", None))
        rest = " ".join(f"{key}={_value(value)}" for key, value in fields.items())
    except (ValueError, RecursionError, AttributeError, TypeError, LookupError):
        return LogEntry(component, raw)
    return LogEntry(component, event, rest, _moment(stamp), level)


def drawn(entry: LogEntry) -> Line:
    """Draw an entry for a person: time, component, level, event, and the rest."""
    at = "-" if entry.at_s is None else local("%Y-%m-%d %H:%M:%S", entry.at_s)
    return line(
        Span(f"{at:<19} ", QUIET),
        Span(f"{entry.component:<7} "),
        Span(f"{entry.level or '':<8} ", COLOURS.get(entry.level or "", PLAIN)),
        Span(entry.event[: 4 * LONGEST]),
        Span(f" {entry.rest}" if entry.rest else "", QUIET),
    )


def _fresh(logs: Iterable[LogFile], place: Place) -> dict[LogFile, Iterator[LogEntry]]:
    """Return the new entries of each log that can be read; complain of the others."""
    entries = {}
    for log in logs:
        try:
            entries[log] = log.fresh()
        except OSError as error:
            output.say(f"gpud: cannot read {log.path}: {error.strerror}", error=True)
            if isinstance(error, PermissionError):
                output.say(f"  fix: {place.with_sudo}", error=True)
    return entries


def _newest(
    fresh: dict[LogFile, Iterator[LogEntry]], options: argparse.Namespace
) -> list[LogEntry]:
    """Return the newest entries of all logs by time, the oldest first."""

    def backwards(log: LogFile) -> Iterator[LogEntry]:
        yield from fresh[log]
        yield from log.past()

    since_s = -math.inf if options.since is None else options.since
    count = USUAL if options.lines is None and options.since is None else options.lines
    merged = heapq.merge(*map(backwards, fresh), key=_at, reverse=True)
    recent = takewhile(lambda entry: _at(entry) >= since_s, merged)
    return list(islice(_severe(recent, options.level), count))[::-1]


def _reader_left(within_s: float) -> bool:
    """Wait so many seconds, or until nobody reads stdout any more, as after `| head -1`."""
    pipe = select.poll()
    pipe.register(sys.stdout, 0)
    return bool(pipe.poll(within_s * 1000))


def _severe(entries: Iterable[LogEntry], least: str | None) -> Iterator[LogEntry]:
    """Return entries of that level or above; what has no level is never hidden."""
    levels = LEVELS[LEVELS.index(least) :] if least else LEVELS
    return (entry for entry in entries if entry.level is None or entry.level in levels)


def _at(entry: LogEntry) -> float:
    return -math.inf if entry.at_s is None else entry.at_s


def _print(entries: list[LogEntry], options: argparse.Namespace) -> None:
    view = View(sys.maxsize, ascii_only=output.ascii_only())
    lines = narrowed([drawn(entry) for entry in entries], view)
    colour = output.coloured(options.color)
    print(output.painted(lines, colour=colour), end="", flush=True)


def _tail(file: BinaryIO, begin: int = 0) -> bytes:
    """Read from there to the end, ``LARGEST`` bytes at most, without what a crash left as zeros."""
    file.seek(max(begin, os.fstat(file.fileno()).st_size - LARGEST))
    return file.read(LARGEST).replace(b"\0", b"")


def _backwards(component: str, data: bytes) -> Iterator[LogEntry]:
    """Read lines, the last first; one without a time has that of the line before it."""
    undated, at_s = list[LogEntry](), None
    for raw in filter(None, reversed(data.split(b"\n"))):
        entry = read(component, raw.decode(errors="replace"))
        undated.append(entry)
        if entry.at_s is not None:
            at_s = entry.at_s
            yield from (replace(each, at_s=at_s) for each in undated)
            undated.clear()
    yield from (replace(each, at_s=at_s) for each in undated)


def _level(text: object) -> str | None:
    level = SYNONYMS.get(text, text) if isinstance(text, str) else None
    return level if level in LEVELS else None


def _moment(text: object) -> float | None:
    """Read a time; of dockerd's nanoseconds Python reads six digits."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _value(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict) and "exc_type" in value[0]:
        value = f"{value[0].get('exc_type')}: {value[0].get('exc_value')}"  # a traceback's end
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    shown = escaped(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")
    return json.dumps(shown, ensure_ascii=False) if " " in shown else shown
