"""Run a process with a deadline, at most one kill, bounded output, and never an endless wait.

A process that is left behind is watched through a descriptor that becomes readable when it ends:
nothing here blocks, however long the kernel keeps it.

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
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.core.proc import start_ticks
from gpud.core.report import ProcessRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

KEPT_STDOUT = 1 << 20
KEPT_STDERR = 4096
LONGEST_LINE = 4 << 20
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
    out = _Collected(process.stdout.fileno(), keep=KEPT_STDOUT, last=False)
    err = _Collected(process.stderr.fileno(), keep=KEPT_STDERR, last=True)
    pidfd = os.pidfd_open(process.pid)
    exited, enough = asyncio.Event(), asyncio.Event()
    loop.add_reader(pidfd, _set, exited, enough)
    for pipe in (out, err):
        full = enough if end_talkative and pipe is out else None
        loop.add_reader(pipe.fd, _pump, loop, pipe, full)
    killed = False
    try:
        if (me := ref(process.pid)) is not None:
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
        _leave(process)


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


def ref(pid: int) -> ProcessRef | None:
    """Look a living process up; None for none and for a zombie, which only waits to be reaped."""
    try:
        ticks = start_ticks(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except OSError:
        return None
    return None if ticks is None else ProcessRef(pid, ticks)


def signal_name(number: int) -> str:
    """Name a signal: SIGSEGV. Real-time ones between the first and the last have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def condition(process: ProcessRef) -> str | None:
    """Tell what the kernel has a process do, "state D in dxgvmb_send_sync_msg"; None when gone.

    Only files that are answered without touching the process's memory are read: ``cmdline`` and
    its like would wait for one that holds its own lock.
    """
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    if start_ticks(stat) != process.start_ticks:
        return None
    wchan = ""
    with contextlib.suppress(OSError):  # another user's
        wchan = Path(f"/proc/{process.pid}/wchan").read_text(errors="replace").strip()
    state = stat.rpartition(")")[2].split()[0]
    return f"state {state} in {wchan}" if wchan not in {"", "0"} else f"state {state}"


class Watch:
    """Calls ``gone`` once, from the running loop, when a process ends; ours or somebody else's."""

    def __init__(self, process: ProcessRef, gone: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._gone = gone
        self._pidfd = -1
        with contextlib.suppress(OSError):
            self._pidfd = os.pidfd_open(process.pid)
        if self._pidfd >= 0 and ref(process.pid) == process:
            self._loop.add_reader(self._pidfd, self._ended)
        else:
            self._loop.call_soon(self._ended)

    def _ended(self) -> None:
        self.close()
        reap()
        self._gone()

    def close(self) -> None:
        """Look no more; also good for one that has seen the end."""
        if self._pidfd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


class Conversation:
    """A process that answers each line with a line, kept between questions.

    Errors: ``OSError`` from the constructor when it cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=ENVIRONMENT,
        )
        assert self._process.stdin  # noqa: S101  # PIPE above
        assert self._process.stdout  # noqa: S101
        self._in, self._out = self._process.stdin, self._process.stdout
        os.set_blocking(self._out.fileno(), False)
        self._heard = bytearray()
        self._owed = False  # an answer that nobody waits for any more
        self.late = b""  # the last one that came too late, without its newline

    @property
    def pid(self) -> int:
        """The process that answers."""
        return self._process.pid

    async def ask(self, question: bytes, *, deadline_s: float) -> bytes:
        """Send one line and give the answer without its newline; empty when the process ended.

        Errors: ``TimeoutError`` when no whole line came in time; the process is then still there,
        and is not to be asked again before ``caught_up``.
        """
        loop = asyncio.get_running_loop()
        more = asyncio.Event()
        self._owed = True
        with contextlib.suppress(BrokenPipeError):
            self._in.write(question + b"\n")
            self._in.flush()
        loop.add_reader(self._out.fileno(), more.set)
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    line, newline, rest = bytes(self._heard).partition(b"\n")
                    if newline or len(self._heard) > LONGEST_LINE:
                        self._heard[:] = rest
                        self._owed = False
                        return line
                    await more.wait()
                    more.clear()
                    if not self._take():
                        return b""
        finally:
            loop.remove_reader(self._out.fileno())

    def caught_up(self) -> bool:
        """Say whether it owes no answer; one that came too late is ``late``. Never waits."""
        while self._owed and b"\n" not in self._heard:
            before = len(self._heard)
            if not self._take() or len(self._heard) == before or before > LONGEST_LINE:
                return False
        if self._owed:
            self.late, _, rest = bytes(self._heard).partition(b"\n")
            self._heard[:] = rest
            self._owed = False
        return True

    def end(self, *, kill: bool = False) -> None:
        """Close its input, which ends a healthy one; ``kill`` sends SIGKILL, once. Never waits."""
        if kill:
            self._process.kill()
        for stream in (self._in, self._out):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        _leave(self._process)

    async def ended(self, within_s: float) -> int | None:
        """Give the exit code, None for a process that is still there after ``within_s``."""
        try:
            pidfd = os.pidfd_open(self._process.pid)
        except ProcessLookupError:  # reaped already
            return self._process.poll()
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(pidfd, gone.set)
        try:
            await _within(gone, within_s)
            return self._process.poll()
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)

    def _take(self) -> bool:
        try:
            chunk = os.read(self._out.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        self._heard += chunk
        return bool(chunk)


_left_behind: list[subprocess.Popen[bytes]] = []
"""Processes that outlived their call, kept only so that their zombies are reaped later."""


def reap() -> None:
    """Take the exit codes of those that have ended since."""
    _left_behind[:] = [left for left in _left_behind if left.poll() is None]


def _leave(process: subprocess.Popen[bytes]) -> None:
    _left_behind.append(process)
    reap()


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
