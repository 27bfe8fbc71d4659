"""One made-up machine that lives: real events, folded by gpud itself, told by its own exporter."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs
from prometheus_client.utils import floatToGoString

from gpud.agent.measure.breaker import State
from gpud.agent.serve.metrics.collector import Format, SnapshotCollector
from gpud.agent.telemetry.answers import Answer
from gpud.core.clock import Instant
from gpud.core.health import Level
from gpud.core.report import KernelLogReport
from gpud.core.sample import Absent, Backend, Inventory, Pace, ProbeSpec, Reading, RunReport
from gpud.core.settings import parse
from gpud.document.machine import BreakerReport, StoreSize
from tests import snapshots, standings
from tests.events import (
    Event,
    breaker_changed,
    clock_jumped,
    evaluated,
    health_set,
    inventory_taken,
    made,
    probes_listed,
    root_read,
    run_finished,
    source_answered,
    store_measured,
)
from tests.fleet import world

if TYPE_CHECKING:
    from tests.fleet.world import Host

LARGE_EVERY = 4  # rounds
TIME = re.compile(rb"^gpud_time_seconds .*$", re.MULTILINE)
SETTINGS = parse(None, {})
HEALTHY = structs.replace(
    snapshots.ROOT,
    dockerd=structs.replace(snapshots.ROOT.dockerd, restarts={}),
    agent=structs.replace(snapshots.ROOT.agent, restarts=0),
    containers=None,
    kernel_log=KernelLogReport(counts={"noise": 21, "message_lost": 0}),
)
QUIET: dict[str, float | str | Absent] = {
    "xids": "none",
    "xid_last": 0.0,
    "throttle_reasons": "idle",
    "remapped_rows_failed": 0.0,
}


class Machine:
    """A host, its snapshot, and what a scrape of it says. Times are those of whoever asks."""

    def __init__(self, host: Host, now: Instant, round_s: float) -> None:
        self.host = host
        self.now = now
        self._round_s = round_s
        self._rounds = host.number  # not all run their large probes at once
        self._due = True  # everything
        self._device = replace(
            snapshots.DEVICE, uuid=host.uuid, name=host.model, pci_bus_id="0000:01:00.0"
        )
        self._said: tuple[bytes, str] | None = None
        self._snapshot = made(
            version="0.1.0",
            started_s=now.wall_s - 3600,
            platform={"wsl": "2", "kernel": "6.6.87.2-microsoft-standard-WSL2", "distro": "Debian"},
            identity={"hostname": "laptop", "machine_id": host.machine_id},
        )
        self._collector = SnapshotCollector(lambda: self._snapshot, SETTINGS, lambda: self.now)
        wall_s = now.wall_s
        self._fold(
            probes_listed(world.SPECS, {}, wall_s),
            inventory_taken(Inventory((self._device,), "12.8"), wall_s),
            breaker_changed(BreakerReport(State.CLOSED), wall_s),
            health_set("store", Level.OK, wall_s),
            health_set("http", Level.OK, wall_s),
            health_set("agent", Level.OK, wall_s),
        )
        self.live(now)

    def live(self, now: Instant) -> None:
        """Run a round of the small probes, and in every fourth of the large ones; look around."""
        self.now = now
        large = self._rounds % LARGE_EVERY == 0 or self._due
        self._due = False
        for spec in world.SPECS:
            if spec.pace is Pace.SMALL or large:
                self._fold(self._run(spec, now))
        self._rounds += 1
        wall_s = now.wall_s
        unwell = standings.streams(self.host.uuid, wall_s)
        self._fold(
            source_answered(
                Answer("nvml", 5, wall_s, now.mono_s, self._readings(), duration_s=0.02), wall_s
            ),
            root_read(structs.replace(HEALTHY, written_s=wall_s, beat_s=now.mono_s), None, wall_s),
            evaluated(
                {key: replace(one, open=(), slowdown=1.0) for key, one in unwell.items()},
                wall_s,
                standings.units(self.host.uuid),
            ),
            store_measured(StoreSize(98_304, 42 * self._rounds, 0, 0), wall_s),
        )

    def wake(self, now: Instant, slept_s: float) -> None:
        """Open the lid: whatever was known is as old as the sleep was long."""
        for spec in world.SPECS:
            self._fold(self._run(spec, Instant(now.wall_s - slept_s, now.mono_s)))
        self.now = now
        self._due = True
        self._fold(clock_jumped(slept_s, now.wall_s, now.mono_s))

    def scrape(self, accept: str, now: Instant) -> tuple[bytes, str]:
        """Give body and content type; a round is made when it is due.

        Of what has not changed, only the time is written anew.
        """
        if now.mono_s - self.now.mono_s >= self._round_s:
            self.live(now)
        if self._said is None:
            wanted = Format.of(accept)
            self._said = wanted.encoded(self._collector), wanted.value
        body, content_type = self._said
        time = f"gpud_time_seconds {floatToGoString(now.wall_s)}"
        return TIME.sub(time.encode(), body, count=1), content_type

    def _fold(self, *events: Event) -> None:
        self._said = None
        for event in events:
            self._snapshot = event(self._snapshot)

    def _run(self, spec: ProbeSpec, now: Instant) -> Event:
        cuda = spec.backend is Backend.CUDA
        told = self.host.on_battery
        conditions = {} if told is None else {"after.ac": not told}
        report = RunReport(
            spec.name,
            spec.backend,
            self._device if cuda else None,
            tuple(world.sample(self.host, spec, mode, self._rounds) for mode in spec.modes),
            conditions={"probe_version": world.version(self.host, spec), **conditions},
            duration_s=0.4,
            gpu_seconds=0.05,
        )
        return run_finished(report, self.host.uuid if cuda else None, now.wall_s, now.mono_s)

    def _readings(self) -> tuple[Reading, ...]:
        own: dict[str, float | str | Absent] = {
            **QUIET,
            "uuid": self.host.uuid,
            "name": self.host.model,
            "driver_version": self.host.driver,
            "temperature_celsius": 40.0 + (self._rounds + self.host.number) % 30,
            "power_watts": 20.0 + (7 * self._rounds + self.host.number) % 60,
            "energy_joules_total": 12345.0 + 30 * self._rounds,
        }
        return tuple(
            replace(one, value=own.get(one.field, one.value)) for one in snapshots.READINGS
        )
