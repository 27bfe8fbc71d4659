"""The text of a scrape, in the format that was asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from prometheus_client.exposition import choose_encoder

from gpud.agent.serve.metrics import dcgm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

UNTYPED_COUNTER: Final = re.compile(rf"^(# TYPE {dcgm.PREFIX}\w+) untyped$".encode(), re.MULTILINE)
END: Final = b"# EOF\n"
"""Of an exposition in OpenMetrics: the last line, once."""
Texts: TypeAlias = "dict[str, tuple[Metric, bytes]]"
"""Families as they were last written in one format, by name."""


@dataclass(frozen=True, slots=True)
class Format:
    """One of the few ways to write metrics down; its content type tells them apart."""

    content_type: str
    write: Callable[[Collector], bytes]

    @classmethod
    def of(cls, accept: str) -> Format:
        """Give the one that an ``Accept`` header asks for; one that cannot be read asks for none.

        prometheus_client compares the version with numbers, whatever came in its place.
        """
        try:
            write, content_type = choose_encoder(accept)
        except (TypeError, ValueError):
            write, content_type = choose_encoder("")
        return cls(content_type, write)

    def encoded(self, collector: Collector, texts: Texts | None = None) -> bytes:
        """Write everything down. ``texts`` are those of before, and what has changed goes in.

        Of a hundred families a few have changed since the last scrape, and comparing a family costs
        a tenth of writing it.
        """
        texts = {} if texts is None else texts
        pieces = []
        for family in collector.collect():
            written = texts.get(family.name)
            if written is None or written[0] != family:
                written = texts[family.name] = family, self._text(family)
            pieces.append(written[1])
        if not self.content_type.startswith("text/plain"):
            pieces.append(END)
        return b"".join(pieces)

    def _text(self, family: Metric) -> bytes:
        """Write one family, without the end of an exposition.

        The text format has no rule that a counter ends in ``_total``, but its writer has;
        dcgm-exporter calls its own counters by their type, and so does this.
        """
        text = self.write(_Alone(family))
        if self.content_type.startswith("text/plain"):
            return UNTYPED_COUNTER.sub(rb"\1 counter", text)
        return text.removesuffix(END)


@dataclass(frozen=True, slots=True)
class _Alone:
    """A collector of one family: writers take collectors."""

    family: Metric

    def collect(self) -> Iterator[Metric]:
        yield self.family
