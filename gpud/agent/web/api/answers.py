"""How every question of the API is answered: as JSON, with an ETag, compressed where asked for.

A body is made once and sent as often as it is asked for. Its tag is that of its bytes, so it stays
while nothing has changed, also over a restart.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.responses import Response
from starlette.routing import Route

from gpud.agent.body import Body
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
SUFFIX: Final = "-gzip"
"""Of the tag of a compressed body: it is another sequence of bytes."""


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
        return sent(body, request)

    return Route(path, endpoint)


def sent(body: Body, request: Request, status_code: int = 200) -> Response:
    """Give what was asked for: whole, compressed, or the news that there is none."""
    pack = body.packed and accepts_gzip(request.headers.get("accept-encoding", ""))
    tags = f'"{body.tag}"', f'"{body.tag}{SUFFIX}"'
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
    data = body.data if pack else body.plain()
    return Response(data, status_code, headers, "application/json")


def refused(
    request: Request, said: Problem, status_code: int, headers: Mapping[str, str] | None = None
) -> Response:
    """Say why there is no answer."""
    response = sent(Body.of(Refusal(said)), request, status_code)
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
