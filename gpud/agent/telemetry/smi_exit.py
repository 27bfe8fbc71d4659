"""The exit codes of nvidia-smi: each is a reason, with what helps where it ran.

Source: "RETURN VALUE" of nvidia-smi's manual and nvml.h, whose codes it passes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent import processes
from gpud.agent.telemetry import smi_csv, windows
from gpud.core import advice
from gpud.core.advice import Situation
from gpud.core.errors import TelemetryError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.advice import Platform

INVALID_ARGUMENT: Final = 2
REASONS: Final[Mapping[int, str]] = {
    INVALID_ARGUMENT: "invalid_argument",
    3: "not_supported",
    4: "not_permitted",
    6: "no_device",
    8: "power_cable",
    9: "driver_not_loaded",
    10: "interrupt_trouble",
    12: "library_missing",
    13: "symbol_missing",
    14: "inforom_corrupted",
    15: "gpu_is_lost",
    17: "blocked_by_the_operating_system",
    18: "driver_mismatch",
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

_RESTART = "restart Windows; if it stays, install the NVIDIA driver there again"
_INSTALL = "install the NVIDIA driver in Windows again"
FIXES: Final[Mapping[str, tuple[Situation | None, str | None]]] = {
    "invalid_argument": (Situation.TOO_OLD, "update the NVIDIA driver in Windows"),
    "not_permitted": (Situation.BLOCKED, None),
    "no_device": (
        Situation.NO_GPU,
        "look in Windows' Device Manager: the GPU is disabled or has no driver",
    ),
    "power_cable": (None, "switch off and attach the GPU's power cables"),
    "driver_not_loaded": (Situation.NOT_LOADED, _RESTART),
    "interrupt_trouble": (Situation.SILENT, _RESTART),
    "library_missing": (Situation.LIBRARY_MISSING, _INSTALL),
    "symbol_missing": (Situation.TOO_OLD, _INSTALL),
    "gpu_is_lost": (
        Situation.VANISHED,
        "restart Windows; the GPU may be too hot, badly seated or broken",
    ),
    "blocked_by_the_operating_system": (Situation.BLOCKED, _RESTART),
    "driver_mismatch": (Situation.MISMATCH, _RESTART),
    "crashed": (Situation.TELEMETRY_SILENT, _INSTALL),
    "failed": (Situation.TELEMETRY_SILENT, None),
    "hung": (Situation.HUNG, "restart Windows: its own NVIDIA driver does not answer"),
    "interop_failed": (
        None,
        "run `wsl --shutdown` in Windows and open the distribution again",
    ),
}
"""What helps with a reason: on Linux or WSL, and where Windows itself has the trouble."""


def fix(reason: str, where: Platform | None) -> str | None:
    """Return what helps on a platform; None is Windows, where nvidia-smi.exe runs."""
    situation, in_windows = FIXES.get(reason, (None, None))
    if where is None:
        return in_windows
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
        no_message = "interop_failed" if code == NOT_STARTED and where is None else "failed"
        named = (MESSAGES[words] for words in MESSAGES if words in output)
        reason = next(named, no_message)
    message += f", {reason.replace('_', ' ')}"
    line = smi_csv.quoted(output.partition("\n")[0])
    return TelemetryError(
        f'{message}: "{line}"' if line else message, reason=reason, fix=fix(reason, where)
    )
