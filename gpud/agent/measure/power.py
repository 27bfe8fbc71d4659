"""Where the machine's power comes from, out of what Linux tells below /sys/class/power_supply.

Shapes: supply -> file name -> its text without the newline, in; a ``Power``, out. A supply may
lack any file, and firmware is not always of one mind: a laptop that charges over USB-C may say
that its barrel plug is out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES = ("type", "scope", "present", "online", "status", "capacity")
"""What is asked of each supply."""

_STORES = frozenset({"Battery", "UPS"})


@dataclass(frozen=True, slots=True)
class Power:
    """The machine's power. ``None``: nobody says; a desktop usually has no supply to ask."""

    ac: bool | None = None
    battery_ratio: float | None = None  # of what the batteries hold when full, 1 is full


def parsed(supplies: Mapping[str, Mapping[str, str]]) -> Power:
    """Say whether the machine runs on mains, and how full its batteries are.

    Where sources contradict each other, the sign of power that flows in wins.
    """
    # A mouse has a battery too; its scope is the device.
    own = [facts for facts in supplies.values() if facts.get("scope", "System") != "Device"]
    batteries = [f for f in own if f.get("type") in _STORES and f.get("present", "1") != "0"]
    plugs = [f for f in own if f.get("type") not in _STORES and "online" in f]
    charge = [ratio for f in batteries if (ratio := _ratio(f.get("capacity", ""))) is not None]
    full = sum(charge) / len(charge) if charge else None
    return Power(_ac(batteries, plugs), full)


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
