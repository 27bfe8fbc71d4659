"""Documents that cross a process boundary, decoded into the nouns of core and back.

Shapes: bytes of one JSON document in, a frozen dataclass out. What arrives is not trusted: wrong
types, a foreign schema version, non-finite numbers and anything that is not JSON are refused.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from gpud.core.errors import WireError
from gpud.core.report import RootReport
from gpud.core.sample import SCHEMA_VERSION, Inventory, ProbeSpec, RunReport

Document = TypeVar("Document", RunReport, Inventory, RootReport)


def decode(text: bytes, kind: type[Document]) -> Document:
    """Read one document of ``kind``.

    Errors: ``WireError`` saying what is wrong with the bytes, never quoting more than 80 of them.
    """
    try:
        document = msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not a {kind.__name__}: {error}; it begins with {text[:80]!r}") from error
    if document.schema_version != SCHEMA_VERSION:
        raise WireError(
            f"a {kind.__name__} of schema {document.schema_version}, not {SCHEMA_VERSION}"
        )
    return document


def decode_specs(text: bytes) -> tuple[tuple[ProbeSpec, ...], dict[str, str]]:
    """Read what ``gpud.child --list`` prints: the specs, and the refused modules with reasons."""
    try:
        listing = msgspec.json.decode(text, type=_Listing)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not a list of probes: {error}") from error
    return listing.probes, listing.refused


def encode(document: object) -> bytes:
    """Write a dataclass or mapping as one JSON document with a newline."""
    return msgspec.json.encode(document, order="deterministic") + b"\n"


class _Listing(msgspec.Struct, frozen=True):
    probes: tuple[ProbeSpec, ...]
    refused: dict[str, str]
