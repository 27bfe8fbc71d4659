"""Answers of the API: JSON with an ETag, or a JSON document with the reason why there is none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gpud.agent.history.charts import UnknownName
from gpud.agent.serve.api.documents import Problem, Refusal
from gpud.agent.serve.api.parameters import P, UnusableParameter, parsed
from gpud.agent.serve.http.response import Body, respond
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response

T = TypeVar("T")

PATIENCE_S: Final = 8.0
"""A disk that hangs in the kernel is not waited for; queries of charts give up after 3 s."""
NOT_FOUND: Final = 404
_FIXES: Final = {404: "/api/v1/openapi.json lists what there is", 405: "use GET or HEAD"}
_REASONS: Final = {404: "no_such_path", 405: "method_not_allowed"}


def route(path: str, parameters: type[P], answer: Callable[[P], Awaitable[Body]]) -> Route:
    """Make the route of one question; what cannot be answered is a document with its reason."""

    async def endpoint(request: Request) -> Response:
        try:
            body = await answer(parsed(request.query_params, parameters))
        except UnusableParameter as error:
            problem = Problem(error.reason, str(error), error.fix, error.parameter)
            return _refused(request, problem, 400)
        except UnknownName as error:
            detail = f"there is no {error.parameter} {error.name!a:.40}"
            fix = f"use one of {', '.join(error.choices)}" if error.choices else "there is none yet"
            problem = Problem(f"unknown_{error.parameter}", detail, fix, error.parameter)
            return _refused(request, problem, NOT_FOUND)
        except StoreError as error:
            problem = Problem(error.reason, str(error), error.fix or "")
            return _refused(request, problem, 503, {"retry-after": "1"})
        return respond(request, body)

    return Route(path, endpoint)


async def read(history: Awaitable[T]) -> T:
    """Return what is read of the history within ``PATIENCE_S``. Errors: ``StoreError``."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await history
    except TimeoutError:
        slow = f"the history did not answer within {PATIENCE_S:g} s"
        raise StoreError(slow, reason="slow", fix="look at the disk") from None


async def no_answer(request: Request, error: HTTPException) -> Response:
    """Answer that there is no such path or method."""
    code = error.status_code
    path, method = f"{request.url.path!a:.100}", f"{request.method!a:.40}"
    words = f"there is no {path}" if code == NOT_FOUND else f"{path} has no {method}"
    return _failed(request, Problem(_REASONS[code], words, _FIXES[code]), code, error.headers or {})


async def broken(request: Request, _: Exception) -> Response:
    """Answer that gpud failed, and nothing of how: that is in its log."""
    problem = Problem("internal", "gpud has failed at this question", "look at gpud's log")
    return _failed(request, problem, 500, {})


HANDLERS: Final[Mapping[Any, Any]] = {404: no_answer, 405: no_answer, Exception: broken}


def _failed(
    request: Request, problem: Problem, status: int, headers: Mapping[str, str]
) -> Response:
    """Answer as JSON below /api/, and as a line elsewhere."""
    if request.url.path.startswith("/api/"):
        return _refused(request, problem, status, headers)
    fix = "try / or /metrics" if status == NOT_FOUND else problem.fix
    return PlainTextResponse(f"{problem.detail}; {fix}\n", status, headers)


def _refused(
    request: Request, problem: Problem, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    return respond(request, Body.of(Refusal(problem)), status, headers, tagged=False)
