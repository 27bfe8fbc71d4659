"""Reader of the kernel's messages about the GPU's bus, without consuming them for others.

``/dev/kmsg`` gives every reader a position of its own, and what one reads stays there for all
others; ``/proc/kmsg`` would take the lines from syslogd. A new reader begins with the oldest record
the kernel still has, so what happened before gpud started is heard too; all of it is of this boot.
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.core.report import RECENT_S, DxgKind, KernelLogReport, KernelTrouble
from gpud.known_issues.catalogue import TextOrigin
from gpud.known_issues.matching import patterns
from gpud.root import dxg

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_EVERY_S = 1.0
OPEN_AGAIN_S = 60.0
FRESH_S = 20.0
"""Between two looks, which a busy machine makes late: a line is then of now, whatever the clock of
the log says."""
NEW_S = 60.0
"""A line that the first look finds has a moment when it is newer than this."""
MOST_RECORDS = 500
"""Records taken at one look. More arrive only in a flood, which then overwrites some of them."""
LARGEST_RECORD = 8192
"""CONSOLE_EXT_LOG_MAX of the kernel: no record is longer."""

_WHY = {
    errno.ENOENT: ("absent", "there is no {path}: a container, or a kernel without it"),
    errno.EACCES: ("refused", "{path} may not be read by this user"),
    errno.EPERM: ("refused", "the kernel shows its log to root only (kernel.dmesg_restrict)"),
}


class KernelLog:
    """The kernel's log below ``sysroot``: ``step`` takes what is new, ``report`` tells of it."""

    def __init__(
        self,
        sysroot: str,
        *,
        read: Callable[[int, int], bytes] = os.read,
        boot_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = Path(sysroot, "dev/kmsg")
        self._read = read
        self._boot_s = boot_s
        self._fd = -1
        self._number = -1  # of the last record
        self._empty_at_s = -math.inf  # Unix time of the last look that left nothing
        self._next_s = 0.0
        self._unreadable: tuple[str, str] | None = ("unread", "nobody has looked yet")
        self._overruns = 0
        self._counts = dict.fromkeys(DxgKind, 0)
        self._troubles: deque[tuple[float, DxgKind]] = deque(maxlen=dxg.MOST_TROUBLES)
        self._last: KernelTrouble | None = None
        self._traces = dxg.KnownTraces(patterns(TextOrigin.KERNEL_LOG))

    def step(self, now_s: float) -> None:
        """Take what was written since the last look, at most once a second, never waiting."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_EVERY_S
        if self._fd < 0 and not self._opened():
            self._next_s = now_s + OPEN_AGAIN_S
            return
        try:
            self._take_new()
        except OSError as error:
            self._failed(error)
            self._next_s = now_s + OPEN_AGAIN_S
        self._traces.settle(self._boot_s())

    def report(self) -> KernelLogReport:
        """Give what is known, or why nothing is."""
        if self._unreadable is not None:
            reason, detail = self._unreadable
            traces = dict(self._traces.found)
            return KernelLogReport(unreadable=reason, detail=detail, traces=traces)
        since_s = self._boot_s() - RECENT_S
        return KernelLogReport(
            counts={str(kind): count for kind, count in self._counts.items()},
            overruns=self._overruns,
            last=self._last,
            recent=dict(Counter(str(kind) for at_s, kind in self._troubles if at_s > since_s)),
            traces=dict(self._traces.found),
        )

    def close(self) -> None:
        """Let go of the log."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take_new(self) -> None:
        for _ in range(MOST_RECORDS):
            try:
                raw = self._read(self._fd, LARGEST_RECORD)
            except BlockingIOError:
                raw = b""
            except BrokenPipeError:  # overwritten meanwhile; the next read goes on
                self._overruns += 1
                continue
            if not raw:
                self._empty_at_s = time.time()
                return
            self._take(raw)

    def _take(self, raw: bytes) -> None:
        line = dxg.record(raw.decode("utf-8", "replace"))
        if line is None or line.number <= self._number:  # read before the log was opened again
            return
        self._number = line.number
        at_s, kind = self._moment_s(line), dxg.judged(line.text)
        if kind is not None:
            self._counts[kind] += 1
        if kind in dxg.TROUBLES:
            self._troubles.append((line.at_s, kind))
            self._last = KernelTrouble(kind, dxg.quoted(line.text), at_s)
        self._traces.take(line, at_s)

    def _moment_s(self, line: dxg.Line) -> float | None:
        """Return the Unix time of a line; None where the machine may have slept since then.

        The clock of the log stands meanwhile, and in WSL2 nothing else shows it.
        """
        now_s, age_s = time.time(), self._boot_s() - line.at_s
        if 0 <= now_s - self._empty_at_s <= FRESH_S:
            return now_s
        return now_s - age_s if self._empty_at_s < 0 and age_s <= NEW_S else None

    def _opened(self) -> bool:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
        try:
            self._fd = os.open(self._path, flags)
        except OSError as error:
            self._failed(error)
            return False
        self._unreadable = None
        return True

    def _failed(self, error: OSError) -> None:
        self.close()
        unknown = ("failed", f"{{path}}: {error.strerror}")
        reason, detail = _WHY.get(error.errno or 0, unknown)
        self._unreadable = (reason, detail.format(path=self._path))
