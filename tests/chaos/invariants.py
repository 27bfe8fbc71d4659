"""Invariants: statements about a whole gpud that hold after each fault, most also during it."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.chaos.distribution import GPUD
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.chaos.distribution import Distribution, Series
    from tests.wsl.machine import Process

CONSTANT: Final = (
    "gpud_gpu_temperature_celsius",
    "gpud_gpu_power_watts",
    "gpud_gpu_power_limit_watts",
    "gpud_gpu_clock_hertz",
    "gpud_gpu_memory_total_bytes",
    "gpud_gpu_pcie_width",
    "gpud_gpu_fan_ratio",
    "gpud_gpu_utilization_ratio",
)
"""The stand-in for NVML always gives the same for these: any other value has been invented."""
FROM_NVML_ALONE: Final = "gpud_gpu_temperature_celsius"
MEDIAN: Final = "gpud_probe_latency_median_seconds"
LONGEST_LAUNCH_S: Final = 10.0
FRESH_S: Final = 12.0
"""Root writes its file every five seconds: an older one is of a supervisor that has ended."""
SEVERAL_LOOKS: Final = 4
"""A second dockerd that is seen so often in a row is no double of a fork."""


@dataclass(slots=True)
class Witness:
    """What was seen of a distribution, and which invariants it broke."""

    distro: Distribution
    containers: set[int] = field(default_factory=set)
    runs: set[int] = field(default_factory=set)
    values: dict[Series, float] = field(default_factory=dict)
    lost: int = 0
    broken: list[str] = field(default_factory=list)
    tracebacks: int = 0
    _dockerds: int = 0

    def begin(self) -> None:
        """Take what is there while all is well as the measure of what comes."""
        self.containers = set(self.distro.machine.containers())
        self.runs = self.distro.runs() or set()
        scrape = until(lambda: of_telemetry(self.distro.metrics()), "telemetry")
        self.values = scrape
        self.tracebacks = len(tracebacks(self.distro))
        self.broken = []

    def look(self, costs: frozenset[str]) -> None:
        """Check what holds at every moment, also while a fault lasts."""
        dockerds = [p for p in self.distro.named("dockerd") if "strange" not in p.command]
        self._dockerds = self._dockerds + 1 if len(dockerds) > 1 else 0
        if self._dockerds == SEVERAL_LOOKS:
            self.fail(f"two dockerds: {[p.inner for p in dockerds]}")
        if "containers" not in costs and (gone := self._containers_gone()):
            self.fail(f"containers ended: {sorted(gone)}")
            self.containers -= gone
        for broken in invented(self.distro.metrics(), self.values):
            self.fail(broken)
        if "history" not in costs:
            self._count_runs()

    def end(self, costs: frozenset[str]) -> None:
        """Check what holds when all is well again; what a fault cost is counted."""
        self.look(costs)
        if "history" in costs:
            present = self.distro.runs() or set()
            self.lost = len(self.runs - present)
            self.runs = present
        if "containers" in costs:  # dockerd starts it again, a moment after it answers
            self.containers = set(until(self.distro.machine.containers, "the container"))
        logged = tracebacks(self.distro)
        if (new := logged[self.tracebacks :]) and "tracebacks" not in costs:
            self.fail(f"in the logs: {'; '.join(new)}")
        self.tracebacks = len(logged)

    def fail(self, words: str) -> None:
        if words not in self.broken:
            self.broken.append(words)

    def _containers_gone(self) -> set[int]:
        """Containers of which the first process has ended."""
        present = set(self.distro.machine.containers())
        return self.containers - present

    def _count_runs(self) -> None:
        present = self.distro.runs()
        if present is None:
            return
        if gone := self.runs - present:
            self.fail(f"{len(gone)} acknowledged runs lost")
        self.runs = present


def of_telemetry(scrape: dict[Series, float]) -> dict[Series, float]:
    return {key: value for key, value in scrape.items() if key[0] in CONSTANT}


def invented(scrape: dict[Series, float], values: dict[Series, float]) -> list[str]:
    """Values that the driver never gave, and latencies that cannot be."""
    broken = [
        f"{key[0]}{dict(key[1])} is {value}, not {values.get(key)}"
        for key, value in of_telemetry(scrape).items()
        if value != values.get(key)
    ]
    for (name, labels), value in scrape.items():
        if name == MEDIAN and not 0.0 < value < LONGEST_LAUNCH_S:
            broken.append(f"{name}{dict(labels)} is {value}")
        if name.startswith("gpud_") and math.isnan(value):
            broken.append(f"{name}{dict(labels)} is no number")
    return broken


def amiss(distro: Distribution, after_run: int) -> list[str]:
    """List what is not well yet; ``after_run`` is the newest run on the GPU at the fault's end."""
    report, found = distro.report(), []
    dockerd = report.get("dockerd") or {}
    age_s = time.monotonic() - report.get("beat_s", 0.0)
    if age_s > FRESH_S:
        found.append(f"root is silent for {age_s:.0f} s")
    if not dockerd.get("up") or dockerd.get("reason") or dockerd.get("owner") != "gpud":
        found.append(f"dockerd: {[dockerd.get(k) for k in ('state', 'reason', 'owner', 'detail')]}")
    if ill := distro.health():
        found.append(f"health: {ill}")
    if distro.ask("get", f"{GPUD}/-/ready", 3.0) is None:
        found.append("/-/ready does not answer")
    if not distro.scraped():
        found.append("the last scrape of Prometheus failed")
    if not of_telemetry(distro.metrics()):
        found.append("no telemetry")
    if distro.last_good_run() <= after_run:
        found.append("no new run on the GPU")
    return found + unwanted(distro.processes())


def unwanted(processes: Iterable[Process]) -> list[str]:
    """More or fewer daemons than one of each, and processes of gpud's that belong to none."""
    every = {p.pid: p for p in processes}
    found = []
    for name in ("gpud", "dockerd", "containerd"):
        number = sum(p.name == name and p.parent not in _of(every, name) for p in every.values())
        if number != 1:
            found.append(f"{number} processes {name}")
    supervisors = _of(every, "gpud")
    return found + [
        f"orphan: {process.command}"
        for process in every.values()
        if "-m gpud." in process.command and not _below(process, supervisors, every)
    ]


def _of(every: dict[int, Process], name: str) -> set[int]:
    return {p.pid for p in every.values() if p.name == name}


def _below(process: Process, ancestors: set[int], every: dict[int, Process]) -> bool:
    parent = process.parent
    while parent in every and parent not in ancestors:
        parent = every[parent].parent
    return parent in ancestors


def tracebacks(distro: Distribution) -> list[str]:
    """Exceptions in the logs, each with its type and text."""
    text = distro.root("cat /var/log/gpud/*.log /var/log/gpud/agent/*.log 2>/dev/null")
    plain = re.findall(r"Traceback \(most recent call last\):\n(?: .*\n)*(.*)", text)
    return plain + re.findall(r'"exc_type": "[^"]*", "exc_value": "[^"]*"', text)
