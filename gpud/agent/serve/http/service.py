"""The HTTP service: certificate, listening socket, and uvicorn on it until the agent stops."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import uvicorn
from msgspec.structs import replace

from gpud.agent.serve.http.access import AccessControl, RefusalCounter
from gpud.agent.serve.http.certificate import Certificate, unusable
from gpud.agent.serve.http.connection import Connection, ConnectionLimits, ConnectionPool
from gpud.agent.state.snapshot import with_refusals
from gpud.agent.ticks import to_tick_s
from gpud.core.errors import KeyPairError, ListenError
from gpud.core.health import Health, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from starlette.types import ASGIApp

    from gpud.agent.serve.refusals import Refused
    from gpud.agent.state.board import Board
    from gpud.core.http_settings import HttpSettings

RETRY_S: Final = 3.0
CHECK_S: Final = 5.0
BACKLOG: Final = 128
"""Connections that the kernel keeps for us, and that asyncio accepts at once."""
SEND_BUFFER: Final = 128 * 1024


class HttpService:
    """The HTTP side of the agent; what keeps it from listening is tried again and reported."""

    def __init__(
        self, application: ASGIApp, http: HttpSettings, board: Board, stop: asyncio.Event
    ) -> None:
        self._application = application
        self._http = http
        self._board = board
        self._stop = stop

    async def run(self) -> None:
        """Listen and answer until the agent stops."""
        opened = await self._open()
        if opened is None:
            return
        listener, certificate = opened
        refusals = RefusalCounter(self._count_refusals)
        guarded = AccessControl(self._application, self._http, refusals, certificate)
        watching = asyncio.create_task(self._watch(certificate))
        try:
            with listener:
                await serve(
                    guarded, listener, self._stop, certificate=certificate, refusals=refusals
                )
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def _open(self) -> tuple[socket.socket, Certificate | None] | None:
        """Load the certificate, where TLS is on, and listen: retried until both are possible.

        Returns None once the agent stops.
        """
        tls = self._http.tls_server_config
        while not self._stop.is_set():
            try:
                certificate = await asyncio.to_thread(Certificate, tls) if tls.enabled else None
                return bind(self._http.host, self._http.port), certificate
            except KeyPairError as error:
                self._report(unusable(error, Level.FAILED))
            except ListenError as error:
                self._report(Health(Level.FAILED, error.reason, str(error), error.fix))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), RETRY_S)
        return None

    async def _watch(self, certificate: Certificate | None) -> None:
        """Report the listener's health, and take a renewed certificate."""
        if certificate is None:
            self._report(Health(Level.OK))
            return
        expires_s = None
        while True:
            self._report(await asyncio.to_thread(certificate.check))
            if certificate.expires_s != expires_s:
                expires_s = certificate.expires_s
                http = replace(self._board.read().http, certificate_expires_s=expires_s)
                self._board.publish(http=http)
            await asyncio.sleep(CHECK_S)

    def _report(self, health: Health) -> None:
        self._board.set_health("http", health)

    def _count_refusals(self, counts: Mapping[Refused, int]) -> None:
        self._board.publish(http=with_refusals(self._board.read().http, counts))


def bind(host: str, port: int) -> socket.socket:
    """Open the listening socket.

    Errors: ``ListenError`` naming the address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only where it sees IPPROTO_TCP; else a body waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by each connection: what no client fetches must not fill the kernel either.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ListenError(
                f"{host}:{port} is taken by another program or distribution",
                reason="address_in_use",
                fix=f"`sudo ss -ltnp 'sport = :{port}'` names a program of this distribution: stop "
                "it, and gpud takes the address as soon as it is free; or set [http] listen to "
                "another port, then `sudo gpud restart`",
            ) from error
        message = f"cannot listen on {host}:{port}: {error.strerror}"
        raise ListenError(message, reason="cannot_listen") from error
    listener.setblocking(False)
    return listener


async def serve(  # noqa: PLR0913  # what is served, and on which terms
    application: ASGIApp,
    listener: socket.socket,
    stop: asyncio.Event,
    *,
    certificate: Certificate | None = None,
    refusals: RefusalCounter | None = None,
    limits: ConnectionLimits | None = None,
) -> None:
    """Serve on ``listener`` until ``stop`` is set; open requests get a second to end."""
    # uvicorn logs each malformed request as a warning: a log that any client could fill.
    errors = logging.getLogger("uvicorn.error")
    errors.setLevel(logging.ERROR)
    errors.addFilter(_is_failure)
    pool = ConnectionPool(limits or ConnectionLimits(), refusals or RefusalCounter())
    await _Server(application, pool, certificate, stop).serve([listener])


def _is_failure(record: logging.LogRecord) -> bool:
    """Leave out requests that were cancelled at the end: they are no failure of anything."""
    cancelled = record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not cancelled and "graceful shutdown exceeded" not in record.msg


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which the process has itself, and without its tick."""

    def __init__(
        self,
        application: ASGIApp,
        pool: ConnectionPool,
        certificate: Certificate | None,
        stop: asyncio.Event,
    ) -> None:
        protocol = partial(Connection, pool=pool, certificate=certificate)
        super().__init__(
            uvicorn.Config(
                application,
                http=cast("type[asyncio.Protocol]", protocol),
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                proxy_headers=False,
                server_header=False,
                date_header=False,  # ``with_headers`` writes it: uvicorn's is of the last tick
                backlog=BACKLOG,
                h11_max_incomplete_event_size=32 * 1024,
                timeout_keep_alive=int(pool.limits.idle_s),
                timeout_graceful_shutdown=1,
            )
        )
        self._pool = pool
        self._stop = stop

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the agent."""
        yield

    async def main_loop(self) -> None:
        """Close connections past their deadline and count refusals, at each tick with a client."""
        pool, stopped = self._pool, asyncio.create_task(self._stop.wait())
        stopped.add_done_callback(lambda _: pool.stirred.set())
        while not stopped.done():
            pool.close_overdue(asyncio.get_running_loop().time())
            pool.refusals.publish()
            if pool.is_empty:
                pool.stirred.clear()
                await pool.stirred.wait()
            await asyncio.wait([stopped], timeout=to_tick_s())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let responses end for a second, then close everything."""
        await super().shutdown(sockets)
        self._pool.close()
        await asyncio.sleep(0)  # transports close their sockets in the loop's next turn
