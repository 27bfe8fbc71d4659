"""`/` and `/metrics`: rendered at most once a second, however many clients ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.serve.http.response import HTML, Body, Cached, respond
from gpud.agent.serve.metrics.collector import Format
from gpud.agent.serve.metrics.probes import fresh_enough
from gpud.agent.serve.page import page
from gpud.agent.state import status
from gpud.core.settings import config_path
from gpud.show.model import Input

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.registry import Collector
    from starlette.requests import Request
    from starlette.responses import Response

    from gpud.agent.serve.metrics.collector import Texts
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.settings import Settings

METRICS_HEADERS: Final = {"vary": "accept, accept-encoding"}


class PageView:
    """The page of one agent."""

    def __init__(
        self,
        read: Callable[[], Snapshot],
        settings: Settings,
        now: Callable[[], Instant],
        host: str = "",
    ) -> None:
        self._read = read
        self._settings = settings
        self._now = now
        self._host = host
        self._config = config_path(settings.home)
        self._cached: Cached[Body] | None = None

    async def answer(self, request: Request) -> Response:
        """Answer with the page, or with 304 if the client has it already."""
        return respond(request, self._body(), cache=None)

    def _body(self) -> Body:
        now, cached = self._now(), self._cached
        if cached is None or not cached.serves(now):
            body = Body(page(self._input(now), self._host, self._config).encode(), HTML)
            if cached is not None and cached.value.plain == body.plain:
                body = cached.value  # compressed already
            cached = self._cached = Cached(body, now.mono_s)
        return cached.value

    def _input(self, now: Instant) -> Input:
        snapshot = self._read()
        fresh = fresh_enough(snapshot, self._settings, now)
        runs = frozenset((key.gpu, key.probe) for key in fresh)
        return Input(status.document(snapshot, now=now), runs)


class MetricsView:
    """The metrics of one agent, in the formats that Prometheus asks for."""

    def __init__(
        self, read: Callable[[], Snapshot], collector: Collector, now: Callable[[], Instant]
    ) -> None:
        self._read = read
        self._now = now
        self._collector = collector
        self._bodies: Cached[dict[Format, Body]] | None = None
        self._texts: dict[Format, Texts] = {form: {} for form in Format}

    async def answer(self, request: Request) -> Response:
        """Answer in the format that the client asks for."""
        body = self._body(Format.of(request.headers.get("accept", "")))
        return respond(request, body, headers=METRICS_HEADERS, cache=None, tagged=False)

    def _body(self, exposition: Format) -> Body:
        snapshot, now = self._read(), self._now()
        if self._bodies is None or not self._bodies.serves(now, snapshot):
            self._bodies = Cached({}, now.mono_s, snapshot)
        bodies = self._bodies.value
        if exposition not in bodies:
            plain = exposition.encoded(self._collector, self._texts[exposition])
            bodies[exposition] = Body(plain, exposition.value, level=1)
        return bodies[exposition]
