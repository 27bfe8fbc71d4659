"""What holds for every answer: its headers, and the name under which it was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

HEADERS: Final = (
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
            b"connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
        ),
    ),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  # recognised, not bound


class Guard:
    """Headers on every answer, and no answer to a foreign Host: that is how DNS rebinding asks."""

    def __init__(self, inner: ASGIApp, host: str) -> None:
        self._inner = inner
        self._hosts = None if host in WILDCARDS else LOOPBACK | {host, f"[{host}]"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, as ASGI asks."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:  # noqa: ANN401  # an ASGI message
            if message["type"] == "http.response.start":
                own = list(message.get("headers", []))
                named = {name for name, _ in own}  # a file that never changes may be kept
                message["headers"] = [*own, *(one for one in HEADERS if one[0] not in named)]
            await send(message)

        answer: ASGIApp = self._inner
        if self._hosts is not None and _host(scope) not in self._hosts:
            answer = PlainTextResponse(
                "this address is not served under that name; use 127.0.0.1 or localhost\n",
                status_code=421,
            )
        await answer(scope, receive, with_headers)


def _host(scope: Scope) -> str:
    """Give the Host header without its port."""
    for name, value in scope["headers"]:
        if name == b"host":
            text: str = value.decode("latin-1")
            bare, colon, port = text.rpartition(":")
            return bare if colon and port.isdigit() else text
    return ""
