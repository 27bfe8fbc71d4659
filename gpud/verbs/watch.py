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

from gpud import output, portholder
from gpud.core.errors import ConfigError, GpudError
from gpud.document.status import read
from gpud.place import document, legible
from gpud.show import status
from gpud.show.view import BAD, QUIET, Span, View, line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from gpud.place import Place
    from gpud.show.view import Line

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
"""Another page, no cursor, and lines that are too long end at the edge."""
LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
QUIT: Final = frozenset(b"qQ\x03\x04")
ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
STOPS: Final = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
FOOT: Final = "q: leave"


def run(run_dir: Path, place: Place, *, every_s: float, colour: str) -> int:
    """Show the status until a key or a signal ends it; 0 for q, 128 and the signal for a signal.

    Errors: ``ConfigError`` where there is no terminal to draw on.
    """
    if not sys.stdout.isatty() or output.dumb():
        raise ConfigError(
            "--watch needs a terminal that can move its cursor",
            fix=f"watch -n {every_s:g} gpud status",
        )
    screen = _Screen(output.coloured(colour, sys.stdout))
    published: dict[str, Any] | None = None
    with _waking() as wake, screen.entered():
        while True:
            try:
                latest = document(run_dir)
                trouble = None if latest is not None else place.not_running(run_dir)
                published = latest or published
            except (GpudError, OSError) as error:
                trouble = str(error)
            screen.show(_drawn(published, trouble, output.view(sys.stdout)))
            event = wake(every_s)
            if event == signal.SIGTSTP:
                screen.leave()
                signal.raise_signal(signal.SIGSTOP)  # on goes the shell; fg is SIGCONT
                screen.enter()
            elif event in {signal.SIGWINCH, signal.SIGCONT}:
                screen.forget()
            elif event is not None:
                return 128 + event if event else 0


def _drawn(published: dict[str, Any] | None, trouble: str | None, view: View) -> list[Line]:
    """Draw what was published last, below what is wrong now; it fits the screen."""
    shown = [] if trouble is None else [line(Span(trouble, BAD))]
    room = View(view.width, max(view.height or 1, 2) - len(shown), ascii_only=view.ascii_only)
    if published is not None:
        try:
            with legible():
                shown += status.screen(read(portholder.with_listener(published)), time.time(), room)
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
    def entered(self) -> Iterator[None]:
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
        print(ENTER, end="", flush=True)

    def leave(self) -> None:
        if self._keys is not None:
            with suppress(termios.error):
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._keys)
            self._keys = None
        with suppress(OSError):  # the terminal may be what is gone
            print(LEAVE, end="", flush=True)

    def forget(self) -> None:
        """Write everything next time: the size or the page is another."""
        self._shown = []

    def show(self, lines: list[Line]) -> None:
        drawn = [output.painted_line(each, colour=self._colour) for each in lines]
        parts = ["\x1b[2J"] if len(drawn) != len(self._shown) else []
        before = self._shown if not parts else [""] * len(drawn)
        for row, (old, new) in enumerate(zip(before, drawn, strict=True), start=1):
            if old != new:
                parts.append(f"\x1b[{row};1H\x1b[2K{new}")
        self._shown = drawn
        if parts:
            print("".join(parts), end="", flush=True)


@contextmanager
def _waking() -> Iterator[Callable[[float], int | None]]:
    """Yield a function that waits for a signal or a key.

    It returns the signal, 0 for a key that leaves, None when time is up.
    """
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = {number: signal.signal(number, lambda *_: None) for number in (*ENDS, *STOPS)}
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


def _worst(numbers: bytes) -> int:
    return next((number for number in numbers if number in ENDS), numbers[-1])
