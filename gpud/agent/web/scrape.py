"""`/metrics`: the text of one snapshot, written once however many scrape it at the same time."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from gpud.agent.export.exposition import Format
from gpud.agent.web.negotiation import accepts_gzip

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.registry import Collector
    from starlette.requests import Request

    from gpud.agent.export.exposition import Texts
    from gpud.core.clock import Instant
    from gpud.core.snapshot import Snapshot

HOLDS_S: Final = 1.0
"""So long a text serves everybody, while the snapshot is the same."""
MOST_FORMATS: Final = 3
"""Whose texts are kept to be used again; a version of OpenMetrics may be any number."""
VARY: Final = "accept, accept-encoding"


@dataclass(frozen=True, slots=True)
class Written:
    """What was written of one snapshot, by content type and whether it is packed."""

    snapshot: Snapshot
    at_mono_s: float
    bodies: dict[tuple[str, bool], bytes] = field(default_factory=dict)

    def holds(self, snapshot: Snapshot, now: Instant) -> bool:
        """Say whether it is still what a scrape shall see."""
        return self.snapshot is snapshot and 0 <= now.mono_s - self.at_mono_s < HOLDS_S


class Scrape:
    """The metrics of one agent."""

    def __init__(
        self, read: Callable[[], Snapshot], collector: Collector, now: Callable[[], Instant]
    ) -> None:
        self._read = read
        self._now = now
        self._collector = collector
        self._written: Written | None = None
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
        if self._written is None or not self._written.holds(snapshot, now):
            self._written = Written(snapshot, now.mono_s)
        bodies, key = self._written.bodies, (wanted.content_type, packed)
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
