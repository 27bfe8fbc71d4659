"""OpenPGP keys for apt: the packets of an armoured file that holds one known key and no other."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from typing import TYPE_CHECKING, Final

from gpud.install.console import InstallError

if TYPE_CHECKING:
    from collections.abc import Iterator

ARMOUR: Final = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:\w+: .*\n)*\n([\w+/=\n]+?)(?:\n=[\w+/]{4})?\n"
    rb"-----END PGP PUBLIC KEY BLOCK-----\s*"
)
LARGEST: Final = 64 << 10
PUBLIC_KEY: Final = 6
"""Tag of the packet that a key begins with."""
PARTIAL: Final = range(224, 255)
"""First octets of a length in parts, which no key has."""


def key(armoured: bytes, fingerprint: str) -> bytes:
    """Return what is written into a keyring. Errors: ``InstallError`` for another key, or more."""
    block = ARMOUR.fullmatch(armoured[: LARGEST + 1].replace(b"\r\n", b"\n"))
    keys, binary = [], b""
    if block is not None and len(armoured) <= LARGEST:
        try:
            binary = base64.b64decode(block[1].replace(b"\n", b""), validate=True)
            keys = [_fingerprint(body) for tag, body in _packets(binary) if tag == PUBLIC_KEY]
        except (ValueError, IndexError):
            keys = []
    if keys != [fingerprint.lower()]:
        raise InstallError(f"this is not the key {fingerprint} alone, but: {keys or 'no key'}", "")
    return binary


def _fingerprint(body: bytes) -> str:
    """Return that of a key of version 4. Source: RFC 9580, section 5.5.4.2."""
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest()  # noqa: S324


def _packets(binary: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and body of each packet. Source: RFC 9580, section 4.2.

    Errors: ``ValueError`` and ``IndexError`` for what is cut off or has no length.
    """
    rest = io.BytesIO(binary)
    while header := rest.read(1):
        first = header[0]
        if first & 64:
            tag, size = first & 63, rest.read(1)[0]
            if size in PARTIAL:
                raise ValueError(size)
            if size > PARTIAL[-1]:
                size = int.from_bytes(rest.read(4), "big")
            elif size >= 192:  # noqa: PLR2004  # two octets
                size = (size - 192 << 8) + rest.read(1)[0] + 192
        else:
            tag, wide = first >> 2 & 15, 1 << (first & 3)
            size = int.from_bytes(rest.read(wide), "big")
        body = rest.read(size)
        if len(body) != size or not first & 128:
            raise ValueError(size)
        yield tag, body
