"""The collector of all families: it reads a snapshot and asks each subject in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent.serve.metrics import (
    alerts,
    dcgm,
    identity,
    machine,
    probes,
    readings,
    regression,
    root,
    telemetry,
)
from gpud.agent.serve.metrics.families import clean
from gpud.agent.telemetry.answers import current

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
            *machine.identity(snapshot, now),
            *machine.health(snapshot),
            *root.dockerd(snapshot),
            *root.containers(snapshot),
            *machine.driver_answers(snapshot),
            *root.kernel_log(snapshot),
            *probes.families(snapshot, current_runs),
            *regression.families(snapshot, current_runs),
            *self._telemetry(snapshot, now),
            *machine.changes(snapshot),
            *alerts.families(snapshot),
            *machine.store(snapshot),
            *machine.listener(snapshot),
            *machine.own(snapshot),
        ):
            if family.samples:
                yield family

    def _telemetry(self, snapshot: Snapshot, now: Instant) -> Iterator[Metric]:
        present = current(snapshot.telemetry, now.mono_s)
        gpus = identity.identities(snapshot, present)
        yield from identity.families(gpus, present)
        yield from readings.families(readings.numbers(present))
        yield from readings.states(present)
        yield from telemetry.families(snapshot, present, self._settings, now)
        if dcgm.NAME in self._settings.export.compat:
            yield from dcgm.families(present, gpus, hostname=self._host)
