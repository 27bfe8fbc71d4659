"""One connection: uvicorn's HTTP/1.1, with a time for everything and no request that has a body."""

from __future__ import annotations

import logging
import socket
import struct
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from gpud import keypair
from gpud.agent.web.guard import headers
from gpud.agent.web.refusals import answer, asked
from gpud.agent.web.room import IDLE, NEVER_LET_IN, STALLED, peer_of
from gpud.core.refusals import BY_STATUS, Refused

if TYPE_CHECKING:
    import asyncio

    import uvicorn
    from uvicorn.server import ServerState

    from gpud.agent.web.access import Access
    from gpud.agent.web.room import Room
    from gpud.core.http_settings import Http

LONGEST_HEADER: Final = 16 * 1024
MOST_FIELDS: Final = 64
LONGEST_TARGET: Final = 8192
MOST_AT_ONCE: Final = 64 * 1024
"""Bytes that may arrive in one piece: nobody who means well sends so many requests ahead."""
UNSENT: Final = 64 * 1024
FORGET: Final = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
CALLS: Final = "gpud.http"
"""uvicorn says of each malformed request that it was one: to a log that anybody could fill."""


class Phase(Enum):
    """What a connection waits for; each has its own patience."""

    REQUEST = "the handshake, or the rest of a request"
    ANSWER = "the application, and the client to fetch its answer"
    IDLE = "the first byte of the next request"


class Refusal(h11.RemoteProtocolError):
    """A request that is none of ours, with the status that says so."""


class Strict(h11.Connection):
    """h11, and on top of it what gpud never needs: no body, one host, a short target."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=LONGEST_HEADER)
        self.refused = Refused.BAD_REQUEST
        self.line = b""
        """The first of the request, as far as it has come and however it goes on."""

    def next_event(self) -> Any:  # noqa: ANN401  # h11's events and its two sentinels
        """Give the next event; ``Refusal`` and h11's own error leave ``refused`` for the answer."""
        if self.their_state is h11.IDLE:
            come, _ = self.trailing_data
            self.line = come.lstrip(b"\r\n").partition(b"\n")[0]
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                _check(event)
        except h11.RemoteProtocolError as error:
            self.refused = BY_STATUS.get(error.error_status_hint, Refused.BAD_REQUEST)
            raise error.with_traceback(None) from None  # h11's own would hold the connection
        return event


def _check(request: h11.Request) -> None:
    fields = request.headers.raw_items()
    if len(fields) > MOST_FIELDS or sum(len(n) + len(v) for n, v in fields) > LONGEST_HEADER:
        raise Refusal("too many headers", 431)
    if len(request.target) > LONGEST_TARGET:
        raise Refusal("too long a target", 414)
    if not request.target.startswith(b"/"):
        raise Refusal("a target that is no path", 400)
    for name, value in request.headers:
        if name == b"transfer-encoding":
            raise Refusal("a body", 400)
        if name == b"content-length" and value.strip(b"0"):
            raise Refusal("a body", 413)


class Connection(H11Protocol):
    """A client, from its arrival on. Nothing it does or leaves undone lasts for ever.

    The timer that runs is that of the state it is in: a request that is awaited, read or answered.
    """

    def __init__(  # noqa: PLR0913  # its server's parts
        self,
        config: uvicorn.Config,
        state: ServerState,
        *,
        room: Room,
        access: Access,
        http: Http,
        address: tuple[object, ...] | str,
    ) -> None:
        super().__init__(config=config, server_state=state, app_state={"admitted": self._admitted})
        self._strict = self.conn = Strict()
        self.logger = logging.getLogger(CALLS)
        self.logger.setLevel(logging.ERROR)
        self._room = room
        self._access = access
        self._http = http
        self._made = False  # past the handshake
        self._shaking: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._known = False  # was let in at least once
        self.peer = peer_of(address)
        self._enter(Phase.REQUEST)

    # --- the room's side -------------------------------------------------------------------------

    @property
    def rank(self) -> int | None:
        """As ``Member`` has it."""
        if not self._made:
            return NEVER_LET_IN
        if self.flow.write_paused or self._unsent():
            return STALLED
        if self._under_way():
            return None
        return IDLE if self._known else NEVER_LET_IN

    def drop(self) -> None:
        """Close at once, whatever is under way."""
        self._room.leave(self)
        self._unset_timer()
        if self._made:
            if self.rank == STALLED:  # the kernel is to forget what nobody fetches, too
                self.transport.get_extra_info("socket").setsockopt(*FORGET)
            self.transport.abort()
        elif self._shaking is not None:
            self._shaking.cancel()

    def renew(self) -> None:
        """Let the answer under way be the last one; without one, close."""
        if self._under_way():
            self.cycle.keep_alive = False
        else:
            self.drop()

    def shakes(self, task: asyncio.Task[object], sock: socket.socket) -> None:
        """Belong to the task that makes the connection, with or without TLS."""

        def settled(done: asyncio.Task[object]) -> None:
            error = None if done.cancelled() else done.exception()
            self._shaking = None
            if done.cancelled() or error is not None:  # no handshake, or one that took too long
                if error is not None:
                    error.__traceback__ = None  # through asyncio's frames it holds the connection
                    self._access.tally.count(Refused.TLS_FAILED)
                self._room.leave(self)
                self._unset_timer()
                self._untie()
                sock.close()

        self._shaking = task
        task.add_done_callback(settled)

    # --- asyncio's side --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Go on once TLS is agreed; a certificate that names nobody we know ends it here."""
        super().connection_made(transport)
        self._made = True
        transport.set_write_buffer_limits(high=UNSENT)
        wanted = self._access.terms.client_names
        if wanted:
            said = keypair.sans(transport.get_extra_info("peercert"))
            if wanted.isdisjoint(value for _, value in said):
                self._access.tally.count(Refused.TLS_FAILED)
                self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave no trace."""
        super().connection_lost(exc)
        self._room.leave(self)
        self._unset_timer()
        self._untie()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Finish the answer of a client that only says that it asks nothing more."""
        if not self._under_way() or self.scheme == "https":  # asyncio's TLS knows no half
            return None
        self.cycle.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        """Take what came; the time of a request runs from its first byte.

        A client that asks on before it has its answer gets this one only: nobody who means well
        does, and a few bytes could ask for hours of work.
        """
        if self.transport.is_closing():
            return
        if len(data) > MOST_AT_ONCE:
            self._access.tally.count(Refused.HEADERS_TOO_LARGE)
            self.drop()
        elif self._under_way():
            self.cycle.keep_alive = False
        else:
            if self._phase is not Phase.REQUEST:
                self._enter(Phase.REQUEST)
            super().data_received(data)

    def handle_events(self) -> None:
        """Read on; where that began an answer, its time runs."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.transport.is_closing():
            self._enter(Phase.ANSWER)
            ahead, _ = self.conn.trailing_data
            self.cycle.keep_alive = self.cycle.keep_alive and not ahead

    def pause_writing(self) -> None:
        """Hear that the client does not read."""
        super().pause_writing()
        self._room.stalled()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():  # the time to fetch this answer goes on
            return
        if not self._unsent():
            self._enter(Phase.IDLE)
        self.flow.resume_reading()
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.DONE:
            self.conn.start_next_cycle()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's
        """Refuse what is no request, with the headers that every answer has."""
        self._access.tally.count(self._strict.refused)
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.drop()
            return
        method, path = asked(self._strict.line)
        said = answer(self._strict.refused, path)
        response = h11.Response(
            status_code=said.status_code,
            headers=headers([*said.raw_headers, (b"connection", b"close")], self._access),
            reason=STATUS_PHRASES[said.status_code],
        )
        body = (h11.Data(data=bytes(said.body)), h11.EndOfMessage())
        for event in (response, *(() if method == "HEAD" else body)):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _untie(self) -> None:
        """Let go of what holds this connection.

        The collector counts objects, and a connection is few of them with OpenSSL's 60 KB behind:
        a flood of them was kept until the next thousands of objects had come.
        """
        self.app_state = {}
        self.scope = self.cycle = None  # type: ignore[assignment]  # as uvicorn itself begins

    # --- time ------------------------------------------------------------------------------------

    def _admitted(self) -> None:
        self._known = True

    def _under_way(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _unsent(self) -> bool:
        return self.transport.get_write_buffer_size() > 0

    def _enter(self, phase: Phase) -> None:
        self._unset_timer()
        self._phase = phase
        self.since_s = self.loop.time()
        patience_s = {
            Phase.REQUEST: self._http.read_header_timeout_s,
            Phase.ANSWER: self._http.write_timeout_s,
            Phase.IDLE: self._http.idle_timeout_s,
        }[phase]
        self._timer = self.loop.call_later(patience_s, self._expired)

    def _unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expired(self) -> None:
        fetched = self._phase is Phase.ANSWER and not self._under_way() and not self._unsent()
        if fetched and not self.transport.is_closing():
            self._enter(Phase.IDLE)  # the client took its time, and took all of it
            return
        if not self._made:
            self._access.tally.count(Refused.TLS_FAILED)
        elif self._unsent() or self._begun():
            self._access.tally.count(Refused.TOO_SLOW)
        self.drop()

    def _begun(self) -> bool:
        """Say whether a part of a request is here; browsers keep connections that say nothing."""
        come, _ = self.conn.trailing_data
        return self._phase is Phase.REQUEST and bool(come)
