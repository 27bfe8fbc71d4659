"""Look at a GPU and at the machine's power right before and right after a run.

Source: the telemetry that can be asked at any moment (NVML), and ``sys/class/power_supply`` below
``sysroot``. A driver that is slow, hangs or is not there costs a look its readings, never the run
its turn.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpud.agent.measure import condition_rules as conditions
from gpud.agent.measure import power
from gpud.core.errors import TelemetryError

if TYPE_CHECKING:
    from gpud.agent.measure.condition_rules import Conditions
    from gpud.agent.telemetry.source import Looking

PATIENCE_S = 1.0
SUPPLIES = "sys/class/power_supply"
MOST_SUPPLIES = 64
LONGEST_FACT = 64


class Observer:
    """Gives the conditions of the moment, of one GPU or of the machine alone."""

    def __init__(self, gpus: Looking, sysroot: str, *, patience_s: float = PATIENCE_S) -> None:
        self._gpus = gpus
        self._supplies = Path(sysroot, SUPPLIES)
        self._patience_s = patience_s

    async def look(self, uuid: str | None) -> Conditions:
        """Give what is known now of the GPU with ``uuid``, by nothing but that name.

        Errors: none; ``unread`` says why nothing of the GPU is known.
        """
        supplied = power.parsed(supplies(self._supplies))
        if uuid is None:
            return conditions.unread(None, supplied)
        try:
            readings = await self._gpus.look(self._patience_s)
        except TelemetryError as error:
            return conditions.unread(error.reason, supplied)
        return conditions.of(readings, uuid, supplied)


def on_battery(sysroot: str) -> bool:
    """Say whether the machine is known to run on its battery."""
    return power.parsed(supplies(Path(sysroot, SUPPLIES))).ac is False


def supplies(folder: Path) -> dict[str, dict[str, str]]:
    """Read what the kernel tells of each power supply; what cannot be read is left out."""
    try:
        found = sorted(folder.iterdir())[:MOST_SUPPLIES]
    except OSError:
        return {}
    return {place.name: _facts(place) for place in found}


def _facts(place: Path) -> dict[str, str]:
    known = {}
    for name in power.FILES:
        try:
            with (place / name).open(errors="replace") as file:
                known[name] = file.read(LONGEST_FACT).strip()
        except OSError:  # a supply has the files it has, and a battery may be pulled out
            continue
    return known
