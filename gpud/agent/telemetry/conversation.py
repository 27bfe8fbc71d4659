"""A process that is asked more than once: a line for each question, and a line for each answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

from gpud.agent import processes
from gpud.agent.children import CHUNK, ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.core.report import ProcessRef

LONGEST_LINE = 4 << 20
GONE_S = 1.0
"""How long one that was let go or killed may take to end before that is told."""


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
        self._received = bytearray()
        self._owed = False  # an answer that nobody waits for any more
        self.late = b""  # the last one that came too late, without its newline

    @property
    def pid(self) -> int:
        """The process that answers."""
        return self._process.pid

    async def ask(self, question: bytes, *, deadline_s: float) -> bytes:
        """Send one line and return the answer without its newline; empty when the process ended.

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
                    line, newline, rest = bytes(self._received).partition(b"\n")
                    if newline or len(self._received) > LONGEST_LINE:
                        self._received[:] = rest
                        self._owed = False
                        return line
                    await more.wait()
                    more.clear()
                    if not self._take():
                        return b""
        finally:
            loop.remove_reader(self._out.fileno())

    def caught_up(self) -> bool:
        """Return whether it owes no answer; one that came too late is ``late``. Never waits."""
        while self._owed and b"\n" not in self._received:
            before = len(self._received)
            if not self._take() or len(self._received) == before or before > LONGEST_LINE:
                return False
        if self._owed:
            self.late, _, rest = bytes(self._received).partition(b"\n")
            self._received[:] = rest
            self._owed = False
        return True

    def end(self, *, kill: bool = False) -> None:
        """Close its input, which ends a healthy one; ``kill`` sends SIGKILL, once. Never waits."""
        if kill:
            self._process.kill()
        for stream in (self._in, self._out):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        processes.leave(self._process)

    async def ended(self, within_s: float) -> int | None:
        """Return the exit code, None for a process that is still there after ``within_s``."""
        try:
            pidfd = os.pidfd_open(self._process.pid)
        except ProcessLookupError:  # reaped already
            return self._process.poll()
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(pidfd, gone.set)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await gone.wait()
            return self._process.poll()
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)

    def _take(self) -> bool:
        try:
            chunk = os.read(self._out.fileno(), CHUNK)
        except BlockingIOError:
            return True
        self._received += chunk
        return bool(chunk)


class Helper:
    """One such process at a time: never another beside one that outlived its kill."""

    def __init__(self) -> None:
        self._stays: ProcessRef | None = None  # killed, and last seen alive
        self.process: Conversation | None = None

    def staying(self) -> ProcessRef | None:
        """Return the one that was killed and is still there; beside it none is to be started."""
        if self._stays is not None and processes.ref(self._stays.pid) != self._stays:
            self._stays = None
        return self._stays

    def start(self, command: Sequence[str]) -> Conversation:
        """Start one. Errors: ``OSError``."""
        self.process = Conversation(command)
        return self.process

    async def end(self) -> None:
        """Close its input; if that is not enough it is killed, once."""
        if self.process is not None:
            self.process.end()
            if await self.process.ended(GONE_S) is None:
                await self.kill()
            self.process = None

    async def kill(self) -> None:
        """Kill it, once, and look for its end; one in state D is left to itself."""
        if self.process is not None:
            killed, self.process = self.process, None
            who = processes.ref(killed.pid)
            killed.end(kill=True)
            if await killed.ended(GONE_S) is None:
                self._stays = who
