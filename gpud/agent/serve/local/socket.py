"""The agent's local socket: one request a connection, from the people whom the group lists.

The kernel says who asks (``SO_PEERCRED``), and the group database is asked at each connection, so
that a new member need not log in again.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import pwd
import socket
import struct
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from gpud.core.errors import ConfigError, GpudError
from gpud.core.settings import SOCKET
from gpud.requests import (
    LARGEST_REQUEST,
    AnswerLine,
    ApiRequest,
    EndLine,
    ErrorLine,
    TopRequest,
    encoded,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path
    from typing import Protocol

    class Answering(Protocol):
        """What a request is done by. Errors: ``GpudError``, which is sent."""

        def answer(self, request: ApiRequest, uid: int) -> AsyncGenerator[AnswerLine | bytes, None]:
            """Do what is asked, and give the lines of the answer but for the last."""


MOST: Final = 32
MOST_PER_UID: Final = 4
"""Connections at a time, together and of one user."""
REQUEST_S: Final = 5.0
ALIVE_S: Final = 2.0
"""How often an empty line says that a long answer is still being worked on."""
READING_S: Final = 3600.0
"""Longest time in which a client reads nothing of an answer: its pager may wait for a person."""
WATCHING_S: Final = 5.0
"""The same for `gpud top`: while it is connected NVML is asked every second."""
SMALL_BUFFER: Final = 16 << 10
"""Bytes that wait for those who look on, in the kernel and here: some seconds of theirs."""
_CREDENTIALS: Final = struct.Struct("iII")  # pid, uid, gid

log = structlog.get_logger()


class SocketServer:
    """Serves ``actions`` on the socket in ``folder``. ``group`` None: to our own user and root."""

    def __init__(self, folder: Path, actions: Answering, group: str | None) -> None:
        self._folder = folder
        self._actions = actions
        self._group = group
        self._open: Counter[int] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until cancelled. The next agent's socket takes the place of what is left.

        Errors: ``OSError`` when the socket cannot be made.
        """
        with bound(self._folder, 0o600 if self._group is None else 0o666) as listener:
            server = await asyncio.start_unix_server(
                self._connected, sock=listener, limit=LARGEST_REQUEST
            )
            try:
                await asyncio.Event().wait()
            finally:
                server.close()
                for task in self._tasks:
                    task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a coroutine runs in one
        self._tasks.add(task)
        _, uid, _ = _CREDENTIALS.unpack(
            writer.get_extra_info("socket").getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
            )
        )
        self._open[uid] += 1
        try:
            limit_s = await self._serve(uid, reader, writer)
            writer.transport.set_write_buffer_limits(0)
            await _drained(writer, limit_s)
        except ConnectionError:
            pass  # nobody reads on
        finally:
            self._open[uid] -= 1
            self._tasks.discard(task)
            writer.close()

    async def _serve(
        self, uid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> float:
        """Answer a request, and return how long the rest of the answer may wait to be taken."""
        request = await self._request(uid, reader)
        if isinstance(request, ErrorLine):
            writer.write(encoded(request))
            return REQUEST_S
        limit_s = READING_S
        if isinstance(request, TopRequest):
            limit_s = WATCHING_S
            own: socket.socket = writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
            writer.transport.set_write_buffer_limits(SMALL_BUFFER)
        work = asyncio.create_task(self._answer(request, uid, writer, limit_s))
        alive = asyncio.create_task(_send_signs_of_life(writer))
        gone = asyncio.create_task(reader.read(1))
        tasks = (work, alive, gone)
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return limit_s

    async def _request(self, uid: int, reader: asyncio.StreamReader) -> ApiRequest | ErrorLine:
        """Read the request of a user who may ask."""
        if self._open[uid] > MOST_PER_UID or self._open.total() > MOST:
            message = f"the agent serves {MOST} connections at a time, {MOST_PER_UID} of one user"
            return ErrorLine(kind="problem", message=message, fix="try again later")
        try:
            async with asyncio.timeout(REQUEST_S):
                line = await reader.readuntil(b"\n")
                if (refusal := await self._refusal(uid)) is not None:
                    return refusal
            request: ApiRequest = msgspec.json.decode(line, type=ApiRequest)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return ErrorLine(kind="usage", message=f"no request came within {REQUEST_S:g} s")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            message = f"the agent does not understand the request: {error}"
            return ErrorLine(kind="usage", message=message, fix="gpud restart")
        return request

    async def _refusal(self, uid: int) -> ErrorLine | None:
        """Return why this user may not ask; None for one who may."""
        if uid in {0, os.geteuid()}:
            return None
        if self._group is None:
            message = "this gpud is a development run of another user"
            return ErrorLine(kind="denied", message=message)
        # In a thread: what knows users may be a server on the network.
        name, admitted = await asyncio.to_thread(membership, uid, self._group)
        if admitted:
            return None
        return ErrorLine(
            kind="denied",
            message=f"you are not in the group {self._group}",
            fix=f"sudo usermod -aG {self._group} {name} (works at once in shells that are open)",
        )

    async def _answer(
        self, request: ApiRequest, uid: int, writer: asyncio.StreamWriter, limit_s: float
    ) -> None:
        last: EndLine | ErrorLine = EndLine()
        try:
            async with contextlib.aclosing(self._actions.answer(request, uid)) as lines:
                async for line in lines:
                    writer.write(line if isinstance(line, bytes) else encoded(line))
                    await _drained(writer, limit_s)
        except GpudError as error:
            usage = isinstance(error, ConfigError)
            last = ErrorLine(
                kind="usage" if usage else "problem", message=str(error), fix=error.fix
            )
        except ConnectionError:
            return
        except Exception as error:
            log.exception("request_failed", request=type(request).__name__)
            message = f"a bug in gpud, whose log has more: {type(error).__name__}"
            last = ErrorLine(kind="problem", message=message, fix="gpud logs")
        writer.write(encoded(last))


async def _drained(writer: asyncio.StreamWriter, within_s: float) -> None:
    """Wait until who asks has taken enough. Errors: ``ConnectionError`` where they do not."""
    try:
        async with asyncio.timeout(within_s):
            await writer.drain()
    except TimeoutError:
        writer.transport.abort()
        raise ConnectionAbortedError from None


async def _send_signs_of_life(writer: asyncio.StreamWriter) -> None:
    while True:
        await asyncio.sleep(ALIVE_S)
        writer.write(b"\n")


def membership(uid: int, group: str) -> tuple[str, bool]:
    """Return the user's name and whether the group lists them now, also as their primary group."""
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return str(uid), False
    try:
        people = grp.getgrnam(group)
    except KeyError:
        return user.pw_name, False
    return user.pw_name, user.pw_name in people.gr_mem or user.pw_gid == people.gr_gid


def bound(folder: Path, mode: int) -> socket.socket:
    """Listen on the socket in ``folder``, which takes its place once it is ready.

    By way of a descriptor: a name of more than 107 bytes does not fit into an address.
    Errors: ``OSError``.
    """
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    place, fresh = f"/proc/self/fd/{directory}", f".{SOCKET[-1]}.new"
    listener = socket.socket(socket.AF_UNIX)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=directory)
        listener.bind(f"{place}/{fresh}")
        os.chmod(fresh, mode, dir_fd=directory)
        listener.listen(MOST)
        os.rename(fresh, SOCKET[-1], src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(directory)
    return listener
