"""Which machines a made-up fleet has, and what their probes would measure. Pure and seeded.

Four models of GPU under two drivers. Under ``SLOW`` the launches and the triad of one model cost a
quarter more; so they do under it on four machines of a model too rare to say anything of. Who has
the newer driver has a newer gpud as well, two of whose probes measure otherwise.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpud import discovery
from gpud.child import probes
from gpud.core.sample import Backend, Buckets, Sample, Unit
from gpud.core.stats import LATENCY_BOUNDS_S

if TYPE_CHECKING:
    from gpud.core.sample import ProbeSpec

OLD, NEW = "572.16", "576.02"
COMMON: Final = ("RTX 4070 Laptop GPU", "RTX 4060 Laptop GPU", "RTX 3080")
SLOW: Final = (COMMON[0], NEW)
RARE: Final = "RTX A2000"
RARE_HOSTS: Final = 4  # of either driver: one too few
SLOWED: Final = ("launch", "triad")
PAIR: Final = {(*SLOW, probe) for probe in SLOWED}
ALERT: Final = {("GpudDriverSlowerThanBest", *SLOW)}
"""All there is to tell of such a fleet, as ``tools.probes`` and ``tools.fired`` give it."""
SLOWDOWN: Final = 1.25
REDONE: Final = ("small_copy", "matmul")
REDONE_MORE: Final = 1.2  # a newer gpud's method finds so much more for the same
HOSTS_DIFFER: Final = 0.03  # standard deviation of the logarithm, between machines
ON_BATTERY: Final = 1.3
RUNS_DIFFER: Final = 0.02  # between two runs of one machine

TYPICAL: Final = {
    Unit.SECONDS: 8e-6,
    Unit.BYTES_PER_SECOND: 2e11,
    Unit.FLOPS_PER_SECOND: 1.2e13,
    Unit.ELEMENTS: 65536.0,
}
MODULES, _ = discovery.modules(probes, ("SPEC",))
SPECS: Final[tuple[ProbeSpec, ...]] = tuple(module.SPEC for module in MODULES.values())


@dataclass(frozen=True, slots=True)
class Host:
    """One machine. ``on_battery`` is None for one that has no battery."""

    number: int
    model: str
    driver: str
    on_battery: bool | None
    always_on: bool

    @property
    def name(self) -> str:
        """Its instance, as targets.py would call it: the host names are all the same."""
        return f"laptop-{self.machine_id[:8]}"

    @property
    def machine_id(self) -> str:
        """32 hexadecimal digits."""
        return f"{random.Random(self.number).getrandbits(128):032x}"

    @property
    def uuid(self) -> str:
        """That of its GPU."""
        return f"GPU-{self.number:08d}-0000-0000-0000-000000000000"


def fleet(hosts: int) -> tuple[Host, ...]:
    """Make that many machines: a third in a lab, on mains and always on, the others laptops.

    The first are of the rare model. Of the common ones the second has nearly all of its laptops
    under ``NEW`` on battery, which costs ``ON_BATTERY`` times as much, and the driver nothing.
    """
    made = []
    for number in range(hosts):
        place = number - 2 * RARE_HOSTS
        if place < 0:
            made.append(Host(number, RARE, (OLD, NEW)[number % 2], None, always_on=False))
            continue
        lab = place % 3 == 0
        kind, driver = place // 3 % len(COMMON), (OLD, NEW)[place // 9 % 2]
        often = (kind, driver) == (1, NEW)
        on_battery = None if lab else often or place // 18 % 4 == 3
        made.append(Host(number, COMMON[kind], driver, on_battery, always_on=lab))
    return tuple(made)


def version(host: Host, spec: ProbeSpec) -> int:
    """Give that of the method by which this machine's gpud measures."""
    return spec.version + (host.driver == NEW and spec.name in REDONE)


def sample(host: Host, spec: ProbeSpec, mode: str, run: int) -> Sample:
    """Give what a run of this number measures. Units: those of the probe."""
    order = sum(spec.name.encode()) * 31 + sum(mode.encode())
    level = TYPICAL[spec.unit] * (1 + order % 40 / 10) * (1 + sum(host.model.encode()) % 7 / 10)
    own = random.Random(f"{host.number} {spec.name} {mode}").gauss(0, HOSTS_DIFFER)
    noise = random.Random(f"{host.number} {spec.name} {mode} {run}").gauss(0, RUNS_DIFFER)
    cost = math.e ** (own + noise) * (ON_BATTERY if host.on_battery else 1.0)
    if (host.model, host.driver) in (SLOW, (RARE, NEW)) and spec.name in SLOWED:
        cost *= SLOWDOWN
    if version(host, spec) > spec.version:
        cost *= REDONE_MORE
    median = level * cost if spec.unit is Unit.SECONDS else level / cost
    if spec.unit is Unit.ELEMENTS:
        median = level
    made = Sample(
        mode=mode,
        unit=spec.unit,
        n=100,
        median=median,
        p10=median * 0.95,
        p90=median * 1.1,
        p99=median * 1.5,
        minimum=median * 0.9,
        maximum=median * 2,
    )
    if spec.name != "launch" or spec.backend is not Backend.CUDA:
        return made
    counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
    counts[sum(bound < median for bound in LATENCY_BOUNDS_S)] = made.n
    return replace(made, buckets=Buckets(tuple(counts), made.n * median))
