"""The listener's life: certificate, then address, then requests until the agent ends."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpud.agent.serve.http.access import AccessControl, RefusalCounter
from gpud.agent.serve.http.certificate import Certificate, unusable
from gpud.agent.serve.http.listener import bind, serve
from gpud.agent.state.events import CertificateRead, HealthSet
from gpud.core.errors import KeyPairError, ListenError
from gpud.core.health import Level

if TYPE_CHECKING:
    import socket

    from starlette.types import ASGIApp

    from gpud.agent.state.board import Board
    from gpud.core.http_settings import HttpSettings

RETRY_S: Final = 3.0
CHECK_S: Final = 5.0


class HttpService:
    """The HTTP side of the agent; what keeps it from listening is tried again and reported."""

    def __init__(
        self, application: ASGIApp, http: HttpSettings, board: Board, stop: asyncio.Event
    ) -> None:
        self._application = application
        self._http = http
        self._board = board
        self._stop = stop
        self._health: HealthSet | None = None

    async def run(self) -> None:
        """Listen and answer until the agent stops."""
        certificate = await self._load_certificate()
        listener = await self._bind()
        if listener is None:
            return
        refusals = RefusalCounter(self._board.post)
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

    async def _load_certificate(self) -> Certificate | None:
        """Load the certificate, None where TLS is off; retried until it can be used."""
        tls = self._http.tls_server_config
        while tls.enabled and not self._stop.is_set():
            try:
                return await asyncio.to_thread(Certificate, tls)
            except KeyPairError as error:
                self._report(unusable(error, Level.FAILED))
            await self._pause(RETRY_S)
        return None

    async def _bind(self) -> socket.socket | None:
        """Open the listening socket; retried until the address is free. None: stopped."""
        while not self._stop.is_set():
            try:
                return bind(self._http.host, self._http.port)
            except ListenError as error:
                self._report(
                    HealthSet(
                        "http", Level.FAILED, time.time(), error.reason, str(error), error.fix
                    )
                )
            await self._pause(RETRY_S)
        return None

    async def _watch(self, certificate: Certificate | None) -> None:
        """Report the listener's health, and take a renewed certificate."""
        if certificate is None:
            self._report(HealthSet("http", Level.OK, time.time()))
            return
        expires_s = None
        while True:
            self._report(await asyncio.to_thread(certificate.check))
            if certificate.expires_s != expires_s:
                expires_s = certificate.expires_s
                self._board.post(CertificateRead(expires_s))
            await asyncio.sleep(CHECK_S)

    def _report(self, health: HealthSet) -> None:
        """Post the health if it has changed."""
        if self._health is None or replace(self._health, now_s=health.now_s) != health:
            self._health = health
            self._board.post(health)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)
