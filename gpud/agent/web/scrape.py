"""`/metrics`: the text of one snapshot, written once however many scrape it at the same time."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from gpud.agent.export.exposition import Format
from gpud.agent.web.held import Held
from gpud.agent.web.negotiation import accepts_gzip

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.registry import Collector
    from starlette.requests import Request

    from gpud.agent.export.exposition import Texts
    from gpud.core.clock import Instant
    from gpud.core.snapshot import Snapshot

MOST_FORMATS: Final = 3
"""Whose texts are kept to be used again; a version of OpenMetrics may be any number."""
VARY: Final = "accept, accept-encoding"


class Scrape:
    """The metrics of one agent."""

    def __init__(
        self, read: Callable[[], Snapshot], collector: Collector, now: Callable[[], Instant]
    ) -> None:
        self._read = read
        self._now = now
        self._collector = collector
        self._written: Held[dict[tuple[str, bool], bytes]] | None = None
        """Bodies of one snapshot, by content type and whether they are packed."""
        self._texts: dict[str, Texts] = {}  # by content type

    async def answer(self, request: Request) -> Response:
        """Answer in the format that is asked for."""
        wanted = Format.of(request.headers.get("accept", ""))
        packed = accepts_gzip(request.headers.get("accept-encoding", ""))
        headers = {"content-type": wanted.content_type, "vary": VARY}
        if packed:
            headers["content-encoding"] = "gzip"
        return Response(self._body(wanted, packed=packed), headers=headers)

    def _body(self, wanted: Format, *, packed: bool) -> bytes:
        snapshot, now = self._read(), self._now()
        if self._written is None or not self._written.holds(now, snapshot):
            self._written = Held({}, now.mono_s, snapshot)
        bodies, key = self._written.made, (wanted.content_type, packed)
        if key not in bodies:
            plain = bodies.get((wanted.content_type, False)) or self._text(wanted)
            bodies[wanted.content_type, False] = plain
            if packed:
                bodies[key] = gzip.compress(plain, compresslevel=1, mtime=0)
        return bodies[key]

    def _text(self, wanted: Format) -> bytes:
        if wanted.content_type not in self._texts and len(self._texts) == MOST_FORMATS:
            del self._texts[next(iter(self._texts))]
        return wanted.encoded(self._collector, self._texts.setdefault(wanted.content_type, {}))
