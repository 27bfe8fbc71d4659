"""What the API says where there is no answer at all: as JSON below /api, as a line elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import PlainTextResponse

from gpud.agent.web.api.answers import refused
from gpud.agent.web.api.documents import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response

BELOW: Final = "/api/"
_FIXES: Final = {404: "/api/v1/openapi.json lists what there is", 405: "use GET or HEAD"}
_REASONS: Final = {404: "no_such_path", 405: "method_not_allowed"}


async def no_answer(request: Request, error: HTTPException) -> Response:
    """Say that there is no such path or method."""
    code = error.status_code
    path = f"{request.url.path!a:.100}"
    method = f"{request.method!a:.40}"
    words = f"there is no {path}" if code == 404 else f"{path} has no {method}"  # noqa: PLR2004
    return _said(request, Problem(_REASONS[code], words, _FIXES[code]), code, error.headers or {})


async def broken(request: Request, _: Exception) -> Response:
    """Say that gpud failed, and nothing of how: that is in its log."""
    said = Problem("internal", "gpud has failed at this question", "look at gpud's log")
    return _said(request, said, 500, {})


HANDLERS: Final[Mapping[Any, Any]] = {404: no_answer, 405: no_answer, Exception: broken}


def _said(
    request: Request, said: Problem, status_code: int, headers: Mapping[str, str]
) -> Response:
    if request.url.path.startswith(BELOW):
        return refused(request, said, status_code, headers)
    fix = "try / or /metrics" if status_code == 404 else said.fix  # noqa: PLR2004
    return PlainTextResponse(f"{said.detail}; {fix}\n", status_code, headers)
