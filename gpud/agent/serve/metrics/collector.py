"""The one collector that is registered: it reads a snapshot and asks each subject in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent.serve.metrics import (
    alerts,
    changes,
    dcgm,
    dockerd,
    identity,
    judging,
    loss,
    machine,
    notifications,
    probes,
    readings,
    states,
    telemetry,
)
from gpud.agent.serve.metrics.labels import clean
from gpud.core.telemetry import current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.settings import Settings


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
        snapshot, settings, now = self._read(), self._settings, self._now()
        current_runs = probes.fresh_enough(snapshot, settings, now)
        for family in (
            *machine.identity(snapshot),
            *machine.clock(now),
            *machine.health(snapshot),
            *dockerd.families(snapshot),
            *loss.families(snapshot),
            *probes.families(snapshot, current_runs),
            *judging.families(snapshot, current_runs),
            *self._telemetry(snapshot, now),
            *changes.families(snapshot),
            *alerts.families(snapshot),
            *notifications.families(snapshot),
            *machine.store(snapshot),
            *machine.listener(snapshot),
            *machine.own(snapshot),
        ):
            if family.samples:
                yield family

    def _telemetry(self, snapshot: Snapshot, now: Instant) -> Iterator[Metric]:
        said = current(snapshot.telemetry, now.mono_s)
        known = identity.identities(snapshot, said)
        yield from identity.families(known, said)
        yield from readings.families(readings.numbers(said))
        yield from states.families(said)
        yield from telemetry.families(snapshot, said, self._settings, now)
        if dcgm.NAME in self._settings.export.compat:
            yield from dcgm.families(said, known, hostname=self._host)
