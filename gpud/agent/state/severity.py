"""How much each reason matters: one table, for health, alerts and whoever draws a failure."""

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


SEVERITY: Final[Mapping[Reason, Severity]] = {
    Reason.UNSUPPORTED: Severity.INFO,
    Reason.DEPENDENCY_MISSING: Severity.INFO,
    Reason.OUT_OF_MEMORY: Severity.WARNING,
    Reason.DEVICE_BUSY: Severity.WARNING,
    Reason.NOT_READY: Severity.WARNING,
    Reason.BUDGET_EXCEEDED: Severity.WARNING,
    Reason.LIBRARY_MISSING: Severity.CRITICAL,
    Reason.SYMBOL_MISSING: Severity.CRITICAL,
    Reason.NO_DEVICE: Severity.CRITICAL,
    Reason.INIT_FAILED: Severity.CRITICAL,
    Reason.DRIVER_MISMATCH: Severity.CRITICAL,
    Reason.PTX_REJECTED: Severity.CRITICAL,
    Reason.LAUNCH_TIMEOUT: Severity.CRITICAL,
    Reason.LAUNCH_FAILED: Severity.CRITICAL,
    Reason.DEVICE_LOST: Severity.CRITICAL,
    Reason.ECC_ERROR: Severity.CRITICAL,
    Reason.NOT_PERMITTED: Severity.CRITICAL,
    Reason.MPS_FAILED: Severity.CRITICAL,
    Reason.GRAPH_FAILED: Severity.CRITICAL,
    Reason.INVALID_CALL: Severity.CRITICAL,
    Reason.CUDA_ERROR: Severity.CRITICAL,
    Reason.VERIFICATION_FAILED: Severity.CRITICAL,
    Reason.CPU_ALWAYS_FASTER: Severity.INFO,
    Reason.HUNG: Severity.CRITICAL,
    Reason.SLOW_START: Severity.CRITICAL,
    Reason.KILLED: Severity.CRITICAL,
    Reason.CRASHED: Severity.CRITICAL,
    Reason.BAD_OUTPUT: Severity.CRITICAL,
    Reason.SPAWN_FAILED: Severity.CRITICAL,
    Reason.TOOLKIT_MISSING: Severity.WARNING,
    Reason.TOOLKIT_FAILED: Severity.CRITICAL,
    Reason.RUNTIME_UNKNOWN: Severity.WARNING,
    Reason.REQUIREMENT_UNMET: Severity.WARNING,
    Reason.MOUNT_FAILED: Severity.CRITICAL,
    Reason.CDI_UNRESOLVED: Severity.WARNING,
    Reason.CDI_FAILED: Severity.CRITICAL,
    Reason.CONTAINER_FAILED: Severity.CRITICAL,
    Reason.PULL_FAILED: Severity.WARNING,
    Reason.DOCKER_ERROR: Severity.CRITICAL,
    Reason.DOCKERD_LOST: Severity.WARNING,
    Reason.INTERNAL: Severity.CRITICAL,
}
"""Every reason there is; a test keeps it whole."""

LEVEL: Final[Mapping[Severity, Level]] = {
    Severity.INFO: Level.DEGRADED,  # a probe without a figure is not what was asked for
    Severity.WARNING: Level.DEGRADED,
    Severity.CRITICAL: Level.FAILED,
}
"""What a failed run makes of the health of its component."""
