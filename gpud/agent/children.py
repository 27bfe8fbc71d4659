"""Run one process with a deadline, at most one kill, bounded output, and never an endless wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT_STDOUT = 1 << 20
KEPT_STDERR = 4096
CHUNK = 1 << 16
MOST_LEFT_IN_A_PIPE = 1 << 20
"""What a pipe can hold at the most; a reader that goes on for longer follows a living writer."""
GRACE_S = 5.0
"""How long a killed process may take to go. One in state D never does."""

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}
"""All a child gets: what it needs to know comes on stdin."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended. ``code`` is None when it was killed and did not go away."""

    pid: int
    code: int | None
    stdout: bytes
    stderr: bytes
    overflowed: bool
    killed: bool


class _Collected:
    """What came out of one pipe: the first ``keep`` bytes, or the last; the rest is let go."""

    def __init__(self, fd: int, *, keep: int, last: bool) -> None:
        self.fd = fd
        self.data = bytearray()
        self.overflowed = False
        self._keep = keep
        self._last = last
        os.set_blocking(fd, False)

    def read(self) -> bool:
        """Take what is there; False at the end of the stream."""
        try:
            chunk = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        self.data += chunk
        if len(self.data) > self._keep:
            self.overflowed = True
            del self.data[slice(0, -self._keep) if self._last else slice(self._keep, None)]
        return True

    def drain(self) -> None:
        """Take what is left after the process ended; a grandchild may hold the pipe open."""
        for _ in range(MOST_LEFT_IN_A_PIPE // CHUNK):
            if not self.read():
                break


async def run(
    command: Sequence[str],
    stdin: bytes,
    *,
    deadline_s: float,
    pass_fds: Sequence[int] = (),
    grace_s: float = GRACE_S,
) -> Ended:
    """Start ``command``, feed it ``stdin`` and wait for its end.

    Errors: ``OSError`` when it cannot start. A cancelled call leaves the process to end itself:
    killing GPU work is the one thing not to do in a hurry.
    """
    loop = asyncio.get_running_loop()
    process = subprocess.Popen(  # noqa: ASYNC220  # takes a millisecond; the wait is not in it
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=tuple(pass_fds),
        start_new_session=True,
        cwd="/",
        env=ENVIRONMENT,
    )
    assert process.stdin and process.stdout and process.stderr  # noqa: S101, PT018  # PIPE above
    out = _Collected(process.stdout.fileno(), keep=KEPT_STDOUT, last=False)
    err = _Collected(process.stderr.fileno(), keep=KEPT_STDERR, last=True)
    pidfd = os.pidfd_open(process.pid)
    exited = asyncio.Event()
    loop.add_reader(pidfd, exited.set)
    for pipe in (out, err):
        loop.add_reader(pipe.fd, _pump, loop, pipe)
    killed = False
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(stdin)  # far below the 64 KiB a pipe takes without a reader
            process.stdin.close()
        if not await _within(exited, deadline_s):
            killed = True
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            await _within(exited, grace_s)
        code = process.poll()
        for pipe in (out, err):
            pipe.drain()
        return Ended(process.pid, code, bytes(out.data), bytes(err.data), out.overflowed, killed)
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
        for pipe in (out, err):
            loop.remove_reader(pipe.fd)
        for stream in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        if process.poll() is None:
            _left_behind.append(process)
        _left_behind[:] = [left for left in _left_behind if left.poll() is None]


_left_behind: list[subprocess.Popen[bytes]] = []
"""Processes that outlived their call, kept only so that their zombies are reaped later."""


def _pump(loop: asyncio.AbstractEventLoop, pipe: _Collected) -> None:
    if not pipe.read():
        loop.remove_reader(pipe.fd)


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
