"""The listening socket, and the server that answers on it until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvicorn

from gpud.core.errors import ListenError
from gpud.core.proc import listening

if TYPE_CHECKING:
    from starlette.types import ASGIApp

OPEN_CONNECTIONS: Final = 256


def bind(host: str, port: int) -> socket.socket:
    """Open the listening socket.

    Errors: ``ListenError`` naming the address and, when /proc tells, the process that has it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ListenError(
                f"{host}:{port} is taken{_holder(port)}",
                fix="stop that program, or set [http] listen to another port",
            ) from error
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


async def serve(application: ASGIApp, listener: socket.socket, stop: asyncio.Event) -> None:
    """Answer on ``listener`` until ``stop`` is set; open requests get a second to end."""
    server = _Server(
        uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_keep_alive=65,  # above Prometheus's scrape interval: one connection is kept
            timeout_graceful_shutdown=1,
            limit_concurrency=OPEN_CONNECTIONS,
            backlog=128,
        )
    )
    await server.serve_until(listener, stop)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process has its own."""

    async def serve_until(self, listener: socket.socket, stop: asyncio.Event) -> None:
        serving = asyncio.create_task(self._serve([listener]))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        self.should_exit = True
        stopping.cancel()
        await serving


def _holder(port: int) -> str:
    """Say who listens on ``port``: root's processes stay anonymous to an unprivileged agent."""
    inodes = set[str]()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            text = Path(table).read_text()
        except OSError:
            continue
        inodes |= {f"socket:[{inode}]" for inode in listening(text, port)}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(fd.readlink()) in inodes for fd in (process / "fd").iterdir()):
                name = (process / "comm").read_text().strip()
                return f" by {name} (pid {process.name})"
        except OSError:
            continue
    return " by another process" if inodes else " (outside this distribution?)"
