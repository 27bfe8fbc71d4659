"""The routes: page, metrics, health, API. Each answer is made of a finished snapshot.

Nothing here starts a probe or changes state, and only GET and HEAD exist.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gpud.agent.serve.api import answers, endpoints, openapi
from gpud.agent.serve.http import assets, runbooks
from gpud.agent.serve.http.response import Body, respond
from gpud.agent.serve.http.views import MetricsView, PageView
from gpud.agent.serve.page import favicon
from gpud.agent.state.snapshot import overall

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from gpud.agent.history.store import History
    from gpud.agent.serve.metrics.collector import SnapshotCollector
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.settings import Settings


def app(
    read: Callable[[], Snapshot],
    history: History,
    settings: Settings,
    collector: SnapshotCollector,
    now: Callable[[], Instant],
) -> Starlette:
    """Build the application. ``read`` gives the snapshot."""

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("gpud is alive\n")

    async def ready(_: Request) -> Response:
        if any(state.report is not None for state in read().measure.probes.values()):
            return PlainTextResponse("gpud is ready\n")
        return PlainTextResponse("the first probes have not ended yet\n", status_code=503)

    async def icon(request: Request) -> Response:
        svg = favicon(overall(read()).name.lower()).encode()
        return respond(request, Body(svg, "image/svg+xml"))

    routes = [
        Route("/", PageView(read, settings, now, os.uname().nodename).answer),
        Route("/metrics", MetricsView(read, collector, now).answer),
        Route("/-/healthy", healthy),
        Route("/-/ready", ready),
        Route("/favicon.ico", icon),
        assets.route(),
        *endpoints.routes(read, history, settings, now),
        openapi.route(),
        *runbooks.routes(),
    ]
    application = Starlette(routes=routes, exception_handlers=answers.HANDLERS)
    application.router.redirect_slashes = False  # another path is another path
    return application
