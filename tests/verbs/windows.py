"""A terminal window of a test: a program on a pty of some size, and what it writes there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.verbs.homes import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PATIENCE_S = 30.0


@dataclass
class Window:
    """``unread`` is what came since the last match; ``everything`` what ever came."""

    pid: int
    fd: int
    unread: str = ""
    everything: str = ""

    def expect(self, pattern: str, within_s: float = PATIENCE_S) -> re.Match[str]:
        """Read until the pattern is there, and forget what came up to its end."""
        deadline = time.monotonic() + within_s
        while not (match := re.search(pattern, self.unread)):
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"{pattern!r} is not in {self.everything[-3000:]!r}")
        self.unread = self.unread[match.end() :]
        return match

    def send(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def keys(self) -> list[object]:
        """How the terminal treats keys."""
        return list(termios.tcgetattr(self.fd))

    def ended(self) -> int:
        """Read to the end and give the exit status, negative for a signal."""
        while self._read(PATIENCE_S):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self, within_s: float) -> bool:
        if not select.select([self.fd], [], [], within_s)[0]:
            return False
        try:
            text = os.read(self.fd, 65536).decode(errors="replace")
        except OSError:  # the last process has closed it
            return False
        self.unread += text
        self.everything += text
        return bool(text)


@contextlib.contextmanager
def window(
    argv: list[str],
    rows: int = 24,
    columns: int = 80,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Window]:
    """Start a program in a window of its own, and leave nothing of it."""
    pid, fd = pty.fork()
    if pid == 0:
        with contextlib.suppress(OSError):
            size = struct.pack("HHHH", rows, columns, 0, 0)
            fcntl.ioctl(0, termios.TIOCSWINSZ, size)
            os.execvpe(argv[0], argv, ENVIRONMENT | dict(environ or {}))
        os._exit(127)
    try:
        yield Window(pid, fd)
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(fd)
