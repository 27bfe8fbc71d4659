"""Windows' own nvidia-smi.exe: it answers where WSL's way to the driver is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent.telemetry import windows
from gpud.agent.telemetry.smi import NvidiaSmi, SmiProgram

if TYPE_CHECKING:
    from gpud.agent.telemetry.collection import SourceContext, TelemetrySource
    from gpud.core.settings import Settings

NAME = "nvidia_smi_exe"
STARTS_A_PROGRAM = True


def places(settings: Settings) -> tuple[str, ...]:
    """Return where it may lie: the configured path alone, or Windows' folder on each drive."""
    if settings.telemetry.nvidia_smi_exe:
        return (settings.telemetry.nvidia_smi_exe,)
    return windows.places(settings.sysroot, f"{windows.SYSTEM}/nvidia-smi.exe")


class WindowsSmi(NvidiaSmi):
    """Outside WSL it has an answer only where the settings name a program."""

    def program(self) -> SmiProgram | None:
        """Return the program, or None outside WSL."""
        settings = self.context.settings
        in_wsl = self.context.board.read().machine.platform.get("wsl")
        if not settings.telemetry.nvidia_smi_exe and not in_wsl:
            return None
        return SmiProgram(places(settings), None)


def create(context: SourceContext) -> TelemetrySource:
    """Create the source."""
    return WindowsSmi(context, NAME)
