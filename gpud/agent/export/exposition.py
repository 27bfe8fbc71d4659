"""The text of a scrape, in the format that was asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.exposition import choose_encoder

from gpud.agent.export import dcgm

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

UNTYPED_COUNTER = re.compile(rf"^(# TYPE {dcgm.PREFIX}\w+) untyped$".encode(), re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Format:
    """One of the few ways to write metrics down; its content type tells them apart."""

    content_type: str
    write: Callable[[CollectorRegistry], bytes]

    @classmethod
    def of(cls, accept: str) -> Format:
        """Give the one that an ``Accept`` header asks for."""
        write, content_type = choose_encoder(accept)
        return cls(content_type, write)

    def encoded(self, registry: CollectorRegistry) -> bytes:
        """Write everything down.

        The text format has no rule that a counter ends in ``_total``, but its writer has;
        dcgm-exporter calls its own counters by their type, and so does this.
        """
        body = self.write(registry)
        if self.content_type.startswith("text/plain"):
            body = UNTYPED_COUNTER.sub(rb"\1 counter", body)
        return body
