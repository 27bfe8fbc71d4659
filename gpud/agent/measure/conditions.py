"""The state of a GPU and of the machine's power right before and right after a run.

Source: the telemetry that can be asked at any moment (NVML), and ``sys/class/power_supply`` below
``sysroot``. A driver that is slow, hangs or is absent costs the run its readings, never its turn.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpud.core.errors import TelemetryError
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.agent.telemetry.collection import Collection
    from gpud.agent.telemetry.sources.nvml import Nvml
    from gpud.core.sample import Condition, Reading

PATIENCE_S = 1.0
SUPPLIES = "sys/class/power_supply"
SUPPLY_FILES = ("type", "scope", "present", "online", "status", "capacity")
"""What is read of each power supply."""

_STORES = frozenset({"Battery", "UPS"})

NONE = "none"
"""What ``throttle_reasons`` says when nothing holds the clocks down."""

SLOWED = frozenset(
    {"power_cap", "thermal", "hw_slowdown", "hw_thermal", "hw_power_brake", "board_limit"}
)
"""Throttle reasons that make a GPU slower than it could be; idle and set clocks are not among."""

HOT = frozenset({"thermal", "hw_thermal"})

_READ = (
    "clock_sm_hertz",
    "clock_memory_hertz",
    "pstate",
    "temperature_celsius",
    "power_watts",
    "power_limit_watts",
    "pcie_generation",
    "pcie_width",
    "utilization_gpu_ratio",
    "memory_used_bytes",
    "memory_free_bytes",
)
FIELDS_OF_A_RUN = frozenset({"uuid", "throttle_reasons", *_READ})
"""The telemetry fields that conditions are made of."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """One moment. ``None`` is not known; ``unread`` says why nothing of the GPU is.

    A desktop usually has no power supply to ask.
    """

    clock_sm_hertz: float | None = None
    clock_memory_hertz: float | None = None
    pstate: float | None = None  # 0 is the fastest
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None  # a laptop's mode, or its charger, may change it
    pcie_generation: float | None = None  # of the link as it is, which sleeps when nothing is sent
    pcie_width: float | None = None
    utilization_gpu_ratio: float | None = None
    memory_used_bytes: float | None = None
    memory_free_bytes: float | None = None
    throttle_reasons: frozenset[str] | None = None
    ac: bool | None = None
    battery_ratio: float | None = None  # of what the batteries hold when full, 1 is full
    unread: str | None = None  # a reason of the telemetry's, "hung"


class Observer:
    """Gives the conditions of the moment, of one GPU or of the machine alone."""

    def __init__(
        self, gpus: Collection | Nvml, sysroot: str, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._gpus = gpus
        self._sysroot = sysroot
        self._patience_s = patience_s

    async def look(self, uuid: str | None) -> Conditions:
        """Read the conditions of the GPU with ``uuid``, by nothing but that name.

        Errors: none; ``unread`` says why there are none of the GPU.
        """
        of_machine = power(self._sysroot)
        if uuid is None:
            return of_machine
        try:
            readings = await self._gpus.look(self._patience_s)
        except TelemetryError as error:
            return replace(of_machine, unread=error.reason)
        return of(readings, uuid, of_machine)


def of(readings: Sequence[Reading], uuid: str, power: Conditions) -> Conditions:
    """Add one GPU's readings of a collection, by its UUID: indices are not comparable."""
    index = next((r.gpu for r in readings if _is_uuid(r, uuid)), None)
    values = {
        reading.field: reading.value
        for reading in readings
        if index is not None and reading.gpu == index and not isinstance(reading.value, Absent)
    }
    numbers: dict[str, Any] = {
        name: float(value) for name in _READ if isinstance(value := values.get(name), float | int)
    }
    return replace(
        power,
        **numbers,
        throttle_reasons=_words(values.get("throttle_reasons")),
        unread="no_such_gpu" if index is None else None,
    )


def _is_uuid(reading: Reading, uuid: str) -> bool:
    # A reason is a str too: one must not pass for a UUID.
    return reading.field == "uuid" and type(reading.value) is str and reading.value == uuid


def named(moment: str, conditions: Conditions) -> dict[str, Condition]:
    """Write conditions as ``before.NAME`` or ``after.NAME``; what is not known is absent."""
    values: dict[str, Condition] = {}
    for item in fields(conditions):
        value = getattr(conditions, item.name)
        if isinstance(value, frozenset):
            value = ",".join(sorted(value)) or NONE
        if value is not None:
            values[f"{moment}.{item.name}"] = value
    return values


def stored(moment: str, body: Mapping[str, Condition]) -> Conditions:
    """Read back what ``named`` wrote; what is missing or of another type is not known."""
    values = {name: body.get(f"{moment}.{name}") for name in _READ}
    numbers: dict[str, Any] = {
        name: value for name, value in values.items() if type(value) in {int, float}
    }
    ac = body.get(f"{moment}.ac")
    return Conditions(
        **numbers,
        throttle_reasons=_words(body.get(f"{moment}.throttle_reasons")),
        ac=ac if isinstance(ac, bool) else None,
    )


def _words(text: Condition) -> frozenset[str] | None:
    return frozenset(text.split(",")) - {NONE} if isinstance(text, str) else None


def power(sysroot: str) -> Conditions:
    """Read what the machine runs on. Errors: none."""
    return parsed(supplies(Path(sysroot, SUPPLIES)))


def on_battery(sysroot: str) -> bool:
    """Say whether the machine is known to run on its battery."""
    return power(sysroot).ac is False


def supplies(folder: Path) -> dict[str, dict[str, str]]:
    """Read what the kernel reports of each power supply; what cannot be read is absent."""
    try:
        return {place.name: _facts(place) for place in sorted(folder.iterdir())}
    except OSError:
        return {}


def _facts(place: Path) -> dict[str, str]:
    facts = {}
    for name in SUPPLY_FILES:
        with suppress(OSError):  # a supply has the files it has, and a battery may be pulled out
            facts[name] = (place / name).read_text(errors="replace").strip()
    return facts


def parsed(supplies: Mapping[str, Mapping[str, str]]) -> Conditions:
    """Say whether the machine runs on mains, and how full its batteries are.

    Where sources contradict each other, the sign of power that flows in wins.
    """
    # A mouse has a battery too; its scope is the device.
    own = [facts for facts in supplies.values() if facts.get("scope", "System") != "Device"]
    batteries = [f for f in own if f.get("type") in _STORES and f.get("present", "1") != "0"]
    plugs = [f for f in own if f.get("type") not in _STORES and "online" in f]
    charge = [ratio for f in batteries if (ratio := _ratio(f.get("capacity", ""))) is not None]
    full = sum(charge) / len(charge) if charge else None
    return Conditions(ac=_ac(batteries, plugs), battery_ratio=full)


def _ac(batteries: list[Mapping[str, str]], plugs: list[Mapping[str, str]]) -> bool | None:
    if any(plug["online"] in {"1", "2"} for plug in plugs):  # 2: a programmable USB supply
        return True
    if not batteries:
        return None  # a desktop's empty USB-C sockets are no sign of a battery
    statuses = {battery.get("status") for battery in batteries}
    if "Charging" in statuses:
        return True
    if "Discharging" in statuses or any(plug.get("type") == "Mains" for plug in plugs):
        return False
    return True if statuses & {"Full", "Not charging"} else None


def _ratio(percent: str) -> float | None:
    """Read a percentage; what is none, or more than can be, is not known."""
    if not (percent.isascii() and percent.isdigit() and len(percent) <= len("100")):
        return None
    ratio = int(percent) / 100
    return ratio if ratio <= 1 else None
