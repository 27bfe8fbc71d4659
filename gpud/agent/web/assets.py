"""/static/: the files of the page that are no HTML, under names that are known before any request.

They are read once, when the agent starts. A link that carries the version of all of them may be
kept for ever, because the next release has other links; without it a browser asks again each time.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gpud.agent.web.negotiation import accepts_gzip, has

if TYPE_CHECKING:
    from starlette.requests import Request

FOLDER: Final = Path(__file__).parent / "static"
PREFIX: Final = "/static"
STYLE: Final = "page.css"
SCRIPT: Final = "main.js"
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    "LICENSE": "text/plain; charset=utf-8",
}
FOR_EVER: Final = "public, max-age=31536000, immutable"
_NEEDED: Final = re.compile(rb'from "\./([\w-]+\.js)')
_IMPORT: Final = re.compile(rb'((?:from |import\()"\./[\w-]+\.js)"')


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is sent; ``packed`` is gzip."""

    media_type: str
    packed: bytes


@dataclass(frozen=True, slots=True)
class Assets:
    """All of them by name, and the version that they have together."""

    version: str
    files: dict[str, Asset]

    def href(self, name: str) -> str:
        """Give the link to a file. Errors: ``KeyError`` for one that is not there."""
        self.files[name]
        return f"{PREFIX}/{name}?v={self.version}"

    @property
    def modules(self) -> tuple[str, ...]:
        """The links of what the script needs before it begins, so that none waits for another."""
        found, ahead = set[str](), [SCRIPT]
        while ahead:
            name = ahead.pop()
            if name not in found:
                found.add(name)
                body = gzip.decompress(self.files[name].packed)
                ahead += [one.decode() for one in _NEEDED.findall(body)]
        return tuple(self.href(name) for name in sorted(found))


def load(folder: Path = FOLDER) -> Assets:
    """Read every file that has a type. Errors: ``OSError``."""
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and _type(path) is not None
    }
    digest = hashlib.sha256()
    for name, body in found.items():
        digest.update(f"{name}\0{len(body)}\0".encode() + body)
    version = digest.hexdigest()[:16]
    return Assets(version, {name: _asset(name, body, version) for name, body in found.items()})


def route(assets: Assets) -> Route:
    """Make the route."""

    async def static(request: Request) -> Response:
        asked: str = request.path_params["name"]
        asset = assets.files.get(asked)
        if asset is None:
            return PlainTextResponse(f"there is no {asked!a:.100}\n", status_code=404)
        packed = accepts_gzip(request.headers.get("accept-encoding", ""))
        tag = f'"{assets.version}{"-gzip" * packed}"'
        kept = request.query_params.get("v") == assets.version
        headers = {
            "cache-control": FOR_EVER if kept else "no-cache",
            "etag": tag,
            "vary": "accept-encoding",
        }
        if has(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)
        if packed:
            headers["content-encoding"] = "gzip"
        body = asset.packed if packed else gzip.decompress(asset.packed)
        return Response(body, media_type=asset.media_type, headers=headers)

    return Route(f"{PREFIX}/{{name:path}}", static)


def _type(path: Path) -> str | None:
    return TYPES.get(path.suffix or path.name)


def _asset(name: str, body: bytes, version: str) -> Asset:
    media_type = _type(Path(name))
    assert media_type is not None  # noqa: S101  # only such files were read
    if name.endswith(".js") and "/" not in name:
        # A module names its neighbours without the version, so it is told here: once the browser
        # has them, opening the page asks for none of them.
        body = _IMPORT.sub(rb'\1?v=%s"' % version.encode(), body)
    return Asset(media_type, gzip.compress(body, mtime=0))
