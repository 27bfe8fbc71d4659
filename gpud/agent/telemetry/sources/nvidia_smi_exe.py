"""Windows' own nvidia-smi.exe: it answers where WSL's way to the driver is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent import interop
from gpud.agent.smi import Program, Smi
from gpud.core.telemetry import LEVELS

if TYPE_CHECKING:
    from gpud.agent.telemetry.source import Context, Source

NAME = "nvidia_smi_exe"
LEVEL = LEVELS.index(NAME)
STARTS_A_PROGRAM = True

INSIDE = "Windows/System32/nvidia-smi.exe"


def create(context: Context) -> Source:
    """Make the source. It has nothing to say outside WSL unless the settings name a program."""
    settings = context.settings

    def program() -> Program | None:
        configured = settings.telemetry.nvidia_smi_exe
        if not configured and not context.read().platform.get("wsl"):
            return None
        environment = interop.environment(settings.sysroot)
        if configured:
            return Program((configured,), None, environment)
        drives = interop.drives(settings.sysroot)
        return Program(tuple(f"{drive}/{INSIDE}" for drive in drives), None, environment)

    return Smi(context, NAME, program)
