"""The nvidia-smi of Linux: NVML in a process of its own, for when NVML cannot be asked directly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpud.agent.children import ENVIRONMENT
from gpud.agent.measure.breaker import State
from gpud.agent.telemetry.smi import NvidiaSmi, SmiProgram
from gpud.core import advice
from gpud.core.telemetry import LEVELS

if TYPE_CHECKING:
    from gpud.agent.telemetry.collection import SourceContext, TelemetrySource
    from gpud.core.settings import Settings

NAME = "nvidia_smi"
LEVEL = LEVELS.index(NAME)
STARTS_A_PROGRAM = True

IN_WSL = "usr/lib/wsl/lib/nvidia-smi"
IN_LINUX = "usr/bin/nvidia-smi"  # in WSL it belongs to a driver that is not there


def places(settings: Settings, *, wsl: bool) -> tuple[str, ...]:
    """Return where it may lie: the configured path alone, or those of the system."""
    if settings.telemetry.nvidia_smi:
        return (settings.telemetry.nvidia_smi,)
    paths = (IN_WSL,) if wsl else (IN_WSL, IN_LINUX)
    return tuple(str(Path(settings.sysroot, path)) for path in paths)


class LinuxSmi(NvidiaSmi):
    """Started while NVML is silent as a whole and nothing hangs in the driver.

    It is the same library: what NVML withholds it withholds too, and where a call hung its own
    would.
    """

    def program(self) -> SmiProgram | None:
        """Return the program, or None for not now."""
        snapshot = self.context.read()
        nvml = snapshot.telemetry.answers.get("nvml")
        breaker, machine = snapshot.measure.breaker, snapshot.machine.platform
        hangs = breaker is not None and breaker.state is not State.CLOSED
        if hangs or (nvml is not None and nvml.holds(self.context.now().mono_s)):
            return None
        paths = places(self.context.settings, wsl=bool(machine.get("wsl")))
        return SmiProgram(paths, advice.of(machine), ENVIRONMENT)


def create(context: SourceContext) -> TelemetrySource:
    """Create the source."""
    return LinuxSmi(context, NAME)
