"""Basic authentication: bcrypt hashes, checked one at a time so that a flood cannot take the CPU.

A check costs a tenth of a second of a core by design. A right password is remembered under a keyed
digest, so a scraper costs one check; after a wrong one nothing is checked for four times as long.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
from typing import TYPE_CHECKING, Final

from gpud.agent.serve.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

QUEUE: Final = 16
REMEMBERED: Final = 128
PAUSE_FACTOR: Final = 4.0
LONGEST: Final = 72
"""bcrypt uses this many bytes; the library refuses more, htpasswd and Go cut them off."""
UNUSED: Final = "......................Zg0Jknlilk4MP8zQqoEPcIgv2l06ZR."
"""Salt and hash for user names that do not exist: they must cost a check too."""


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
