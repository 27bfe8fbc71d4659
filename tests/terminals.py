"""Terminals of tests: a program on a pty of some size, and what it writes there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import termios
import time
from typing import TYPE_CHECKING

from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "xterm"}
END = "\0the end\0"


class Screen:
    """``unread`` is what came since the last match; ``everything`` what ever came."""

    def __init__(self) -> None:
        self.unread = self.everything = ""
        self.over = False

    def fileno(self) -> int:
        raise NotImplementedError

    def read(self) -> None:
        """Take in what is there; blocks when nothing is. Sets ``over`` at the end."""
        raise NotImplementedError

    def take(self, text: str) -> None:
        self.unread += text
        self.everything += text

    def expect(self, pattern: str, within_s: float = LIMIT_S) -> re.Match[str]:
        """Read until ``pattern`` is there, and forget what came up to its end."""
        deadline = time.monotonic() + within_s
        while not (match := re.search(pattern, self.unread)):
            left_s = max(0.0, deadline - time.monotonic())
            if self.over or not select.select([self], [], [], left_s)[0]:
                why = "the terminal ended" if self.over else f"not within {within_s:g} s"
                raise AssertionError(f"{pattern!r}: {why}: {self.everything[-4000:]!r}")
            self.read()
        self.unread = self.unread[match.end() :]
        return match

    def until(self, text: str) -> str:
        """Read until ``text`` has come, and give what came before it."""
        match = self.expect(re.escape(text))
        return match.string[: match.start()].replace("\r", "")


class Window(Screen):
    """A program on a pty of its own, as a person has it."""

    def __init__(
        self, argv: list[str], environ: Mapping[str, str], rows: int = 24, columns: int = 80
    ) -> None:
        super().__init__()
        # With no slave left open, what a program wrote last can be lost: Linux may report the
        # hang-up before it has moved the bytes to the master.
        self.master, self.slave = os.openpty()
        self.resize(rows, columns)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self.master)
                os.login_tty(self.slave)
                os.execvpe(argv[0], argv, environ)
            finally:
                os._exit(127)

    def fileno(self) -> int:
        return self.master

    def read(self) -> None:
        self.take(os.read(self.master, 65536).decode(errors="replace"))

    def send(self, text: str) -> None:
        os.write(self.master, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def keys(self) -> list[object]:
        """How the terminal treats keys."""
        return list(termios.tcgetattr(self.master))

    def close(self) -> int:
        """Hang up, and give how the program ended, negative for a signal."""
        for end in (self.slave, self.master):
            with contextlib.suppress(OSError):
                os.close(end)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def ended(self) -> int:
        """Read to the end of the program, and give how it ended."""
        program = os.pidfd_open(self.pid)
        while program not in select.select([self.master, program], [], [], LIMIT_S)[0]:
            self.read()
        os.close(program)
        os.write(self.slave, END.encode())
        self.unread = self.until(END)
        self.everything = self.everything.removesuffix(END)
        return self.close()


@contextlib.contextmanager
def window(
    argv: list[str], rows: int = 24, columns: int = 80, environ: Mapping[str, str] | None = None
) -> Iterator[Window]:
    """Start a program in a window of its own, and leave nothing of it."""
    shown = Window(argv, ENVIRONMENT | dict(environ or {}), rows, columns)
    try:
        yield shown
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(shown.pid, signal.SIGKILL)
            shown.close()
