"""A scrape: all families of a snapshot, and their text in the format that was asked for."""

from __future__ import annotations

import re
from enum import Enum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from gpud.agent.serve.metrics import dcgm, gpus, machine, probes
from gpud.agent.serve.metrics.families import clean, family
from gpud.agent.state import runs
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
        current_runs = runs.current(snapshot, now)
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


class Format(Enum):
    """A way to write metrics down, by its content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

    @classmethod
    def of(cls, accept: str) -> Format:
        """Return the one that an ``Accept`` header asks for."""
        return cls.OPENMETRICS if "application/openmetrics-text" in accept else cls.TEXT

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
        if self is Format.OPENMETRICS:
            pieces.append(END)
        return b"".join(pieces)

    def _text(self, metric: Metric) -> bytes:
        """Write one family, without the end of an exposition.

        The text format has no rule that a counter ends in ``_total``, but its writer has;
        dcgm-exporter calls its own counters by their type, and so does this.
        """
        one: Any = SimpleNamespace(collect=lambda: [metric])
        if self is Format.OPENMETRICS:
            text: bytes = generate_openmetrics(one)
            return text.removesuffix(END)
        return UNTYPED_COUNTER.sub(rb"\1 counter", generate_latest(one))
