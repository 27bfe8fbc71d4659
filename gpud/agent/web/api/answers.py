"""How every question of the API is answered: as JSON, with an ETag, compressed where asked for.

A body is made once and sent as often as it is asked for. Its tag is that of its bytes, so it stays
while nothing has changed, also over a restart.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from gpud.agent.web.api.documents import Problem, Refusal
from gpud.agent.web.api.queries import Parameter, Unusable, refuse_unknown
from gpud.agent.web.negotiation import accepts_gzip, has
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from starlette.datastructures import QueryParams
    from starlette.requests import Request

    from gpud.agent.store import History, Store

T = TypeVar("T")

PATIENCE_S: Final = 4.0
"""A disk that does not answer is not waited for: whoever asks has a deadline of his own."""
WORTH_PACKING: Final = 1000
"""Bytes: a smaller body goes into one packet as it is."""
SUFFIX: Final = "-gzip"
"""Of the tag of a compressed body: it is another sequence of bytes."""


@dataclass(frozen=True, slots=True)
class Body:
    """A finished answer. It is kept compressed, which most who ask can read."""

    data: bytes
    packed: bool
    tag: str

    @classmethod
    def of(cls, document: object) -> Body:
        """Encode a document."""
        plain = msgspec.json.encode(document)
        tag = hashlib.sha256(plain).hexdigest()[:32]
        if len(plain) < WORTH_PACKING:
            return cls(plain, packed=False, tag=tag)
        return cls(gzip.compress(plain, compresslevel=5, mtime=0), packed=True, tag=tag)

    def response(self, request: Request, status_code: int = 200) -> Response:
        """Give what was asked for: whole, compressed, or the news that there is none."""
        pack = self.packed and accepts_gzip(request.headers.get("accept-encoding", ""))
        tags = f'"{self.tag}"', f'"{self.tag}{SUFFIX}"'
        headers = {
            "cache-control": "no-cache",
            "etag": tags[pack],
            "vary": "accept-encoding",
        }
        asked = request.headers.get("if-none-match", "")
        if status_code == 200 and has(asked, *tags):  # noqa: PLR2004  # OK
            return Response(status_code=304, headers=headers)
        if pack:
            headers["content-encoding"] = "gzip"
        data = gzip.decompress(self.data) if self.packed and not pack else self.data
        return Response(data, status_code, headers, "application/json")


def route(
    path: str,
    parameters: Sequence[Parameter[Any]],
    answer: Callable[[QueryParams], Awaitable[Body]],
) -> Route:
    """Make the route of one question; what cannot be answered is a document with its reason."""

    async def endpoint(request: Request) -> Response:
        try:
            refuse_unknown(request.query_params, parameters)
            body = await answer(request.query_params)
        except Unusable as error:
            said = Problem(error.reason, str(error), error.fix, error.parameter)
            return refused(request, said, error.status_code)
        except StoreError as error:
            said = Problem(error.reason, str(error), error.fix or "")
            return refused(request, said, 503, {"retry-after": "1"})
        return body.response(request)

    return Route(path, endpoint)


def refused(
    request: Request, said: Problem, status_code: int, headers: Mapping[str, str] | None = None
) -> Response:
    """Say why there is no answer."""
    response = Body.of(Refusal(said)).response(request, status_code)
    del response.headers["etag"]
    response.headers.update(headers or {})
    return response


async def asked(history: History, question: Callable[[Store], T]) -> T:
    """Put a question to the history, within ``PATIENCE_S``. Errors: ``StoreError``."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await history.ask(question)
    except TimeoutError:
        slow = f"the history did not answer within {PATIENCE_S:g} s"
        raise StoreError(slow, reason="slow", fix="look at the disk") from None
