"""A GPU and its machine at one moment: what the gate asks about and what is stored with a run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.agent.measure.power import Power
    from gpud.core.sample import Condition, Reading

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
ASKED = frozenset({"uuid", "throttle_reasons", *_READ})
"""The telemetry fields that conditions are made of."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """One moment. ``None`` is not known; ``unread`` says why nothing of the GPU is."""

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
    battery_ratio: float | None = None
    unread: str | None = None  # a reason of the telemetry's, "hung"


def of(readings: Sequence[Reading], uuid: str, power: Power) -> Conditions:
    """Take one GPU's readings out of a collection, by its UUID: indices are not comparable."""
    index = next((r.gpu for r in readings if _is_uuid(r, uuid)), None)
    if index is None:
        return unread("no_such_gpu", power)
    known = {
        reading.field: reading.value
        for reading in readings
        if reading.gpu == index and not isinstance(reading.value, Absent)
    }
    numbers: dict[str, Any] = {
        name: float(value) for name in _READ if isinstance(value := known.get(name), float | int)
    }
    return Conditions(
        **numbers,
        throttle_reasons=_words(known.get("throttle_reasons")),
        ac=power.ac,
        battery_ratio=power.battery_ratio,
    )


def _is_uuid(reading: Reading, uuid: str) -> bool:
    # A reason is a str too: one must not pass for a UUID.
    return reading.field == "uuid" and type(reading.value) is str and reading.value == uuid


def unread(reason: str | None, power: Power) -> Conditions:
    """Give the moment without a GPU's readings, because of ``reason``."""
    return Conditions(ac=power.ac, battery_ratio=power.battery_ratio, unread=reason)


def named(moment: str, conditions: Conditions) -> dict[str, Condition]:
    """Write what is known as ``before.NAME`` or ``after.NAME``; what is not known is left out."""
    found: dict[str, Condition] = {}
    for item in fields(conditions):
        value = getattr(conditions, item.name)
        if isinstance(value, frozenset):
            value = ",".join(sorted(value)) or NONE
        if value is not None:
            found[f"{moment}.{item.name}"] = value
    return found


def stored(moment: str, known: Mapping[str, Condition]) -> Conditions:
    """Read back what ``named`` wrote; what is missing or of another type is not known."""
    said = {name: known.get(f"{moment}.{name}") for name in _READ}
    numbers: dict[str, Any] = {
        name: value for name, value in said.items() if type(value) in {int, float}
    }
    ac = known.get(f"{moment}.ac")
    return Conditions(
        **numbers,
        throttle_reasons=_words(known.get(f"{moment}.throttle_reasons")),
        ac=ac if isinstance(ac, bool) else None,
    )


def _words(text: Condition) -> frozenset[str] | None:
    return frozenset(text.split(",")) - {NONE} if isinstance(text, str) else None
