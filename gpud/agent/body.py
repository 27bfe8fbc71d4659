"""An answer as it is sent: encoded once, with its tag, compressed where that is worth it."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from typing import Final

import msgspec

WORTH_PACKING: Final = 1000
"""Bytes: a smaller body goes into one packet as it is."""


@dataclass(frozen=True, slots=True)
class Body:
    """A finished answer. It is kept compressed, which most who ask can read."""

    data: bytes
    packed: bool
    tag: str

    @classmethod
    def of(cls, document: object) -> Body:
        """Encode a document."""
        plain = msgspec.json.encode(document)
        tag = hashlib.sha256(plain).hexdigest()[:32]
        if len(plain) < WORTH_PACKING:
            return cls(plain, packed=False, tag=tag)
        return cls(gzip.compress(plain, compresslevel=5, mtime=0), packed=True, tag=tag)

    def plain(self) -> bytes:
        """Give it as it was encoded."""
        return gzip.decompress(self.data) if self.packed else self.data
