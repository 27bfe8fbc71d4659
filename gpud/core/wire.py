"""Documents that cross a process boundary, decoded into the types of core and back.

What arrives is not trusted: wrong types, a foreign schema version, non-finite numbers and anything
that is not JSON are refused.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from gpud.core.errors import WireError
from gpud.core.report import RootReport
from gpud.core.sample import SCHEMA_VERSION, Inventory, RunReport

Document = TypeVar("Document", RunReport, Inventory, RootReport)

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are no document of the type asked for."""


def decode(text: bytes, kind: type[Document]) -> Document:
    """Read one document of ``kind``.

    Errors: ``WireError`` saying what is wrong with the bytes, never quoting more than 80 of them.
    """
    try:
        document = msgspec.json.decode(text, type=kind)
    except UNREADABLE as error:
        raise WireError(f"not a {kind.__name__}: {error}; it begins with {text[:80]!r}") from error
    if document.schema_version != SCHEMA_VERSION:
        raise WireError(
            f"a {kind.__name__} of schema {document.schema_version}, not {SCHEMA_VERSION}"
        )
    return document


def encode(document: object) -> bytes:
    """Write a dataclass or mapping as one JSON document with a newline."""
    return msgspec.json.encode(document, order="deterministic") + b"\n"
