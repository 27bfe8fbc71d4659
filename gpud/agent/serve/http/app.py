"""The routes: page, metrics, health, status. Each answer is made of a finished snapshot.

Nothing here starts a probe or changes state, and only GET and HEAD exist.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gpud.agent.serve.api import answers, openapi
from gpud.agent.serve.api import status as status_api
from gpud.agent.serve.http import assets, runbooks
from gpud.agent.serve.http.front import Front
from gpud.agent.serve.http.scrape import Scrape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from gpud.agent.serve.metrics.collector import SnapshotCollector
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.settings import Settings


def app(
    read: Callable[[], Snapshot],
    settings: Settings,
    collector: SnapshotCollector,
    now: Callable[[], Instant],
    more: Sequence[Route] = (),
) -> Starlette:
    """Build the application. ``read`` gives the snapshot that every answer is made of.

    ``more`` are the routes of what is not in a snapshot: the history.
    """
    files = assets.load()
    front = Front(read, settings, now, files, os.uname().nodename)

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("gpud is alive\n")

    async def ready(_: Request) -> Response:
        if any(state.report is not None for state in read().probes.values()):
            return PlainTextResponse("gpud is ready\n")
        return PlainTextResponse("the first probes have not ended yet\n", status_code=503)

    routes = [
        Route("/", front.answer),
        Route("/metrics", Scrape(read, collector, now).answer),
        Route("/-/healthy", healthy),
        Route("/-/ready", ready),
        status_api.route(read, now),
        assets.route(files),
        openapi.route(),
        *more,
        *runbooks.routes(files.href(assets.STYLE)),
    ]
    application = Starlette(routes=routes, exception_handlers=answers.HANDLERS)
    application.router.redirect_slashes = False  # another path is another path
    return application
