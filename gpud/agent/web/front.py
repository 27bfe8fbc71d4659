"""`/`: the page, rendered at most once a second however many look at it, and sent compressed."""

from __future__ import annotations

import gzip
import hashlib
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from gpud.agent import status
from gpud.agent.export.probes import fresh_enough
from gpud.agent.web.assets import SCRIPT, STYLE
from gpud.agent.web.held import Held
from gpud.agent.web.negotiation import accepts_gzip, has
from gpud.agent.web.page import Own, View, page
from gpud.core.settings import config_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from gpud.agent.web.assets import Assets
    from gpud.core.clock import Instant
    from gpud.core.settings import Settings
    from gpud.core.snapshot import Snapshot

PAGE_BYTES: Final = resource.getpagesize()


@dataclass(frozen=True, slots=True)
class Rendering:
    """One page as it is sent."""

    body: bytes
    packed: bytes  # with gzip
    tag: str  # its ETag, that of what is packed has another


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
        self._last: Held[Rendering] | None = None

    async def answer(self, request: Request) -> Response:
        """Answer with the page, or with nothing where the client has it already."""
        made = self._rendering()
        packed = accepts_gzip(request.headers.get("accept-encoding", ""))
        tag = f'"{made.tag}{"-gzip" * packed}"'
        headers = {
            "content-type": "text/html; charset=utf-8",
            "etag": tag,
            "vary": "accept-encoding",
        }
        if has(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)
        if packed:
            headers["content-encoding"] = "gzip"
        return Response(made.packed if packed else made.body, headers=headers)

    def _rendering(self) -> Rendering:
        now, last = self._now(), self._last
        if last is not None and last.holds(now):
            return last.made
        body = page(self._view(now)).encode()
        tag = hashlib.sha256(body).hexdigest()[:24]
        if last is not None and last.made.tag == tag:
            made = last.made
        else:
            made = Rendering(body, gzip.compress(body, compresslevel=4, mtime=0), tag)
        self._last = Held(made, now.mono_s)
        return made

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
            status.document(snapshot, now=now),
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
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(one.ru_utime + one.ru_stime for one in used)
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return Own(None, cpu_s)
    return Own(pages * PAGE_BYTES, cpu_s)
