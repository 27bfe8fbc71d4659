"""/static/: the page's scripts and styles, under names that are fixed before any request.

They are read once, when the agent starts. A link that carries the version of all of them may be
kept for ever, because the next release has other links; without it a browser asks again each time.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gpud.agent.serve.http.response import Body, respond

if TYPE_CHECKING:
    from starlette.requests import Request

FOLDER: Final = Path(__file__).parent / "static"
PREFIX: Final = "/static"
STYLE: Final = "page.css"
SCRIPT: Final = "main.js"
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    "LICENSE": "text/plain; charset=utf-8",
}
FOR_EVER: Final = "public, max-age=31536000, immutable"
_IMPORT: Final = re.compile(rb'((?:from |import\()"\./[\w-]+\.js)"')


@dataclass(frozen=True, slots=True)
class Assets:
    """All of them by name, and the version that they have together."""

    version: str
    files: dict[str, Body]

    def href(self, name: str) -> str:
        """Give the link to a file. Errors: ``KeyError`` for one that is not there."""
        self.files[name]
        return f"{PREFIX}/{name}?v={self.version}"


def load(folder: Path = FOLDER) -> Assets:
    """Read every file that has a type. Errors: ``OSError``."""
    contents = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and _type(path.name) is not None
    }
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    version = digest.hexdigest()[:16]
    return Assets(
        version, {name: _asset(name, content, version) for name, content in contents.items()}
    )


def route(assets: Assets) -> Route:
    """Make the route."""

    async def static(request: Request) -> Response:
        name: str = request.path_params["name"]
        body = assets.files.get(name)
        if body is None:
            return PlainTextResponse(f"there is no {name!a:.100}\n", status_code=404)
        is_current = request.query_params.get("v") == assets.version
        return respond(request, body, cache=FOR_EVER if is_current else "no-cache")

    return Route(f"{PREFIX}/{{name:path}}", static)


def _type(name: str) -> str | None:
    path = Path(name)
    return TYPES.get(path.suffix or path.name)


def _asset(name: str, content: bytes, version: str) -> Body:
    if name.endswith(".js") and "/" not in name:
        # A module names its neighbours without the version. With it, opening the page again asks
        # for none of them.
        content = _IMPORT.sub(rb'\1?v=%s"' % version.encode(), content)
    return Body(content, _type(name) or "", level=9)
