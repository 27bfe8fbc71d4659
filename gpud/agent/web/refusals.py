"""How who is turned away is told so: as JSON below /api, which programs read, else as a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.responses import Response

from gpud.agent.web.api.documents import Problem, Refusal
from gpud.agent.web.api.errors import BELOW
from gpud.core.refusals import SAID

if TYPE_CHECKING:
    from gpud.core.refusals import Refused

JSON: Final = "application/json"
LINE: Final = "text/plain; charset=utf-8"


def answer(reason: Refused, path: str) -> Response:
    """Make the answer to whoever asked for ``path``. Errors: ``KeyError`` where nobody is told."""
    said = SAID[reason]
    if path.startswith(BELOW):
        problem = Problem(reason.value, said.detail, said.fix)
        body, media = msgspec.json.encode(Refusal(problem)), JSON
    else:
        body, media = f"{said.detail}; {said.fix}\n".encode(), LINE
    return Response(body, said.status, dict(said.headers), media)


def asked(line: bytes) -> tuple[str, str]:
    """Read method and path off the first line of what may be no request; "" where it has none."""
    method, _, rest = line.partition(b" ")
    target = rest.partition(b" ")[0].partition(b"?")[0]
    path = unquote_to_bytes(target) if target.startswith(b"/") else b""
    return method.decode("latin-1"), path.decode("utf-8", "replace")
