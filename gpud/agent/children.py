"""Child processes: asked or run with a deadline, killed at most once, identified, and watched.

Nothing here blocks, however long the kernel keeps a process. asyncio's own subprocesses are not
used: they wait in a thread that a process in state D would hold for ever, and a transport left
behind complains when it is collected.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.core.proc import start_ticks
from gpud.processes import ref

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpud.core.report import ProcessRef

STDOUT_BYTES = 1 << 20
STDERR_BYTES = 4096
CHUNK = 1 << 16
MOST_LEFT_IN_A_PIPE = 1 << 20
"""What a pipe can hold at the most; a reader that goes on for longer follows a living writer."""
DEBUGGED, DEBUGGED_S = 100, 0.01
"""Looks for the exit code of one that has ended: a debugger that it may have is told first."""
GRACE_S = 5.0
"""How long a killed process may take to go. One in state D never does."""

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}
"""All a child gets: what it needs to know comes on stdin."""

SHELL: Final = "/bin/sh"
CANNOT_EXECUTE, NOT_THERE = 126, 127
"""Exit codes of a shell that cannot become a program."""
_START: Final = """
path=$1; shift
[ -f "$path" ] && [ -x "$path" ] || exit 127
cd "${path%/*}" && exec "$path" "$@" || exit 126"""
"""Windows knows no folder of Linux: a program of its is started in its own one."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended. ``code`` is None while it is there: killed in vain, or left alone."""

    pid: int
    code: int | None
    stdout: bytes
    stderr: bytes
    overflowed: bool
    killed: bool


class _Output:
    """Output of one pipe: its first ``limit`` bytes, or its last; the rest is dropped.

    ``full`` is an event of the first one that was dropped, ``line`` of a line that is complete; the
    end of the process is one for both.
    """

    def __init__(self, fd: int, *, limit: int, last: bool) -> None:
        self.fd = fd
        self.data = bytearray()
        self.overflowed = False
        self.full, self.line = asyncio.Event(), asyncio.Event()
        self._limit = limit
        self._last = last
        os.set_blocking(fd, False)

    def read(self) -> bool:
        """Take what is there; False at the end of the stream."""
        try:
            chunk = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return True
        self.data += chunk
        if len(self.data) > self._limit:
            self.overflowed = True
            _set(self.full, self.line)
            del self.data[slice(0, -self._limit) if self._last else slice(self._limit, None)]
        if b"\n" in chunk:
            self.line.set()
        return bool(chunk)

    def pump(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read when the loop says that there is something."""
        if not self.read():
            loop.remove_reader(self.fd)

    def drain(self) -> None:
        """Take what is left after the process ended; a grandchild may hold the pipe open."""
        for _ in range(MOST_LEFT_IN_A_PIPE // CHUNK):
            if not self.read():
                break


class Child:
    """A process that was started, its output, and its end as an event."""

    def __init__(
        self,
        command: Sequence[str],
        stdin: int,
        *,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] = ENVIRONMENT,
    ) -> None:
        """Start it in a session of its own. After this, ``close`` must be called.

        ``stdin`` is a descriptor, or ``subprocess.PIPE`` to ``ask``. Errors: ``OSError``.
        """
        self._process = process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
            cwd="/",
            env=environment,
            bufsize=0,
        )
        assert process.stdout and process.stderr  # noqa: S101, PT018  # PIPE above
        self.reference = ref(process.pid)
        self.exited = asyncio.Event()
        self.out = _Output(process.stdout.fileno(), limit=STDOUT_BYTES, last=False)
        self._err = _Output(process.stderr.fileno(), limit=STDERR_BYTES, last=True)
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(self._pidfd, self._over)
        for pipe in (self.out, self._err):
            self._loop.add_reader(pipe.fd, pipe.pump, self._loop)

    async def ask(self, question: bytes, deadline_s: float) -> bytes | None:
        """Send a line, and return what it answers, as ``answer`` does."""
        self.send(question)
        return await self.answer(deadline_s)

    def send(self, question: bytes) -> None:
        """Send a line, to which it owes an answer."""
        assert self._process.stdin is not None  # noqa: S101  # PIPE was asked for
        if not self.exited.is_set():
            self.out.line.clear()
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(question)  # a pipe that is empty takes a page at once

    async def answer(self, deadline_s: float) -> bytes | None:
        """Return what it answers to the last line; None where no line came, or too many bytes.

        Whatever it says beside the one line is returned as well: it can be no answer.
        """
        await _within(self.out.line, deadline_s)
        if self.exited.is_set():
            self.out.drain()
        if self.out.overflowed or b"\n" not in self.out.data:
            return None
        answer = bytes(self.out.data)
        self.out.data.clear()
        return answer

    def finish(self) -> None:
        """End its input."""
        assert self._process.stdin is not None  # noqa: S101  # PIPE was asked for
        self._process.stdin.close()

    async def ended(
        self,
        within_s: float,
        grace_s: float = GRACE_S,
        *,
        kill: bool = True,
        until: asyncio.Event | None = None,
    ) -> Ended:
        """Wait for its end, or ``until``; then kill it, once, unless told otherwise.

        With it goes whatever it has started that stayed in its process group.
        """
        killed = False
        if not await _within(until or self.exited, within_s) or not self.exited.is_set():
            killed = kill
            if kill:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)  # not reaped: it is its own yet
                await _within(self.exited, grace_s)
        for _ in range(DEBUGGED if self.exited.is_set() else 0):
            if self._process.poll() is not None:
                break
            await asyncio.sleep(DEBUGGED_S)
        code, out = self._process.poll(), self.out
        for pipe in (out, self._err):
            pipe.drain()
        err = bytes(self._err.data)
        return Ended(self._process.pid, code, bytes(out.data), err, out.overflowed, killed)

    def close(self) -> None:
        """Listen to it no more; also good for one that has not ended."""
        for fd in (self._pidfd, self.out.fd, self._err.fd):
            self._loop.remove_reader(fd)
        os.close(self._pidfd)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        leave(self._process)

    def _over(self) -> None:
        self._loop.remove_reader(self._pidfd)
        _set(self.exited, self.out.full, self.out.line)


async def run(  # noqa: PLR0913  # each is one thing a caller chooses
    command: Sequence[str],
    stdin: bytes,
    *,
    deadline_s: float,
    started: Callable[[ProcessRef], None] = lambda _: None,
    environment: Mapping[str, str] = ENVIRONMENT,
    kill: bool = True,
) -> Ended:
    """Start ``command``, feed it ``stdin`` and wait for its end; ``started`` gets its identity.

    One that writes more than a MiB is killed then, and otherwise at the deadline.
    ``kill`` False: one that does not end in time is left alone.
    Errors: ``OSError`` when it cannot start. A cancelled call leaves the process to end itself:
    killing GPU work is the one thing not to do in a hurry.
    """
    with FileIO(os.memfd_create("stdin"), "r+") as memory:  # a pipe may not take it all at once
        memory.write(stdin)
        memory.seek(0)
        child = Child(command, memory.fileno(), environment=environment)
    try:
        if child.reference is not None:
            started(child.reference)
        return await child.ended(deadline_s, kill=kill, until=child.out.full)
    finally:
        child.close()


async def run_program(  # noqa: PLR0913  # each is one thing a caller chooses
    place: str,
    arguments: Sequence[str],
    *,
    deadline_s: float,
    started: Callable[[ProcessRef], None] = lambda _: None,
    environment: Mapping[str, str] = ENVIRONMENT,
    stdin: bytes = b"",
) -> Ended:
    """Run the program at the absolute ``place``, which is not touched here.

    ``/usr/lib/wsl`` and ``/mnt/c`` come over 9p, and a server that hangs keeps whoever opens, lists
    or executes there in a sleep that no signal ends; ``Popen`` itself waits for the exec of its
    child. So a shell, which lies on the distribution's own disk, looks for the program and becomes
    it. Exit code ``NOT_THERE`` where there is none.
    Errors: ``OSError`` when the shell cannot be started.
    """
    return await run(
        [SHELL, "-c", _START, SHELL, place, *arguments],
        stdin,
        deadline_s=deadline_s,
        started=started,
        environment=environment,
    )


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


# Identity, and what the kernel has a process do


def signal_name(number: int) -> str:
    """Name a signal: SIGSEGV. Real-time ones between the first and the last have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def condition(process: ProcessRef) -> str | None:
    """Return what the kernel has a process do, "state D in dxgvmb_send_sync_msg"; None when gone.

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
    """Calls ``gone`` once, from the running loop, when a process ends, ours or another's.

    A descriptor becomes readable when the process ends: nothing waits for it.
    """

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
        """Stop watching; also good for a process that has ended."""
        if self._pidfd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


_left_behind: list[subprocess.Popen[bytes]] = []
"""Processes of ours that outlived their call."""


def leave(process: subprocess.Popen[bytes]) -> None:
    """Keep a process until its exit code can be taken: it may outlive its call."""
    _left_behind.append(process)
    reap()


def reap() -> None:
    """Take the exit codes of the processes that have ended since."""
    _left_behind[:] = [left for left in _left_behind if left.poll() is None]
