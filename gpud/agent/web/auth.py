"""Basic authentication: passwords against bcrypt hashes, without giving an attacker the CPU.

A check costs a tenth of a second of a core by design. So they run one at a time in a thread, few
may wait, a failed one is followed by a rest, and what was checked once is remembered: a scraper
costs one check, and a flood of wrong passwords a fifth of one core, however many send it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections import Counter, OrderedDict
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_WAITING: Final = 16
MOST_WAITING_PER_PEER: Final = 4
REMEMBERED: Final = 128
REST_FACTOR: Final = 4.0
"""So many times as long as a failed check took is not checked at all."""
LONGEST: Final = 72
"""bcrypt looks at so many bytes; the library refuses more, htpasswd and Go cut them off."""
NOBODY: Final = "......................Zg0Jknlilk4MP8zQqoEPcIgv2l06ZR."
"""Salt and hash whose password nobody is let in with: a name that is unknown costs a check too."""


class Outcome(Enum):
    """What became of an attempt."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    BUSY = "busy"  # too many attempts wait; nothing was checked


class Checker:
    """Remembers and rations checks; the hashes come with each call, so that they may change."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._bad: OrderedDict[bytes, None] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()
        self._waiting: Counter[str] = Counter()

    async def check(self, header: str, users: Mapping[str, str], peer: str) -> Outcome:
        """Judge an Authorization header; ``peer`` is whose share of the waiting places it takes."""
        given = credentials(header)
        if given is None:
            return Outcome.UNKNOWN
        user, password = given
        hashed = users.get(user)
        against = hashed or _dummy(users)
        digest = self._digest(user, against, password)
        if (said := self._remembered(digest)) is not None:
            return said
        if self._waiting.total() >= MOST_WAITING or self._waiting[peer] >= MOST_WAITING_PER_PEER:
            return Outcome.BUSY
        self._waiting[peer] += 1
        try:
            async with self._one_at_a_time:
                if (said := self._remembered(digest)) is not None:  # one before asked the same
                    return said
                began = time.monotonic()
                matches = await asyncio.to_thread(_matches, password, against)
                good = matches and hashed is not None
                _keep(self._good if good else self._bad, digest)
                if not good:
                    await asyncio.sleep(REST_FACTOR * (time.monotonic() - began))
                return Outcome.KNOWN if good else Outcome.UNKNOWN
        finally:
            self._waiting -= Counter({peer: 1})

    def _remembered(self, digest: bytes) -> Outcome | None:
        if digest in self._good:
            self._good.move_to_end(digest)
            return Outcome.KNOWN
        return Outcome.UNKNOWN if digest in self._bad else None

    def _digest(self, user: str, hashed: str, password: bytes) -> bytes:
        """Name an attempt by a keyed digest: no password is kept, no timing tells of one."""
        parts = (user.encode(), hashed.encode(), password)
        message = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._secret, message, hashlib.sha256)


def credentials(header: str) -> tuple[str, bytes] | None:
    """Read an Authorization header; None where it is no basic authentication."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(rest.strip(), validate=True).partition(b":")
        return (user.decode(), password[:LONGEST]) if colon else None
    except (binascii.Error, ValueError):
        return None


def _dummy(users: Mapping[str, str]) -> str:
    """Give a hash as costly as the costliest of ``users``."""
    cost = max(hashed.split("$")[2] for hashed in users.values())
    return f"$2b${cost}${NOBODY}"


def _matches(password: bytes, hashed: str) -> bool:
    import bcrypt  # with the first password: most agents never need it

    try:
        return bcrypt.checkpw(password, hashed.encode())
    except ValueError:
        return False


def _keep(memory: OrderedDict[bytes, None], digest: bytes) -> None:
    memory[digest] = None
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)
