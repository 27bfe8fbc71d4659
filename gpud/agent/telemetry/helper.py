"""The process of the NVML helper: a line for each question, and a line for each answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

from gpud.agent import processes
from gpud.agent.children import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.core.report import ProcessRef

LONGEST_LINE = 4 << 20
END_S = 1.0
"""How long a process may take to end after its input closed, and again after its kill."""


class Helper:
    """One process at a time, kept between questions; none beside one that outlived its kill."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._answer: asyncio.Task[bytes] | None = None  # the one it owes, or that came too late
        self._stuck: ProcessRef | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None while there is no process."""
        return None if self._process is None else self._process.pid

    def stuck(self) -> ProcessRef | None:
        """Return the process that was killed and still exists: no other may be started."""
        if self._stuck is not None and processes.ref(self._stuck.pid) != self._stuck:
            self._stuck = None
        return self._stuck

    async def start(self, command: Sequence[str]) -> None:
        """Start the process. Errors: ``OSError``."""
        process = subprocess.Popen(  # noqa: ASYNC220  # takes a millisecond
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=ENVIRONMENT,
        )
        assert process.stdin and process.stdout  # noqa: S101, PT018  # PIPE above
        reader = asyncio.StreamReader(limit=LONGEST_LINE)
        self._pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), process.stdout
        )
        self._input, self._output, self._process = process.stdin, reader, process

    async def ask(self, question: bytes, *, deadline_s: float) -> bytes:
        """Send one line and return the answer; empty when the process ended.

        Errors: ``TimeoutError`` when no whole line came in time. The process is kept, and is not to
        be asked again before ``late_answer`` has the answer.
        """
        with contextlib.suppress(BrokenPipeError):
            os.write(self._input.fileno(), question + b"\n")
        self._answer = asyncio.create_task(self._line())
        await asyncio.wait([self._answer], timeout=deadline_s)
        if not self._answer.done():
            raise TimeoutError
        return self._answer.result()

    def late_answer(self) -> bytes | None:
        """Return the answer that missed its deadline; None while it is still owed, or no process.

        Empty where the process ended.
        """
        if self._process is None or self._answer is None or not self._answer.done():
            return None
        return self._answer.result()

    async def end(self) -> int | None:
        """Close the input, and kill the process, once, if it has not ended after ``END_S``.

        Returns its exit code; None if there was no process, or it is ``stuck`` now.
        """
        process, self._process = self._process, None
        if process is None:
            return None
        if self._answer is not None:
            self._answer.cancel()
        self._pipe.close()
        self._input.close()
        processes.leave(process)
        reference = processes.ref(process.pid)
        if (code := await _exit_code(process, reference)) is None:
            process.kill()
            if (code := await _exit_code(process, reference)) is None:
                self._stuck = reference
        return code

    async def _line(self) -> bytes:
        try:
            line = await self._output.readline()
        except ValueError:  # longer than the limit
            return b"\n"
        return line if line.endswith(b"\n") else b""


async def _exit_code(process: subprocess.Popen[bytes], reference: ProcessRef | None) -> int | None:
    """Wait for the end of a process, for ``END_S`` at most."""
    if reference is not None:
        gone = asyncio.Event()
        watch = processes.Watch(reference, gone.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(gone.wait(), END_S)
        watch.close()
    return process.poll()
