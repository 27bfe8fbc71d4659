"""The nvidia-smi of Linux: NVML in a process of its own, for when NVML cannot be asked directly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpud.agent.children import ENVIRONMENT
from gpud.agent.smi import Program, Smi
from gpud.core import advice
from gpud.core.breaker import State
from gpud.core.telemetry import LEVELS

if TYPE_CHECKING:
    from gpud.agent.telemetry.source import Context, Source
    from gpud.core.snapshot import Snapshot

NAME = "nvidia_smi"
LEVEL = LEVELS.index(NAME)
STARTS_A_PROGRAM = True

IN_WSL = "usr/lib/wsl/lib/nvidia-smi"
IN_LINUX = "usr/bin/nvidia-smi"  # in WSL that is a stray one, of a driver that is not there


def create(context: Context) -> Source:
    """Make the source."""
    settings = context.settings

    def program() -> Program | None:
        snapshot = context.read()
        if not _alone(snapshot, context.now().mono_s):
            return None
        where = advice.of(snapshot.platform)
        configured = settings.telemetry.nvidia_smi
        if configured:
            return Program((configured,), where, ENVIRONMENT)
        places = (IN_WSL,) if snapshot.platform.get("wsl") else (IN_WSL, IN_LINUX)
        paths = tuple(str(Path(settings.sysroot, place)) for place in places)
        return Program(paths, where, ENVIRONMENT)

    return Smi(context, NAME, program)


def _alone(snapshot: Snapshot, now_mono_s: float) -> bool:
    """Say whether NVML is silent as a whole and nothing hangs in the driver.

    It is the same library: what NVML withholds it withholds too, and where a call hung its own
    would.
    """
    if snapshot.breaker is not None and snapshot.breaker.state is not State.CLOSED:
        return False
    nvml = snapshot.telemetry.answers.get("nvml")
    return nvml is None or not nvml.holds(now_mono_s)
