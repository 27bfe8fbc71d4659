"""`/metrics`: the text of one snapshot, written once however many clients scrape it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.serve.http.response import Body, Cached, respond
from gpud.agent.serve.metrics.exposition import Format

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.registry import Collector
    from starlette.requests import Request
    from starlette.responses import Response

    from gpud.agent.serve.metrics.exposition import Texts
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant

MOST_FORMATS: Final = 3
"""Formats whose texts are kept for reuse; a version of OpenMetrics may be any number."""
HEADERS: Final = {"vary": "accept, accept-encoding"}


class Scrape:
    """The metrics of one agent."""

    def __init__(
        self, read: Callable[[], Snapshot], collector: Collector, now: Callable[[], Instant]
    ) -> None:
        self._read = read
        self._now = now
        self._collector = collector
        self._bodies: Cached[dict[str, Body]] | None = None  # by content type
        self._texts: dict[str, Texts] = {}  # by content type

    async def answer(self, request: Request) -> Response:
        """Answer in the format that the client asks for."""
        exposition = Format.of(request.headers.get("accept", ""))
        return respond(request, self._body(exposition), headers=HEADERS, cache=None, tagged=False)

    def _body(self, exposition: Format) -> Body:
        snapshot, now = self._read(), self._now()
        if self._bodies is None or not self._bodies.serves(now, snapshot):
            self._bodies = Cached({}, now.mono_s, snapshot)
        bodies, media_type = self._bodies.value, exposition.content_type
        if media_type not in bodies:
            if media_type not in self._texts and len(self._texts) == MOST_FORMATS:
                del self._texts[next(iter(self._texts))]
            texts = self._texts.setdefault(media_type, {})
            plain = exposition.encoded(self._collector, texts)
            bodies[media_type] = Body(plain, media_type, level=1)
        return bodies[media_type]
