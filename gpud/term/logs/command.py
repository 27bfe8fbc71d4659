"""``gpud logs``: the verb, its output and its exit code."""

from __future__ import annotations

import heapq
import json
import math
import sys
import time
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.core.errors import ConfigError
from gpud.core.text import escaped
from gpud.show.view import View, narrowed
from gpud.term import paint, terminal
from gpud.term.logs.entries import COMPONENTS, Entry, document, drawn, entry, severe
from gpud.term.logs.files import LARGEST, Followed, backwards
from gpud.term.when import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpud.core.settings import Settings

OK, NOT_RUNNING, NO_PERMISSION = 0, 3, 4
FILES: Final = {"agent": "agent/agent.log", "root": "root.log", "dockerd": "dockerd.log"}
USUAL: Final = 100
"""Lines, where neither a time nor a number is given."""
EVERY_S: Final = 0.3
"""How often a followed file is looked at: three calls of the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the person asked for."""

    components: tuple[str, ...] = ()
    since: str | None = None
    count: int | None = None
    level: str | None = None
    follow: bool = False
    as_json: bool = False
    colour: str = "auto"
    as_root: str = "sudo gpud logs"  # the same command for root


def run(
    settings: Settings,
    request: Request,
    *,
    now_s: float,
    rest: Callable[[float], None] = time.sleep,
) -> int:
    """Print what was written, and with ``follow`` what is, until Ctrl-C.

    Gives 0, 3 where nothing was ever written, 4 where nothing may be read. Errors: ``ConfigError``
    for a moment that is none; ``GpudError`` where stdout takes no more.
    """
    since_s = _since(request, now_s)
    directory = Path(settings.log_dir)
    chosen = request.components or COMPONENTS
    followed = {name: Followed(directory / FILES[name]) for name in chosen}
    refused: dict[str, OSError] = {}
    found: dict[str, Iterator[Entry]] = {}
    for name, file in followed.items():
        try:
            size = file.begin()
        except OSError as error:
            refused[name] = error
            continue
        if size is not None and size > LARGEST:
            words = f"{file.path} is larger than a log gets: its last {LARGEST >> 20} MiB are read"
            print(f"gpud: {escaped(words)}", file=sys.stderr, flush=True)
        found[name] = _past(name, file.path, size, refused)
    count = request.count if request.count is not None else USUAL if request.since is None else None
    shown = list(islice(_newest(found.values(), since_s, request.level), count))
    _put(shown[::-1], request)
    _complain(refused, request)
    if not request.follow:
        if refused and all(file.descriptor is None for file in followed.values()):
            return NO_PERMISSION
        return _unless_empty(directory, shown, followed)
    return _follow({name: followed[name] for name in chosen if name not in refused}, request, rest)


def _follow(followed: dict[str, Followed], request: Request, rest: Callable[[float], None]) -> int:
    refused: dict[str, OSError] = {}
    while followed:
        fresh: list[Entry] = []
        for name, file in list(followed.items()):
            try:
                lines = file.fresh()
            except OSError as error:
                refused[name] = error
                del followed[name]
                continue
            told = _dated_forwards(entry(name, raw) for raw in lines)
            fresh += [one for one in told if severe(one, request.level)]
        _put(sorted(fresh, key=_at), request)
        _complain(refused, request)
        refused.clear()
        rest(EVERY_S)
    return NO_PERMISSION


def _since(request: Request, now_s: float) -> float:
    try:
        return -math.inf if request.since is None else moment(request.since, now_s=now_s)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _newest(parts: Iterable[Iterator[Entry]], since_s: float, level: str | None) -> Iterator[Entry]:
    """Give entries of all parts from the newest back."""
    merged = heapq.merge(*parts, key=_at, reverse=True)
    for one in merged:
        if _at(one) < since_s:
            return
        if severe(one, level):
            yield one


def _dated(backwards_: Iterable[Entry]) -> Iterator[Entry]:
    """Give lines without a time that of the line they stand below, which comes after them here."""
    waiting: list[Entry] = []
    for one in backwards_:
        if one.at_s is None:
            waiting.append(one)
            continue
        yield from (replace(each, at_s=one.at_s) for each in waiting)
        yield one
        waiting.clear()
    yield from waiting


def _dated_forwards(entries: Iterable[Entry]) -> Iterator[Entry]:
    last_s: float | None = None
    for one in entries:
        last_s = one.at_s if one.at_s is not None else last_s
        yield one if one.at_s is not None else replace(one, at_s=last_s)


def _at(one: Entry) -> float:
    return -math.inf if one.at_s is None else one.at_s


def _past(name: str, path: Path, size: int | None, refused: dict[str, OSError]) -> Iterator[Entry]:
    """Give a component's entries from the newest back, up to a file that cannot be read."""

    def lines() -> Iterator[str]:
        try:
            yield from backwards(path, size)
        except OSError as error:
            refused[name] = error

    return _dated(entry(name, raw) for raw in lines())


def _put(entries: Iterable[Entry], request: Request) -> None:
    """Print entries. Errors: as those of ``terminal.put``."""
    entries = list(entries)
    if not entries:
        return
    if request.as_json:
        terminal.put("".join(f"{json.dumps(document(one))}\n" for one in entries))
        return
    view = View(ascii_only=terminal.ascii_only(sys.stdout))
    lines = narrowed([drawn(one) for one in entries], view)
    terminal.put(paint.painted(lines, colour=paint.wanted(request.colour, sys.stdout)))


def _complain(refused: dict[str, OSError], request: Request) -> None:
    for error in refused.values():
        print(
            f"gpud: cannot read {escaped(str(error.filename))}: {error.strerror}", file=sys.stderr
        )
    if any(isinstance(error, PermissionError) for error in refused.values()):
        print(f"  fix: {escaped(request.as_root)}", file=sys.stderr, flush=True)


def _unless_empty(directory: Path, shown: list[Entry], followed: dict[str, Followed]) -> int:
    if shown or any(file.descriptor is not None for file in followed.values()):
        return OK
    print(f"gpud: there is no log in {escaped(str(directory))} yet", file=sys.stderr)
    print("  fix: gpud writes one as soon as it runs: gpud up", file=sys.stderr, flush=True)
    return NOT_RUNNING
