"""The text of a scrape, in the format that was asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prometheus_client.exposition import choose_encoder

from gpud.agent.export import dcgm

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

UNTYPED_COUNTER = re.compile(rf"^(# TYPE {dcgm.PREFIX}\w+) untyped$".encode(), re.MULTILINE)


def encoded(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Give the body and its content type for an ``Accept`` header.

    The text format has no rule that a counter ends in ``_total``, but its writer has; dcgm-exporter
    calls its own counters by their type, and so does this.
    """
    encode, content_type = choose_encoder(accept)
    body: bytes = encode(registry)
    if content_type.startswith("text/plain"):
        body = UNTYPED_COUNTER.sub(rb"\1 counter", body)
    return body, content_type
