"""The nvidia-smi of Linux in WSL: NVML in a process of its own, for when NVML is silent.

On plain Linux it comes with NVML and is started only where the settings name one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpud.agent.measure.breaker import State
from gpud.agent.telemetry.smi import NvidiaSmi, SmiProgram
from gpud.core import advice

if TYPE_CHECKING:
    from gpud.agent.telemetry.collection import SourceContext, TelemetrySource
    from gpud.core.settings import Settings

NAME = "nvidia_smi"
STARTS_A_PROGRAM = True

IN_WSL = "usr/lib/wsl/lib/nvidia-smi"  # /usr/bin has that of a driver that is not there


def places(settings: Settings) -> tuple[str, ...]:
    """Return where it may lie: the configured path alone, or WSL's folder."""
    return (settings.telemetry.nvidia_smi or str(Path(settings.sysroot, IN_WSL)),)


class LinuxSmi(NvidiaSmi):
    """Started while nothing hangs in the driver: it is NVML's library, and would hang too."""

    def program(self) -> SmiProgram | None:
        """Return the program, or None for not now."""
        snapshot, settings = self.context.board.read(), self.context.settings
        breaker, machine = snapshot.measure.breaker, snapshot.machine.platform
        if breaker is not None and breaker.state is not State.CLOSED:
            return None
        nvml = snapshot.telemetry.answers.get("nvml")
        if nvml is not None and nvml.reason in {"hung", "stuck"}:
            return None
        if not settings.telemetry.nvidia_smi and not machine.get("wsl"):
            return None
        return SmiProgram(places(settings), advice.of(machine))


def create(context: SourceContext) -> TelemetrySource:
    """Create the source."""
    return LinuxSmi(context, NAME)
