"""The exit codes of nvidia-smi: each is a reason, with what helps where it ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent import processes
from gpud.agent.telemetry import smi_csv, windows
from gpud.agent.telemetry.codes import CODES
from gpud.core import advice
from gpud.core.advice import Situation
from gpud.core.errors import TelemetryError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.advice import Platform

INVALID_ARGUMENT: Final = 2
REASONS: Final[Mapping[int, str]] = {code: reason for code, (reason, _) in CODES.items()} | {
    INVALID_ARGUMENT: "invalid_argument",
    3: "not_supported",
    6: "no_device",
    8: "power_cable",
    10: "interrupt_trouble",
    14: "inforom_corrupted",
    126: "not_executable",
    127: "absent",
}
NOT_STARTED: Final = 1
"""The exit code of WSL's own starter of Windows programs when it cannot start one."""
UNSPECIFIC: Final = frozenset({NOT_STARTED, 255})
MESSAGES: Final[Mapping[str, str]] = {
    "couldn't communicate with the NVIDIA driver": "driver_not_loaded",
    "Driver Not Loaded": "driver_not_loaded",
    "No devices were found": "no_device",
    "Insufficient Permissions": "not_permitted",
    "GPU is lost": "gpu_is_lost",
    "GPU access blocked by the operating system": "blocked_by_the_operating_system",
    "Driver/library version mismatch": "driver_mismatch",
}
"""What it writes where its exit code is unspecific. Source: nvmlErrorString."""

SITUATIONS: Final[Mapping[str, Situation]] = dict(CODES.values()) | {
    "invalid_argument": Situation.TOO_OLD,
    "no_device": Situation.NO_GPU,
    "interrupt_trouble": Situation.SILENT,
    "crashed": Situation.TELEMETRY_SILENT,
    "failed": Situation.TELEMETRY_SILENT,
    "hung": Situation.HUNG,
}
_RESTART = "restart Windows; if it stays, install the NVIDIA driver there again"
_INSTALL = "install the NVIDIA driver in Windows again"
IN_WINDOWS: Final[Mapping[str, str]] = {
    "invalid_argument": "update the NVIDIA driver in Windows",
    "no_device": "look in Windows' Device Manager: the GPU is disabled or has no driver",
    "power_cable": "switch off and attach the GPU's power cables",
    "driver_not_loaded": _RESTART,
    "interrupt_trouble": _RESTART,
    "library_missing": _INSTALL,
    "symbol_missing": _INSTALL,
    "gpu_is_lost": "restart Windows; the GPU may be too hot, badly seated or broken",
    "blocked_by_the_operating_system": _RESTART,
    "driver_mismatch": _RESTART,
    "crashed": _INSTALL,
    "hung": "restart Windows: its own NVIDIA driver does not answer",
    "interop_failed": "run `wsl --shutdown` in Windows and open the distribution again",
}
"""What helps where Windows itself has the trouble."""


def fix(reason: str, where: Platform | None) -> str | None:
    """Return what helps on a platform; None is Windows, where nvidia-smi.exe runs."""
    if where is None:
        return IN_WINDOWS.get(reason)
    situation = SITUATIONS.get(reason)
    return None if situation is None else advice.words(situation, where)


def error(
    code: int, stdout: bytes, stderr: bytes, *, source: str, where: Platform | None
) -> TelemetryError:
    """Return the error for an exit code other than 0; negative: a signal.

    ``where`` is None for nvidia-smi.exe.
    """
    output = windows.text(stdout).strip() or windows.text(stderr).strip()
    reason, message = REASONS.get(code, "failed"), f"{source} ended with {code}"
    if code < 0:
        reason, message = "crashed", f"{source}: killed by {processes.signal_name(-code)}"
    elif code in UNSPECIFIC:
        default = "interop_failed" if code == NOT_STARTED and where is None else "failed"
        reason = next((MESSAGES[words] for words in MESSAGES if words in output), default)
    message += f", {reason.replace('_', ' ')}"
    if line := smi_csv.quoted(output.partition("\n")[0]):
        message += f': "{line}"'
    return TelemetryError(message, reason=reason, fix=fix(reason, where))
