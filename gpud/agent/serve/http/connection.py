"""Client connections: uvicorn's HTTP/1.1 with a deadline for each state, in a pool of limited size.

TLS is started here and not by asyncio's accept, so that a connection counts and has its deadline
from the first moment on, and not only once its handshake is done.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import resource
import socket
import struct
import sys
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from gpud.agent.serve.http.access import refusal, with_headers
from gpud.agent.serve.refusals import Refused

if TYPE_CHECKING:
    import uvicorn
    from uvicorn.server import ServerState

    from gpud.agent.serve.http.access import RefusalCounter
    from gpud.agent.serve.http.certificate import Certificate

SPARE: Final = 64
"""File descriptors that are left for what the agent does beside HTTP."""
BATCH: Final = 8
"""Connections that are closed together to make room, so that a flood is not sorted for each one."""
MOST_UNSENT: Final = 16
"""Responses that wait for slow clients at once: each may hold a whole page in memory."""
SHUTDOWN_S: Final = 1.0
"""Of TLS: how long a client has to say goodbye."""
RESET: Final = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
"""Closed this way, the kernel forgets what the client never fetched."""

asyncio.sslproto.SSLProtocol.max_size = 32 * 1024  # else 256 KiB for each TLS connection


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The share of the listener that clients may take."""

    connections: int = 256
    request_s: float = 10.0  # for the TLS handshake, and for a request to be complete
    response_s: float = 30.0  # for a response to be made and fetched
    idle_s: float = 65.0  # above Prometheus's scrape interval: its connection is reused


class ConnectionState(Enum):
    """What a connection waits for."""

    HANDSHAKE = "the TLS handshake"
    REQUEST = "a complete request"
    RESPONSE = "the application"
    UNSENT = "the client, which does not read its response"
    IDLE = "the next request"


class ConnectionPool:
    """All connections; when there are too many, those without progress for longest are closed."""

    def __init__(self, limits: ConnectionLimits, refusals: RefusalCounter) -> None:
        self.limits = limits
        self.refusals = refusals
        self.stirred = asyncio.Event()
        """Set by each new connection."""
        self._connections: set[Connection] = set()

    @property
    def is_empty(self) -> bool:
        """Whether nobody is connected."""
        return not self._connections

    def add(self, connection: Connection) -> None:
        """Add a new connection, closing others where the pool is full or descriptors run out."""
        is_full = len(self._connections) >= self.limits.connections
        if is_full or _few_descriptors(connection):
            waiting = [
                each for each in self._connections if each.state is not ConnectionState.RESPONSE
            ]
            self._close_oldest(waiting, BATCH, Refused.TOO_MANY_CONNECTIONS)
            if is_full and not waiting:
                self._close_oldest([connection], 1, Refused.TOO_MANY_CONNECTIONS)
                return
        self._connections.add(connection)
        self.stirred.set()

    def remove(self, connection: Connection) -> None:
        """Remove a connection; twice does no harm."""
        self._connections.discard(connection)

    def limit_unsent(self) -> None:
        """Close the oldest of too many connections whose clients do not read."""
        unsent = [
            connection
            for connection in self._connections
            if connection.state is ConnectionState.UNSENT
        ]
        self._close_oldest(unsent, len(unsent) - MOST_UNSENT, Refused.TOO_SLOW)

    def close_overdue(self, now_s: float) -> None:
        """Close the connections whose deadline has passed."""
        limits_s = {
            ConnectionState.REQUEST: self.limits.request_s,
            ConnectionState.RESPONSE: self.limits.response_s,
            ConnectionState.UNSENT: self.limits.response_s,
        }  # asyncio ends handshakes, and uvicorn idle connections
        for connection in list(self._connections):
            state = connection.state
            if now_s - connection.since_s < limits_s.get(state, float("inf")):
                continue
            if state is ConnectionState.UNSENT or connection.has_begun:
                self.refusals.count(Refused.TOO_SLOW)
            connection.close()  # a browser's spare connection, which sent nothing, is not counted

    def close(self) -> None:
        """Close everything."""
        for connection in list(self._connections):
            connection.close()

    def _close_oldest(self, connections: list[Connection], count: int, reason: Refused) -> None:
        for connection in sorted(connections, key=lambda each: each.since_s)[: max(count, 0)]:
            self.refusals.count(reason)
            connection.close()


def _few_descriptors(newest: Connection) -> bool:
    """Return whether few file descriptors are left: the kernel gives the lowest that is free."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most != resource.RLIM_INFINITY and newest.descriptor >= most - SPARE


class Connection(H11Protocol):
    """One client connection."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        pool: ConnectionPool,
        certificate: Certificate | None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.since_s = self.loop.time()  # when it last made progress
        self.closed = False
        self._ready = False  # the TLS handshake is done, or not needed
        self._pool = pool
        self._certificate = certificate
        self._socket: asyncio.Transport  # beneath TLS, where there is TLS
        self._handshake: asyncio.Task[None] | None = None
        self._early = b""  # came with the end of the handshake
        self._line = b""  # the first line of the request, however it goes on

    @property
    def state(self) -> ConnectionState:
        """What the connection waits for now."""
        if not self._ready:
            return ConnectionState.HANDSHAKE
        if self._socket.get_write_buffer_size() or self.transport.get_write_buffer_size():
            return ConnectionState.UNSENT
        if self.cycle is None or self.has_begun:
            return ConnectionState.REQUEST
        return ConnectionState.IDLE if self.cycle.response_complete else ConnectionState.RESPONSE

    @property
    def descriptor(self) -> int:
        """The number of the socket's file descriptor."""
        return int(self._socket.get_extra_info("socket").fileno())

    @property
    def has_begun(self) -> bool:
        """Whether a part of a request has arrived."""
        return self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])

    def close(self) -> None:
        """Close at once, whatever is under way."""
        self.closed = True
        self._pool.remove(self)
        if self._handshake is not None:
            self._handshake.cancel()
        if self._socket.get_write_buffer_size():
            self._socket.get_extra_info("socket").setsockopt(*RESET)
        self._socket.abort()

    # --- asyncio ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Enter the pool, and begin with TLS where there is a certificate."""
        self._socket = transport
        self._pool.add(self)
        if self.closed:
            return
        if self._certificate is None:
            self._begin(transport)
        else:
            transport.pause_reading()
            self._handshake = self.loop.create_task(self._start_tls(self._certificate))

    def _begin(self, transport: asyncio.Transport) -> None:
        self._ready = True
        super().connection_made(transport)

    async def _start_tls(self, certificate: Certificate) -> None:
        try:
            transport = await self.loop.start_tls(
                self._socket,
                self,
                certificate.context,
                server_side=True,
                ssl_handshake_timeout=self._pool.limits.request_s,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError as error:
            error.__traceback__ = None  # through asyncio's frames it would keep the connection
            if not self.closed:
                self._pool.refusals.count(Refused.TLS_FAILED)
                self._pool.remove(self)
            return
        finally:
            self._handshake = None
        if transport is not None and not transport.is_closing():
            self._begin(transport)
            early, self._early = self._early, b""
            if early:
                self.data_received(early)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the pool, and break the reference cycles: with TLS each keeps 60 KB alive."""
        self.closed = True
        self._pool.remove(self)
        if self._ready:
            super().connection_lost(exc)
            self._unset_keepalive_if_required()
        self.scope = self.cycle = None  # type: ignore[assignment]  # as uvicorn itself begins

    def data_received(self, data: bytes) -> None:
        """Read on; the time for a request runs from its first byte.

        A client that sends the next request too early gets one response: a few bytes could ask
        for hours of work.
        """
        if not self._ready:
            self._early += data
            return
        if self.state is ConnectionState.RESPONSE:
            self.cycle.keep_alive = False
            return
        if self.conn.their_state is h11.IDLE and not self.has_begun:
            self.since_s = self.loop.time()
            self._line = data.lstrip(b"\r\n").partition(b"\n")[0]
        super().data_received(data)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Finish the response of a client that has only closed its sending side."""
        if self.state is ConnectionState.RESPONSE and self.transport is self._socket:
            self.cycle.keep_alive = False
            return True
        return None

    def pause_writing(self) -> None:
        """Count a client that does not read."""
        super().pause_writing()
        self._pool.limit_unsent()

    # --- uvicorn ---------------------------------------------------------------------------------

    def handle_events(self) -> None:
        """Read on; what follows the request in the same piece is not answered."""
        super().handle_events()
        if self.cycle is not None and self.conn.trailing_data[0]:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """Wait for the next request; a response that is not fetched keeps its deadline."""
        if self.state is not ConnectionState.UNSENT:
            self.since_s = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's signature
        """Refuse bytes that are no request, with the headers of every response."""
        error = sys.exception()  # of h11; through its frames it would keep the connection
        too_large = False
        if isinstance(error, h11.RemoteProtocolError):
            error.__traceback__ = None
            too_large = error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        reason = Refused.HEADERS_TOO_LARGE if too_large else Refused.BAD_REQUEST
        self._pool.refusals.count(reason)
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.close()
            return
        response = refusal(reason, is_api=b" /api/" in self._line)
        head = h11.Response(
            status_code=response.status_code,
            headers=with_headers(response.raw_headers),
            reason=STATUS_PHRASES[response.status_code],
        )
        body = (h11.Data(data=bytes(response.body)), h11.EndOfMessage())
        for event in (head, *(() if self._line.startswith(b"HEAD ") else body)):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
