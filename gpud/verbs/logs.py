"""``gpud logs``: what agent, root and dockerd wrote, as one log by time, with ``-f`` what comes.

Lines are JSON of gpud's own, logfmt of dockerd, or anything else: such a line belongs to the one
before it, as a traceback does. No read waits for a writer or follows a link: the agent's directory
is the agent's, and the reader may be root.
"""

from __future__ import annotations

import errno
import heapq
import json
import math
import os
import re
import stat
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from gpud import output
from gpud.arguments import COMPONENTS, LEVELS, NO_PERMISSION, OK
from gpud.core.errors import NotRunningError
from gpud.core.text import escaped
from gpud.show.view import PLAIN, QUIET, Span, View, line, narrowed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gpud.place import Place
    from gpud.show.view import Line

FILES: Final = {"agent": "agent/agent.log", "root": "root.log", "dockerd": "dockerd.log"}
USUAL: Final = 100
"""Lines, where neither a time nor a number is given."""
EVERY_S: Final = 0.3
"""How often a followed file is looked at: three calls of the kernel."""
LARGEST: Final = 16 << 20
"""Bytes of a file, from its end: more than gpud lets a log become, and its writer may do so."""
ROTATED: Final = 9
"""Numbers of older files that are looked for."""
LONGEST: Final = 400
"""Characters of one value that are drawn; --json has all of them."""
COLOURS: Final = dict(zip(LEVELS, ("dim", "green", "yellow", "red", "bold red"), strict=True))
SYNONYMS: Final = {"warn": "warning", "fatal": "critical", "panic": "critical", "trace": "debug"}
_LOGFMT: Final = re.compile(r'(?<!\w)(\w++)=("(?:[^"\\]++|\\.)*+"|[^\s"]*)')
"""No character is read twice: dockerd repeats whatever it was sent, in lines of any length."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line. ``at_s`` is Unix time, None where the line does not say; ``level`` likewise."""

    component: str
    raw: str
    at_s: float | None = None
    level: str | None = None
    event: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


class LogFile:
    """A log that another process writes, rotates, empties, or has not made yet."""

    def __init__(self, component: str, path: Path) -> None:
        self.component = component
        self.path = path
        self.file: BinaryIO | None = None
        self.fresh: list[LogEntry] = []
        self._partial = b""
        self._begun = b""  # the whole lines there were when it was opened

    def open(self) -> None:
        """Read what is there. Errors: ``OSError`` for a file that cannot be read."""
        self.file = _opened(self.path)
        if self.file is not None:
            size = os.fstat(self.file.fileno()).st_size
            if size > LARGEST:
                message = f"{self.path} is larger than a log gets: its last {LARGEST >> 20} MiB"
                output.say(f"gpud: {message} are read", error=True)
            self._begun, self._partial = _whole(_tail(self.file))

    def past(self) -> Iterator[LogEntry]:
        """Return entries from the newest back, those of older files too. Errors: ``OSError``."""
        waiting: list[LogEntry] = []
        for raw in self._backwards():
            entry = read(self.component, raw)
            if entry.at_s is None:  # it stands below a line that has a time
                waiting.append(entry)
                continue
            yield from (replace(each, at_s=entry.at_s) for each in waiting)
            yield entry
            waiting.clear()
        yield from waiting

    def refresh(self) -> None:
        """Put entries of the lines that came since into ``fresh``. Errors: ``OSError``."""
        data = self._read() if self.file is not None else b""
        if self._replaced():
            data += self._read()  # what came between the read and the rename
            self.close()
            self.file = _opened(self.path)
            data += self._read() if self.file is not None else b""
        lines, self._partial = _whole(self._partial + data)
        self.fresh, last_s = [], None
        for raw in _texts(lines):
            entry = read(self.component, raw)
            last_s = last_s if entry.at_s is None else entry.at_s
            self.fresh.append(replace(entry, at_s=last_s))

    def close(self) -> None:
        """Close the file; a line that was cut off belongs to no other file."""
        if self.file is not None:
            self.file.close()
        self.file, self._partial = None, b""

    def _backwards(self) -> Iterator[str]:
        yield from reversed(_texts(self._begun))
        for number in range(1, ROTATED + 1):
            older = _opened(self.path.with_name(f"{self.path.name}.{number}"))
            if older is not None:
                with older:
                    yield from reversed(_texts(_tail(older)))

    def _replaced(self) -> bool:
        try:
            now = self.path.lstat()
        except FileNotFoundError:  # renamed a moment ago; its writer makes another
            return False
        return self.file is None or not os.path.samestat(now, os.fstat(self.file.fileno()))

    def _read(self) -> bytes:
        if self.file is None:
            return b""
        if os.fstat(self.file.fileno()).st_size < self.file.tell():  # copied aside and emptied
            self.file.seek(0)
            self._partial = b""
        return _tail(self.file, self.file.tell())


def run(options: argparse.Namespace, place: Place) -> int:
    """Print what was written, and with ``--follow`` what is, until Ctrl-C.

    Returns 0, 3 where there is no log yet, 4 where none may be read.
    """
    folder = Path(place.usable_settings().log_dir)
    names = tuple(dict.fromkeys(options.component)) or COMPONENTS
    with ExitStack() as stack:
        logs = [LogFile(name, folder / FILES[name]) for name in names]
        for log in logs:
            stack.callback(log.close)
        refused: list[OSError] = []
        shown = _newest(readable := _each(logs, LogFile.open, refused), options, refused)
        _print(shown, options)
        _complain(refused, place)
        while options.follow and readable:
            refused = []
            readable = _each(readable, LogFile.refresh, refused)
            fresh = (entry for log in readable for entry in log.fresh)
            _print(sorted(_severe(fresh, options.level), key=_at), options)
            _complain(refused, place)
            time.sleep(EVERY_S)
        there = any(log.file is not None for log in logs)
    if refused and not there:
        return NO_PERMISSION
    if shown or there:
        return OK
    raise NotRunningError(f"there is no log in {folder} yet", fix=place.start_command)


def read(component: str, raw: str) -> LogEntry:
    """Read a line; one that cannot be read is an entry with nothing but its text. Errors: none."""
    keys = ("time", "level", "msg") if component == "dockerd" else ("timestamp", "level", "event")
    try:
        fields: Any = _logfmt(raw) if component == "dockerd" else json.loads(raw)
    except (ValueError, RecursionError):
        return LogEntry(component, raw)
    if not isinstance(fields, dict):
        return LogEntry(component, raw)
    at_s, level, event = _moment(fields.get(keys[0])), fields.get(keys[1]), fields.get(keys[2])
    if at_s is None or not isinstance(event, str):
        return LogEntry(component, raw)
    level = SYNONYMS.get(level, level) if isinstance(level, str) else None
    rest = {key: value for key, value in fields.items() if key not in keys}
    return LogEntry(component, raw, at_s, level if level in LEVELS else None, event, rest)


def document(entry: LogEntry) -> dict[str, Any]:
    """Return an entry as plain JSON data; the line itself where it could not be read."""
    head = {"component": entry.component, "unix_s": entry.at_s}
    if entry.event is None:
        return {**head, "raw": entry.raw}
    head |= {"level": entry.level, "event": entry.event}
    fields = entry.fields.items()
    return {**head, **{f"field_{key}" if key in head else key: value for key, value in fields}}


def drawn(entry: LogEntry) -> Line:
    """Draw an entry for a person: time, component, level, event, and the rest."""
    head = (Span(f"{_time(entry.at_s)} ", QUIET), Span(f"{entry.component:<7} "))
    if entry.event is None:
        return line(*head, Span(f"{'':9}"), Span(entry.raw[: 4 * LONGEST], PLAIN))
    level = Span(f"{entry.level or '-':<8} ", COLOURS.get(entry.level or "", PLAIN))
    rest = " ".join(f"{key}={_value(value)}" for key, value in entry.fields.items())
    return line(*head, level, Span(entry.event), Span(f" {rest}" if rest else "", QUIET))


def _each(
    logs: list[LogFile], act: Callable[[LogFile], None], refused: list[OSError]
) -> list[LogFile]:
    """Do something with each log, and return those that could be read."""
    readable = []
    for log in logs:
        try:
            act(log)
            readable.append(log)
        except OSError as error:
            refused.append(error)
    return readable


def _newest(
    logs: list[LogFile], options: argparse.Namespace, refused: list[OSError]
) -> list[LogEntry]:
    """Return the newest entries of all logs by time, the oldest first."""

    def past(log: LogFile) -> Iterator[LogEntry]:
        try:
            yield from log.past()
        except OSError as error:
            refused.append(error)

    since_s = -math.inf if options.since is None else options.since
    count = USUAL if options.lines is None and options.since is None else options.lines
    merged = heapq.merge(*map(past, logs), key=_at, reverse=True)
    recent = takewhile(lambda entry: _at(entry) >= since_s, merged)
    return list(islice(_severe(recent, options.level), count))[::-1]


def _severe(entries: Iterable[LogEntry], least: str | None) -> Iterator[LogEntry]:
    """Return entries of that level or above; what has no level is never hidden."""
    levels = LEVELS[LEVELS.index(least) :] if least else LEVELS
    return (entry for entry in entries if entry.level is None or entry.level in levels)


def _at(entry: LogEntry) -> float:
    return -math.inf if entry.at_s is None else entry.at_s


def _print(entries: list[LogEntry], options: argparse.Namespace) -> None:
    if options.json:
        text = "".join(f"{json.dumps(document(entry))}\n" for entry in entries)
    else:
        view = View(sys.maxsize, ascii_only=output.ascii_only(sys.stdout))
        lines = narrowed([drawn(entry) for entry in entries], view)
        text = output.painted(lines, colour=output.coloured(options.color, sys.stdout))
    print(text, end="", flush=True)


def _complain(refused: list[OSError], place: Place) -> None:
    for error in refused:
        output.say(f"gpud: cannot read {error.filename}: {error.strerror}", error=True)
    if any(isinstance(error, PermissionError) for error in refused):
        output.say(f"  fix: {place.with_sudo}", error=True)


def _opened(path: Path) -> BinaryIO | None:
    """Open a regular file to read; None if it does not exist. Errors: ``OSError``."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb", buffering=0)  # noqa: PTH123  # of a descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no plain file", str(path))


def _tail(file: BinaryIO, begin: int = 0) -> bytes:
    """Read from there to the end, ``LARGEST`` bytes at most, without what a crash left as zeros."""
    size = os.fstat(file.fileno()).st_size
    file.seek(max(begin, size - LARGEST))
    return file.read(LARGEST).replace(b"\0", b"")


def _whole(data: bytes) -> tuple[bytes, bytes]:
    """Split behind the last whole line."""
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]


def _texts(data: bytes) -> list[str]:
    return [raw.decode(errors="replace") for raw in data.split(b"\n") if raw]


def _logfmt(raw: str) -> dict[str, str]:
    return {
        key: re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
        for key, value in _LOGFMT.findall(raw)
    }


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


def _time(at_s: float | None) -> str:
    try:
        at = datetime.fromtimestamp(at_s or math.nan)  # noqa: DTZ006  # as the clock on the wall
    except (ValueError, OverflowError, OSError):
        return f"{'-':<19}"
    return at.isoformat(" ", "seconds")
