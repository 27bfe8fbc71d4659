"""Child processes with a deadline, at most one kill, bounded output, and never an endless wait.

Nothing here blocks, however long the kernel keeps a process.

asyncio's own subprocesses are not used: they wait in a thread that a process in state D would hold
for ever, and a transport left behind complains when it is collected.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpud.agent import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gpud.core.report import ProcessRef

STDOUT_BYTES = 1 << 20
STDERR_BYTES = 4096
CHUNK = 1 << 16
MOST_IN_A_PIPE = 4096
"""Always taken at once, whoever reads and however little of a pipe the kernel grants a user."""
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


async def run(  # noqa: PLR0913  # each is one thing a caller chooses
    command: Sequence[str],
    stdin: bytes,
    *,
    deadline_s: float,
    pass_fds: Sequence[int] = (),
    grace_s: float = GRACE_S,
    started: Callable[[ProcessRef], None] = lambda _: None,
    environment: Mapping[str, str] = ENVIRONMENT,
    end_talkative: bool = False,
    with_group: bool = False,
) -> Ended:
    """Start ``command``, feed it ``stdin`` and wait for its end; ``started`` is told who it is.

    ``end_talkative``: one that says more than is kept is killed then, not at the deadline.
    ``with_group``: and with it whatever it has started that stayed in its process group.
    Errors: ``OSError`` when it cannot start. A cancelled call leaves the process to end itself:
    killing GPU work is the one thing not to do in a hurry.
    """
    loop = asyncio.get_running_loop()
    with _offered(stdin) as offered:
        process = subprocess.Popen(  # noqa: ASYNC220  # takes a millisecond; the wait is not in it
            command,
            stdin=offered,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
            cwd="/",
            env=environment,
        )
    assert process.stdout and process.stderr  # noqa: S101, PT018  # PIPE above
    out = _Collected(process.stdout.fileno(), keep=STDOUT_BYTES, last=False)
    err = _Collected(process.stderr.fileno(), keep=STDERR_BYTES, last=True)
    pidfd = os.pidfd_open(process.pid)
    exited, enough = asyncio.Event(), asyncio.Event()
    loop.add_reader(pidfd, _set, exited, enough)
    for pipe in (out, err):
        full = enough if end_talkative and pipe is out else None
        loop.add_reader(pipe.fd, _pump, loop, pipe, full)
    killed = False
    try:
        if (me := processes.ref(process.pid)) is not None:
            started(me)
        if not await _within(enough, deadline_s) or not exited.is_set():
            killed = True
            with contextlib.suppress(ProcessLookupError):
                if with_group:  # not reaped yet: the number is still its own
                    os.killpg(process.pid, signal.SIGKILL)
                else:
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
        process.stdout.close()
        process.stderr.close()
        processes.leave(process)


@contextlib.contextmanager
def _offered(stdin: bytes) -> Iterator[int]:
    """Give a descriptor to read ``stdin`` from; what a pipe may not take at once is a file."""
    if len(stdin) <= MOST_IN_A_PIPE:
        reading, writing = os.pipe()
        os.write(writing, stdin)
        os.close(writing)
    else:
        reading = os.memfd_create("stdin")
        with open(reading, "wb", closefd=False) as file:
            file.write(stdin)
        os.lseek(reading, 0, os.SEEK_SET)
    try:
        yield reading
    finally:
        os.close(reading)


def _pump(
    loop: asyncio.AbstractEventLoop, pipe: _Collected, full: asyncio.Event | None = None
) -> None:
    if not pipe.read():
        loop.remove_reader(pipe.fd)
    if full is not None and pipe.overflowed:
        full.set()


def _set(*events: asyncio.Event) -> None:
    for event in events:
        event.set()


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
