"""HTTP responses: bodies that are encoded once and sent often, with ETag and gzip."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

    from gpud.core.clock import Instant

T = TypeVar("T")

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"
CACHE_S: Final = 1.0
"""However many clients ask, a body is not made again within this time."""
SMALL: Final = 1000
"""Bytes; a smaller body fits into one packet and is not compressed."""


@dataclass(frozen=True)
class Body:
    """A finished body; gzip and tag are computed when they are first needed."""

    plain: bytes
    media_type: str
    level: int = 5  # of gzip

    @classmethod
    def of(cls, document: object) -> Body:
        """Encode a document as JSON, and compress it here: this may run in a thread."""
        body = cls(msgspec.json.encode(document), JSON)
        if body.is_large:
            body.packed  # noqa: B018  # computes and keeps it
        return body

    @property
    def is_large(self) -> bool:
        """Whether compression is worth it."""
        return len(self.plain) >= SMALL

    @cached_property
    def packed(self) -> bytes:
        """The body as gzip."""
        return gzip.compress(self.plain, compresslevel=self.level, mtime=0)

    @cached_property
    def tag(self) -> str:
        """The content's digest, the same after a restart."""
        return hashlib.sha256(self.plain).hexdigest()[:32]


def each_second(
    make: Callable[[Instant], T],
    now: Callable[[], Instant],
    read: Callable[[], object] = lambda: None,
) -> Callable[[], T]:
    """Return a function that gives what was made within the last second, or else makes it.

    It is made earlier where ``read`` gives another object than last time.
    """
    latest: tuple[float, object, T] | None = None

    def recent() -> T:
        nonlocal latest
        at, source = now(), read()
        if latest is None or latest[1] is not source or not 0 <= at.mono_s - latest[0] < CACHE_S:
            latest = at.mono_s, source, make(at)
        return latest[2]

    return recent


def respond(  # noqa: PLR0913  # the response's parts
    request: Request,
    body: Body,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    *,
    cache: str | None = "no-cache",
    tagged: bool = True,
) -> Response:
    """Send a body, compressed where the client accepts that; 304 if the client has it already."""
    pack = body.is_large and "gzip" in request.headers.get("accept-encoding", "").lower()
    own = {"cache-control": cache} if cache else {}
    tags = (f'"{body.tag}"', f'"{body.tag}-gzip"') if tagged else ()
    own |= {"etag": tags[pack]} if tags else {}
    own |= {"vary": "accept-encoding", **(headers or {})}
    if tags and names_tag(request.headers.get("if-none-match", ""), *tags):
        return Response(status_code=304, headers=own)
    if pack:
        own["content-encoding"] = "gzip"
    return Response(body.packed if pack else body.plain, status, own, body.media_type)


def names_tag(header: str, *tags: str) -> bool:
    """Return whether ``If-None-Match`` names one of the quoted tags, weak or strong."""
    names = {part.strip().removeprefix("W/") for part in header.split(",")}
    return not names.isdisjoint({"*", *tags})
