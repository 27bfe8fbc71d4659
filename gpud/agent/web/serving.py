"""The life of the listener: terms first, then an address, then answers until the end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

from gpud.agent.web.listener import bind, serve
from gpud.core.errors import ListenError
from gpud.core.events import HealthSet
from gpud.core.health import Level

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from gpud.agent.web.access import Access
    from gpud.agent.web.renewal import Renewal
    from gpud.core.events import Event
    from gpud.core.http_settings import Http

LISTEN_AGAIN_S: Final = 3.0


async def serving(
    make: Callable[[Access], ASGIApp],
    http: Http,
    renewal: Renewal,
    post: Callable[[Event], None],
    stop: asyncio.Event,
) -> None:
    """Listen and answer; an address that is taken is tried again while everything else goes on."""
    access = await renewal.first(stop)
    if access is None:
        return
    application = make(access)
    beside = (
        asyncio.create_task(renewal.keep(access, stop)),
        asyncio.create_task(access.tally.publish(post)),
    )
    try:
        while not stop.is_set():
            try:
                listener = bind(http.host, http.port)
            except ListenError as error:
                post(
                    HealthSet(
                        "http",
                        Level.FAILED,
                        time.time(),
                        reason=error.reason,
                        detail=str(error),
                        fix=error.fix,
                    )
                )
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), LISTEN_AGAIN_S)
                continue
            with listener:
                renewal.listening = True
                renewal.say(access.terms)
                await serve(application, listener, stop, access, http)
    finally:
        renewal.listening = False
        for task in beside:
            task.cancel()
        await asyncio.wait(beside)
