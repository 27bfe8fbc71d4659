"""Severity of each reason of a failed run: one table for health, alerts and displays."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from gpud.core.health import Level
from gpud.core.sample import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping


class Severity(IntEnum):
    """What a failed run calls for."""

    INFO = 0  # this machine does not offer it; nothing is wrong
    WARNING = 1  # the machine is busy or not set up: it passes, or the person knows
    CRITICAL = 2  # the GPU, its driver or gpud does not do what it should


_INFO: Final = {Reason.UNSUPPORTED, Reason.DEPENDENCY_MISSING, Reason.CPU_ALWAYS_FASTER}
_WARNING: Final = {
    Reason.OUT_OF_MEMORY,
    Reason.DEVICE_BUSY,
    Reason.NOT_READY,
    Reason.BUDGET_EXCEEDED,
    Reason.TOOLKIT_MISSING,
    Reason.RUNTIME_UNKNOWN,
    Reason.REQUIREMENT_UNMET,
    Reason.CDI_UNRESOLVED,
    Reason.PULL_FAILED,
    Reason.DOCKERD_LOST,
}


def _severity(reason: Reason) -> Severity:
    if reason in _INFO:
        return Severity.INFO
    return Severity.WARNING if reason in _WARNING else Severity.CRITICAL


SEVERITY: Final[Mapping[Reason, Severity]] = {reason: _severity(reason) for reason in Reason}
"""Every reason; one that is in neither set above is critical."""

LEVEL: Final[Mapping[Severity, Level]] = {
    Severity.INFO: Level.DEGRADED,  # a probe without a figure is not what was asked for
    Severity.WARNING: Level.DEGRADED,
    Severity.CRITICAL: Level.FAILED,
}
"""What a failed run makes of the health of its component."""
