"""Access control before every request: its form, its Host and Origin, and the password.

Passwords are bcrypt hashes, checked one at a time so that a flood cannot take the CPU: a check
costs a tenth of a second of a core by design. A right password is remembered under a keyed digest,
so a scraper costs one check; after a wrong one nothing is checked for four times as long.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections import Counter
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from gpud.agent.serve.api.documents import Problem, Refusal
from gpud.agent.serve.http.response import JSON, TEXT
from gpud.agent.serve.refusals import ANSWERS, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from gpud.agent.serve.http.certificate import Certificate
    from gpud.core.http_settings import HttpSettings

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  # recognised, not bound
MOST_FIELDS: Final = 64
LONGEST_HEADER: Final = 16 * 1024
LONGEST_TARGET: Final = 8192
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
QUEUE: Final = 16
REMEMBERED: Final = 128
PAUSE_FACTOR: Final = 4.0
LONGEST: Final = 72
"""bcrypt uses this many bytes; the library refuses more, htpasswd and Go cut them off."""
UNUSED: Final = "......................Zg0Jknlilk4MP8zQqoEPcIgv2l06ZR."
"""Salt and hash for user names that do not exist: they must cost a check too."""


class RefusalCounter:
    """Counts refused requests and connections; a flood of them must not flood the snapshot."""

    def __init__(self, post: Callable[[Mapping[Refused, int]], None] = lambda _: None) -> None:
        self._post = post
        self._counts: Counter[Refused] = Counter()

    def count(self, reason: Refused) -> None:
        """Count one more."""
        self._counts[reason] += 1

    def publish(self) -> None:
        """Post the counts since the last call."""
        if self._counts:
            counts, self._counts = self._counts, Counter()
            self._post(counts)


class AccessControl:
    """ASGI middleware that refuses requests and adds the security headers to every response."""

    def __init__(
        self,
        inner: ASGIApp,
        http: HttpSettings,
        refusals: RefusalCounter,
        certificate: Certificate | None = None,
    ) -> None:
        self._inner = inner
        self._refusals = refusals
        self._certificate = certificate
        own = {http.host} - WILDCARDS | set(http.hosts)
        self._names = LOOPBACK | {_bracketed(name.lower()) for name in own}
        self._passwords = Passwords(http.basic_auth_users) if http.basic_auth_users else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, as ASGI defines it."""

        async def send_with_headers(message: Any) -> None:  # noqa: ANN401  # an ASGI message
            if message["type"] == "http.response.start":
                message["headers"] = with_headers(list(message.get("headers", ())))
            await send(message)

        reason = malformed(scope) or self._foreign(scope)
        if reason is None and self._passwords is not None:
            reason = await self._passwords.check(_header(scope, b"authorization"))
        if reason is None:
            await self._inner(scope, receive, send_with_headers)
            return
        self._refusals.count(reason)
        response = refusal(reason, is_api=scope["path"].startswith("/api/"))
        await response(scope, receive, send_with_headers)

    def _foreign(self, scope: Scope) -> Refused | None:
        """Refuse requests under a foreign name, and those that a foreign page makes."""
        host = _header(scope, b"host")
        if not (self.serves(host) or _is_own_address(host, scope)):
            return Refused.FOREIGN_HOST
        return Refused.FOREIGN_PAGE if _is_foreign_page(scope, host) else None

    def serves(self, host: str) -> bool:
        """Return whether a Host header names this server; ``*.lab`` stands for one label.

        A hostile page whose name suddenly resolves to this machine (DNS rebinding) still asks
        under that name.
        """
        bare, colon, port = host.rpartition(":")
        name = (bare if colon and port.isdigit() else host).lower().removesuffix(".")
        names = self._names | (self._certificate.names if self._certificate else frozenset())
        first, dot, rest = name.partition(".")
        return name in names or (bool(first and dot) and f"*.{rest}" in names)


def malformed(scope: Scope) -> Refused | None:
    """Refuse requests with a body, too many headers, or a target that is not a path."""
    fields = scope["headers"]
    if len(fields) > MOST_FIELDS or sum(len(n) + len(v) for n, v in fields) > LONGEST_HEADER:
        return Refused.HEADERS_TOO_LARGE
    if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_TARGET:
        return Refused.TARGET_TOO_LONG
    if not scope["path"].startswith("/"):
        return Refused.BAD_REQUEST
    for name, value in fields:
        if name == b"transfer-encoding":
            return Refused.BAD_REQUEST
        if name == b"content-length" and value.strip(b"0"):
            return Refused.BODY_TOO_LARGE
    return None


def refusal(reason: Refused, *, is_api: bool) -> Response:
    """Make the response of a refusal: JSON below /api/, which programs read, else a line."""
    answer = ANSWERS[reason]
    headers = dict(answer.headers)
    if answer.closes:
        headers["connection"] = "close"
    if is_api:
        body = msgspec.json.encode(Refusal(Problem(reason.value, answer.detail, answer.fix)))
        return Response(body, answer.status, headers, JSON)
    return Response(f"{answer.detail}; {answer.fix}\n", answer.status, headers, TEXT)


def with_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Add the headers of every response; those that are there already stay."""
    names = {name for name, _ in headers}
    every = (*HEADERS, (b"date", formatdate(usegmt=True).encode()))
    return [*headers, *(header for header in every if header[0] not in names)]


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def _is_own_address(host: str, scope: Scope) -> bool:
    """Return whether ``host`` is the address that was connected to: no name was resolved."""
    address = str((scope.get("server") or ("",))[0])
    return bool(address) and _bracketed(address) in {host, host.rpartition(":")[0]}


def _is_foreign_page(scope: Scope, host: str) -> bool:
    """Return whether a browser asks for a page of another site, other than by a link.

    The page could not read the response, but its size and time tell something. Programs send
    neither header; a link, a bookmark and a typed address are navigations.
    """
    origin = _header(scope, b"origin")
    if origin and origin.partition("://")[2] != host:
        return True
    if _header(scope, b"sec-fetch-site") in {"", "none", "same-origin"}:
        return False
    purpose = (_header(scope, b"sec-fetch-mode"), _header(scope, b"sec-fetch-dest"))
    return purpose != ("navigate", "document")


def _header(scope: Scope, name: bytes) -> str:
    """Return the only value of a header; "" where it is absent or repeated."""
    values = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else ""


class Passwords:
    """The users of the listener, and the passwords that were right so far."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        cost = max((hashed.split("$")[2] for hashed in users.values()), default="04")
        self._unknown = f"$2b${cost}${UNUSED}"
        self._secret = secrets.token_bytes(32)
        self._right: set[bytes] = set()
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def check(self, header: str) -> Refused | None:
        """Return why an Authorization header is refused, or None if it is right."""
        login = credentials(header)
        if login is None:
            return Refused.UNAUTHORIZED
        user, password = login
        digest = self._digest(user, password)
        if digest in self._right:
            return None
        if self._waiting >= QUEUE:
            return Refused.TOO_MANY_PASSWORDS
        self._waiting += 1
        try:
            async with self._lock:
                if digest not in self._right and not await self._matches(user, password):
                    return Refused.UNAUTHORIZED
        finally:
            self._waiting -= 1
        if len(self._right) < REMEMBERED:
            self._right.add(digest)
        return None

    async def _matches(self, user: str, password: bytes) -> bool:
        begun_s = time.monotonic()
        hashed = self._users.get(user, self._unknown)
        matches = await asyncio.to_thread(_matches, password, hashed) and user in self._users
        if not matches:
            await asyncio.sleep(PAUSE_FACTOR * (time.monotonic() - begun_s))
        return matches

    def _digest(self, user: str, password: bytes) -> bytes:
        """Name an attempt by a keyed digest: no password is stored and no timing reveals one."""
        message = len(user.encode()).to_bytes(4, "big") + user.encode() + password
        return hmac.digest(self._secret, message, hashlib.sha256)


def credentials(header: str) -> tuple[str, bytes] | None:
    """Read user and password from an Authorization header; None if it has no such pair."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(rest.strip(), validate=True).partition(b":")
        return (user.decode(), password[:LONGEST]) if colon else None
    except (binascii.Error, ValueError):
        return None


def _matches(password: bytes, hashed: str) -> bool:
    import bcrypt  # with the first password: most agents never need it

    try:
        return bcrypt.checkpw(password, hashed.encode())
    except ValueError:
        return False
