"""The listening socket, and the server that answers on it until it is told to stop."""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import contextlib
import errno
import resource
import socket
from typing import TYPE_CHECKING, Final

import structlog
import uvicorn

from gpud import portholder
from gpud.agent.web.access import Access, terms
from gpud.agent.web.connection import Connection
from gpud.agent.web.room import Room
from gpud.core.errors import ListenError
from gpud.core.http_settings import Http

if TYPE_CHECKING:
    from starlette.types import ASGIApp

SPENT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
RETRY_S: Final = 0.05
TICK_S: Final = 1.0
SHUTDOWN_S: Final = 1.0
"""Of TLS: how long a client has to say goodbye."""
SPARE: Final = 128
BACKLOG: Final = 512
FEWEST: Final = 8
TLS_PIECE: Final = 32 * 1024
"""asyncio reads TLS in pieces of 256 KiB and keeps a buffer of that size for each connection."""
SEND_BUFFER: Final = 128 * 1024

asyncio.sslproto.SSLProtocol.max_size = TLS_PIECE
log = structlog.get_logger()


def bind(host: str, port: int) -> socket.socket:
    """Open the listening socket.

    Errors: ``ListenError`` naming the address and, when /proc tells, the process that has it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # By its protocol asyncio knows that it may send at once; else a body waits 40 ms for an ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by each connection: what nobody fetches must not fill the kernel either.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ListenError(
                portholder.taken_message(f"{host}:{port}", portholder.listener_of(port)),
                reason=portholder.IN_USE,
                fix="stop that program, and gpud takes the address as soon as it is free; or set "
                "[http] listen to another port, then `sudo gpud restart`",
            ) from error
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


async def serve(
    application: ASGIApp,
    listener: socket.socket,
    stop: asyncio.Event,
    access: Access | None = None,
    http: Http | None = None,
) -> None:
    """Answer on ``listener`` until ``stop`` is set; open requests get a second to end.

    ``access`` says who is spoken TLS to; without it, and without ``http``, the defaults hold.
    """
    http = Http() if http is None else http
    access = Access(terms(Http())) if access is None else access
    await _Server(application, access, http, stop).serve_on(listener)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers and its accept: the process has its own.

    asyncio's own accept neither counts a connection before its handshake is done, nor has room
    made when descriptors run out, nor takes another context for the next handshake.
    """

    def __init__(
        self, application: ASGIApp, access: Access, http: Http, stop: asyncio.Event
    ) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._access = access
        self._http = http
        self._stop = stop
        self._room = Room(
            _affordable(http.max_connections), http.max_connections_per_peer, access.tally
        )

    async def serve_on(self, listener: socket.socket) -> None:
        """Accept and answer until told to stop."""
        self._listener = listener
        self._access.on_renewal(self._room.renew)
        await self._serve([listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002  # uvicorn's
        """Begin to accept."""
        self.servers = []
        self._accepting = asyncio.create_task(self._accept())
        self.started = True

    async def main_loop(self) -> None:
        """Keep the Date header of the second until told to stop."""
        while not self._stop.is_set():
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), TICK_S)
            if self._accepting.done():
                self._accepting.result()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002  # theirs
        """Accept nobody more, let answers end, and send the others away."""
        self._accepting.cancel()
        await asyncio.wait({self._accepting})
        self._listener.close()
        await super().shutdown()
        self._room.close()
        await asyncio.sleep(0)  # transports close their sockets in the loop's next turn

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(self._listener)
            except OSError as error:
                if error.errno in SPENT and not self._room.make_room():
                    log.warning("no_room_for_a_connection", error=error.strerror)
                await asyncio.sleep(RETRY_S)
                continue
            self._greet(loop, client, address)
            await asyncio.sleep(0)  # a flood of arrivals must not keep the others waiting

    def _greet(
        self, loop: asyncio.AbstractEventLoop, client: socket.socket, address: tuple[object, ...]
    ) -> None:
        connection = Connection(
            self.config,
            self.server_state,
            room=self._room,
            access=self._access,
            http=self._http,
            address=address,
        )
        if not self._room.admit(connection):
            connection.drop()
            client.close()
            return
        context = self._access.terms.context
        times = {}
        if context is not None:
            times = {
                "ssl_handshake_timeout": self._http.read_header_timeout_s,
                "ssl_shutdown_timeout": SHUTDOWN_S,
            }
        meeting = loop.connect_accepted_socket(lambda: connection, client, ssl=context, **times)
        connection.shakes(loop.create_task(meeting), client)


def _affordable(wanted: int) -> int:
    """Leave descriptors for everything else the agent does."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(FEWEST, min(wanted, soft - SPARE))
