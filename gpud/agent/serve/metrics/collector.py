"""A scrape: all families of a snapshot, and their text in the format that was asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from prometheus_client.exposition import choose_encoder

from gpud.agent.serve.metrics import dcgm, gpus, machine, probes
from gpud.agent.serve.metrics.families import clean, family
from gpud.agent.telemetry.answers import current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

    from gpud.agent.serve.metrics.families import Families
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.settings import Settings

UNTYPED_COUNTER: Final = re.compile(rf"^(# TYPE {dcgm.PREFIX}\w+) untyped$".encode(), re.MULTILINE)
END: Final = b"# EOF\n"
"""Of an exposition in OpenMetrics: the last line, once."""
Texts: TypeAlias = "dict[str, tuple[Metric, bytes]]"
"""Families as they were last written in one format, by name."""


class SnapshotCollector:
    """A collector over one frozen value: no driver, no file and no lock is touched by a scrape.

    ``hostname`` is for the names that carry one, which gpud's own do not.
    """

    def __init__(
        self,
        read: Callable[[], Snapshot],
        settings: Settings,
        now: Callable[[], Instant],
        hostname: str = "",
    ) -> None:
        self._read = read
        self._settings = settings
        self._now = now
        self._host = dict[str, str]()
        if hostname:
            self._host[settings.export.hostname_label] = clean(hostname)

    def collect(self) -> Iterator[Metric]:
        """Yield every family of the current snapshot, each with at least one sample."""
        for metric in self._families(self._read(), self._now()):
            if metric.samples:
                yield metric

    def _families(self, snapshot: Snapshot, now: Instant) -> Iterator[Metric]:
        settings = self._settings
        current_runs = probes.fresh_enough(snapshot, settings, now)
        yield from _made(
            machine.identity(snapshot, now),
            machine.health(snapshot),
            machine.dockerd(snapshot),
            machine.containers(snapshot),
            machine.gpu_work(snapshot),
            machine.kernel_log(snapshot),
            machine.known_faults(snapshot),
            probes.figures(current_runs),
            probes.runs(snapshot, current_runs),
            probes.regression(snapshot, current_runs),
        )
        readings = current(snapshot.telemetry, now.mono_s)
        words = gpus.words_of(readings)
        identities = gpus.identities(snapshot, words)
        yield from _made(gpus.identity(identities, words))
        yield from gpus.numeric(gpus.numbers(readings))
        sources = gpus.sources(snapshot, settings, now)
        yield from _made(gpus.states(words), sources, gpus.fields(readings))
        if dcgm.NAME in settings.export.compat:
            yield from dcgm.families(readings, identities, hostname=self._host)
        yield from _made(machine.changes(snapshot), machine.alerts(snapshot), machine.own(snapshot))


def _made(*subjects: Families) -> Iterator[Metric]:
    for subject in subjects:
        for name, rows in subject:
            yield family(name, rows)


@dataclass(frozen=True, slots=True)
class Format:
    """One of the few ways to write metrics down; its content type tells them apart."""

    content_type: str
    write: Callable[[Any], bytes]

    @classmethod
    def of(cls, accept: str) -> Format:
        """Return the one that an ``Accept`` header asks for; an unreadable header asks for none.

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
        for metric in collector.collect():
            written = texts.get(metric.name)
            if written is None or written[0] != metric:
                written = texts[metric.name] = metric, self._text(metric)
            pieces.append(written[1])
        if not self.content_type.startswith("text/plain"):
            pieces.append(END)
        return b"".join(pieces)

    def _text(self, metric: Metric) -> bytes:
        """Write one family, without the end of an exposition.

        The text format has no rule that a counter ends in ``_total``, but its writer has;
        dcgm-exporter calls its own counters by their type, and so does this.
        """
        text = self.write(SimpleNamespace(collect=lambda: [metric]))
        if self.content_type.startswith("text/plain"):
            return UNTYPED_COUNTER.sub(rb"\1 counter", text)
        return text.removesuffix(END)
