"""``gpud status --watch``: the screen again and again, on a page of the terminal of its own.

Whatever ends it, the terminal is as it was: what was on it, its cursor, how it treats keys.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from gpud import portholder
from gpud.core.errors import ConfigError, GpudError
from gpud.place import legible
from gpud.show import status
from gpud.show.document import read
from gpud.show.view import BAD, QUIET, Span, View, line
from gpud.term import paint, terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Any

    from gpud.show.view import Line

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
"""Another page, no cursor, and lines that are too long end at the edge."""
LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
QUIT: Final = frozenset(b"qQ\x03\x04")
ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
STOPS: Final = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
FOOT: Final = "q: leave"


def run(
    read: Callable[[], dict[str, Any] | None],
    absent: Callable[[], str],
    *,
    every_s: float,
    colour: str,
    clock: Callable[[], float] = time.time,
) -> int:
    """Show what ``read`` gives until somebody leaves; 0 for q, 128 and the signal for a signal.

    ``absent`` says what there is to say while nothing runs. Errors: ``ConfigError`` where there is
    no terminal to draw on.
    """
    if not sys.stdout.isatty() or terminal.dumb():
        raise ConfigError(
            "--watch needs a terminal that can move its cursor",
            fix=f"watch -n {every_s:g} gpud status",
        )
    with _waking() as wake:
        screen = _Screen(paint.wanted(colour, sys.stdout))
        with screen.held():
            last: dict[str, Any] | None = None
            while True:
                last, trouble = _looked(read, absent, last)
                screen.show(_drawn(last, trouble, screen.view(), clock()))
                heard = wake(every_s)
                if heard is None:
                    continue
                if heard == signal.SIGTSTP:
                    screen.leave()
                    signal.raise_signal(signal.SIGSTOP)  # on goes the shell; fg is SIGCONT
                    screen.enter()
                elif heard in {signal.SIGWINCH, signal.SIGCONT}:
                    screen.forget()
                else:
                    return 0 if heard == 0 else 128 + heard


def _looked(
    read: Callable[[], dict[str, Any] | None],
    absent: Callable[[], str],
    last: dict[str, Any] | None,
) -> tuple[dict[str, Any] | None, str | None]:
    """Give the newest document and, where that is not of now, why there is no newer one."""
    try:
        told = read()
    except (GpudError, OSError) as error:
        return last, str(error)
    return (told, None) if told is not None else (last, absent())


def _drawn(
    document: dict[str, Any] | None, trouble: str | None, view: View, now_s: float
) -> list[Line]:
    shown = [] if trouble is None else [line(Span(trouble, BAD))]
    room = View(view.width, max(view.height or 1, 2) - len(shown), ascii_only=view.ascii_only)
    if document is not None:
        try:
            with legible():
                shown += status.screen(read(portholder.with_listener(document)), now_s, room)
        except GpudError as error:
            shown.append(line(Span(f"{error}; {error.fix}", BAD)))
    fits = (view.height or len(shown)) - 1
    if len(shown) > fits:
        hidden = len(shown) - fits
        return [*shown[:fits], line(Span(f"{FOOT}; {hidden} more lines below", QUIET))]
    return [*shown, *[line()] * (fits - len(shown)), line(Span(FOOT, QUIET))]


class _Screen:
    """The page of the terminal, of which only changed lines are written."""

    def __init__(self, colour: bool) -> None:  # noqa: FBT001  # its one property
        self._colour = colour
        self._shown: list[str] = []
        self._keys: list[Any] | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> None:
        if sys.stdin.isatty():
            with suppress(termios.error):  # a job in the background may not
                self._keys = termios.tcgetattr(sys.stdin)
                tty.setcbreak(sys.stdin)
        self.forget()
        terminal.put(ENTER)

    def leave(self) -> None:
        if self._keys is not None:
            with suppress(termios.error):
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._keys)
            self._keys = None
        with suppress(GpudError, OSError):  # the terminal may be what is gone
            terminal.put(LEAVE)

    def forget(self) -> None:
        """Write everything next time: the size or the page is another."""
        self._shown = []

    def view(self) -> View:
        try:
            size = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            size = os.terminal_size((80, 24))
        ascii_only = terminal.ascii_only(sys.stdout)
        return View(size.columns or 80, size.lines or 24, ascii_only=ascii_only)

    def show(self, lines: list[Line]) -> None:
        drawn = [paint.one(each, colour=self._colour) for each in lines]
        parts = ["\x1b[2J"] if len(drawn) != len(self._shown) else []
        before = self._shown if not parts else [""] * len(drawn)
        for row, (old, new) in enumerate(zip(before, drawn, strict=True), start=1):
            if old != new:
                parts.append(f"\x1b[{row};1H\x1b[2K{new}")
        self._shown = drawn
        if parts:
            terminal.put("".join(parts))


@contextmanager
def _waking() -> Iterator[Callable[[float], int | None]]:
    """Give what waits for a signal or a key: the signal, 0 for leaving, None when time is up."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = {number: signal.signal(number, _heard) for number in (*ENDS, *STOPS)}
    earlier = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def wake(seconds: float) -> int | None:
        watched = [reader, *([sys.stdin.fileno()] if sys.stdin.isatty() else [])]
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            ready, _, _ = select.select(watched, [], [], left_s)
            if reader in ready:
                return _worst(os.read(reader, 64))
            if ready:
                keys = os.read(sys.stdin.fileno(), 64)
                if not keys or QUIT.intersection(keys):
                    return 0
        return None

    try:
        yield wake
    finally:
        signal.set_wakeup_fd(earlier)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def _heard(_: int, __: FrameType | None) -> None:
    """Leave it to the pipe."""


def _worst(numbers: bytes) -> int:
    return next((number for number in numbers if number in ENDS), numbers[-1])
