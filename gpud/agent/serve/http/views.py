"""`/` and `/metrics`: rendered at most once a second, however many clients ask."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gpud.agent.serve.http.response import HTML, Body, each_second, respond
from gpud.agent.serve.metrics.collector import Format
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
        self._host = host
        self._config = config_path(settings.home)
        self._body = each_second(self._render, now)

    async def answer(self, request: Request) -> Response:
        """Answer with the page, or with 304 if the client has it already."""
        return respond(request, self._body(), cache=None)

    def _render(self, now: Instant) -> Body:
        source = Input(status.document(self._read(), now=now))
        return Body(page(source, self._host, self._config).encode(), HTML)


class MetricsView:
    """The metrics of one agent, in the formats that Prometheus asks for."""

    def __init__(
        self, read: Callable[[], Snapshot], collector: Collector, now: Callable[[], Instant]
    ) -> None:
        self._collector = collector
        self._bodies = {
            form: each_second(partial(self._write, form, {}), now, read) for form in Format
        }

    async def answer(self, request: Request) -> Response:
        """Answer in the format that the client asks for."""
        body = self._bodies[Format.of(request.headers.get("accept", ""))]()
        return respond(request, body, headers=METRICS_HEADERS, cache=None, tagged=False)

    def _write(self, form: Format, texts: Texts, _: Instant) -> Body:
        return Body(form.encoded(self._collector, texts), form.value, level=1)
