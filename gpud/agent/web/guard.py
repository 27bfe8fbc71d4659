"""What holds for every answer: its headers, who asks, and the name under which it was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpud.agent.web.access import asks_for
from gpud.agent.web.auth import Checker, Outcome
from gpud.agent.web.refusals import answer
from gpud.agent.web.room import peer_of
from gpud.core.refusals import Refused

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from gpud.agent.web.access import Access

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
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
CHUNK: Final = 64 * 1024
"""Handed to a connection at once: a slow reader holds that much beside the answer."""


def headers(own: list[tuple[bytes, bytes]], access: Access) -> list[tuple[bytes, bytes]]:
    """Add what every answer carries; what it carries already, or a person set, stays."""
    named = {name for name, _ in own}
    chosen = dict(access.terms.headers)
    added = [(name, chosen.pop(name, value)) for name, value in HEADERS]
    return [*own, *(one for one in [*added, *chosen.items()] if one[0] not in named)]


class Guard:
    """Stands before the application: name, origin and password, in this order."""

    def __init__(self, inner: ASGIApp, access: Access) -> None:
        self._inner = inner
        self._access = access
        self._checker = Checker()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, as ASGI asks."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return

        async def guarded(message: Any) -> None:  # noqa: ANN401  # an ASGI message
            if message["type"] == "http.response.start":
                message["headers"] = headers(list(message.get("headers", [])), self._access)
            body = message.get("body", b"")
            if len(body) <= CHUNK:
                await send(message)
                return
            for start in range(0, len(body), CHUNK):
                more = start + CHUNK < len(body) or message.get("more_body", False)
                part = {**message, "body": body[start : start + CHUNK], "more_body": more}
                await send(part)

        refused = _refused(scope, self._access) or await self._stranger(scope)
        if refused is not None:
            self._access.tally.count(refused)
            await answer(refused, scope["path"])(scope, receive, guarded)
            return
        if admitted := scope.get("state", {}).get("admitted"):
            admitted()
        await self._inner(scope, receive, guarded)

    async def _stranger(self, scope: Scope) -> Refused | None:
        """Say why somebody is not let in; None for who is."""
        users = self._access.terms.users
        if not users:
            return None
        peer = peer_of(scope.get("client") or "")
        outcome = await self._checker.check(_header(scope, b"authorization"), users, peer)
        if outcome is Outcome.KNOWN:
            return None
        return Refused.TOO_MANY_PASSWORDS if outcome is Outcome.BUSY else Refused.UNAUTHORIZED


def _refused(scope: Scope, access: Access) -> Refused | None:
    """Refuse what nobody who means well sends, whoever asks."""
    host = _header(scope, b"host")
    if not asks_for(host, access.terms.names) and not _own_address(host, scope):
        return Refused.FOREIGN_HOST
    return Refused.FOREIGN_PAGE if _foreign(scope, host) else None


def _own_address(host: str, scope: Scope) -> bool:
    """Say whether ``host`` is the very address that was connected to: no name was resolved."""
    address = str((scope.get("server") or ("",))[0])
    bare = f"[{address}]" if ":" in address else address
    return bool(address) and bare in {host, host.rpartition(":")[0]}


def _foreign(scope: Scope, host: str) -> bool:
    """Say whether a page of somebody else's makes the browser ask, other than by a link.

    It could not read the answer, but its size and time tell something. Programs send neither
    header; a link, a bookmark and a typed address are navigations.
    """
    origin = _header(scope, b"origin")
    if origin and origin.partition("://")[2] != host:
        return True
    if _header(scope, b"sec-fetch-site") in {"", "none", "same-origin"}:
        return False
    asked = (_header(scope, b"sec-fetch-mode"), _header(scope, b"sec-fetch-dest"))
    return asked != ("navigate", "document")


def _header(scope: Scope, wanted: bytes) -> str:
    """Give the one value of a header; "" where it is absent or there are two of it."""
    values = [value for name, value in scope["headers"] if name == wanted]
    return values[0].decode("latin-1") if len(values) == 1 else ""
