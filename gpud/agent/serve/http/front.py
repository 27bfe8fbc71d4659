"""`/`: the page, rendered at most once a second however many clients look at it."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.agent.serve.http.assets import SCRIPT, STYLE
from gpud.agent.serve.http.response import HTML, Body, Cached, respond
from gpud.agent.serve.metrics.probes import fresh_enough
from gpud.agent.serve.page import Own, View, page
from gpud.agent.state import status
from gpud.core.settings import config_path
from gpud.show.document import read

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from gpud.agent.serve.http.assets import Assets
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.settings import Settings

PAGE_BYTES: Final = resource.getpagesize()


class Front:
    """The page of one agent."""

    def __init__(
        self,
        read: Callable[[], Snapshot],
        settings: Settings,
        now: Callable[[], Instant],
        files: Assets,
        host: str = "",
    ) -> None:
        self._read = read
        self._settings = settings
        self._now = now
        self._files = files
        self._modules = files.modules
        self._host = host
        self._cached: Cached[Body] | None = None

    async def answer(self, request: Request) -> Response:
        """Answer with the page, or with 304 if the client has it already."""
        return respond(request, self._body(), cache=None)

    def _body(self) -> Body:
        now, cached = self._now(), self._cached
        if cached is None or not cached.serves(now):
            body = Body(page(self._view(now)).encode(), HTML)
            if cached is not None and cached.value.plain == body.plain:
                body = cached.value  # compressed already
            cached = self._cached = Cached(body, now.mono_s)
        return cached.value

    def _view(self, now: Instant) -> View:
        snapshot = self._read()
        buckets = {
            (key.gpu, key.probe, sample.mode): sample.buckets
            for key, state in snapshot.probes.items()
            for sample in state.samples
            if sample.buckets is not None
        }
        fresh = fresh_enough(snapshot, self._settings, now)
        return View(
            read(status.document(snapshot, now=now)),
            buckets,
            frozenset((key.gpu, key.probe) for key in fresh),
            own(),
            self._host,
            config_path(self._settings.home),
            self._files.href(STYLE),
            self._files.href(SCRIPT),
            self._modules,
        )


def own() -> Own:
    """Ask the kernel what this process and its ended children have taken; it answers at once."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return Own(None, cpu_s)
    return Own(pages * PAGE_BYTES, cpu_s)
