"""/static/: the page's scripts and styles, under names that are fixed before any request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gpud.agent.serve.http.response import Body, respond

if TYPE_CHECKING:
    from starlette.requests import Request

FOLDER: Final = Path(__file__).parent / "static"
PREFIX: Final = "/static"
TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


def load(folder: Path = FOLDER) -> dict[str, Body]:
    """Read every file that has a type, by its name. Errors: ``OSError``."""
    return {
        path.relative_to(folder).as_posix(): Body(path.read_bytes(), TYPES[path.suffix], level=9)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in TYPES
    }


def route() -> Route:
    """Make the route; the files are read once, now."""
    files = load()

    async def static(request: Request) -> Response:
        name: str = request.path_params["name"]
        body = files.get(name)
        if body is None:
            return PlainTextResponse(f"there is no {name!a:.100}\n", status_code=404)
        return respond(request, body)

    return Route(f"{PREFIX}/{{name:path}}", static)
