"""The routes: page and its files, metrics, health, API. Answers are made of a finished snapshot.

Nothing here starts a probe or changes state, and only GET and HEAD exist.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gpud.agent.serve.api import answers, endpoints, openapi
from gpud.agent.serve.http import runbooks
from gpud.agent.serve.http.response import Body, respond
from gpud.agent.serve.http.views import MetricsView, PageView
from gpud.agent.serve.page import favicon
from gpud.agent.state.snapshot import overall

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from gpud.agent.history.store import History
    from gpud.agent.serve.metrics.collector import SnapshotCollector
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.settings import Settings

STATIC: Final = Path(__file__).parent / "static"
TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


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
        if read().measure.probes:
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
        static_route(),
        *endpoints.routes(read, history, settings, now),
        openapi.route(),
        *runbooks.routes(),
    ]
    application = Starlette(routes=routes, exception_handlers=answers.HANDLERS)
    application.router.redirect_slashes = False  # another path is another path
    return application


def static_files(folder: Path = STATIC) -> dict[str, Body]:
    """Read every file that has a type, by its name. Errors: ``OSError``."""
    return {
        path.relative_to(folder).as_posix(): Body(path.read_bytes(), TYPES[path.suffix], level=9)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in TYPES
    }


def static_route() -> Route:
    """Make the route; the files are read once, now."""
    files = static_files()

    async def static(request: Request) -> Response:
        name: str = request.path_params["name"]
        body = files.get(name)
        if body is None:
            return PlainTextResponse(f"there is no {name!a:.100}\n", status_code=404)
        return respond(request, body)

    return Route("/static/{name:path}", static)
