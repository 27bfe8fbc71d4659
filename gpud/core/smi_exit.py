"""How nvidia-smi ended, as a reason, in words, and with what helps where it ran.

Source: "RETURN VALUE" of nvidia-smi's manual and nvml.h, whose codes it passes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpud.core import advice, smi, windows
from gpud.core.advice import Situation
from gpud.core.errors import TelemetryError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.advice import Platform
    from gpud.core.sample import Failure, Inventory
    from gpud.core.telemetry import Answer, Telemetry


INVALID_ARGUMENT: Final = 2
EXITS: Final[Mapping[int, tuple[str, str]]] = {
    INVALID_ARGUMENT: ("invalid_argument", "it does not know what it was asked"),
    3: ("not_supported", "the GPU does not offer this"),
    4: ("not_permitted", "no permission"),
    6: ("no_device", "it finds no GPU"),
    8: ("power_cable", "a power cable of the GPU is not properly attached"),
    9: ("driver_not_loaded", "the NVIDIA driver is not loaded"),
    10: ("interrupt_trouble", "the driver sees trouble with a GPU's interrupts"),
    12: ("library_missing", "NVML's library is missing or does not load"),
    13: ("symbol_missing", "NVML's library lacks a function"),
    14: ("inforom_corrupted", "a GPU's infoROM is corrupted"),
    15: ("gpu_is_lost", "a GPU fell off the bus"),
    17: ("blocked_by_the_operating_system", "the operating system blocks the GPU"),
    18: ("driver_mismatch", "driver and library are of different versions"),
    126: ("not_executable", "it cannot be executed"),
    127: ("absent", "it is not there"),
    255: ("failed", "an error it has no code for"),
}
SAYINGS: Final[Mapping[str, int]] = {
    "couldn't communicate with the NVIDIA driver": 9,
    "Driver Not Loaded": 9,
    "No devices were found": 6,
    "Insufficient Permissions": 4,
    "GPU is lost": 15,
    "GPU access blocked by the operating system": 17,
    "Driver/library version mismatch": 18,
}
"""What it says of these where its exit code tells nothing. Source: nvmlErrorString."""

OTHER: Final = ("failed", "an exit code that is not documented")
UNTOLD: Final = frozenset({1, 255})
SIGNALLED: Final = "crashed"
SIGNALS: Final = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
NOT_STARTED: Final = 1
"""What WSL's own starter of Windows programs ends with when it cannot."""
REASONS: Final = frozenset({reason for reason, _ in EXITS.values()}) | {SIGNALLED, "interop_failed"}
"""Every reason an end can have: a bounded set, because it becomes a metric label."""

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
    "interop_failed": "run `wsl --shutdown` in Windows and open the distribution again",
    "hung": "restart Windows: its own NVIDIA driver does not answer",
}
"""What helps where Windows itself has the trouble."""

SITUATIONS: Final[Mapping[str, Situation]] = {
    "invalid_argument": Situation.TOO_OLD,
    "not_permitted": Situation.BLOCKED,
    "no_device": Situation.NO_GPU,
    "driver_not_loaded": Situation.NOT_LOADED,
    "interrupt_trouble": Situation.SILENT,
    "library_missing": Situation.LIBRARY_MISSING,
    "symbol_missing": Situation.TOO_OLD,
    "gpu_is_lost": Situation.VANISHED,
    "blocked_by_the_operating_system": Situation.BLOCKED,
    "driver_mismatch": Situation.MISMATCH,
    "crashed": Situation.TELEMETRY_SILENT,
    "failed": Situation.TELEMETRY_SILENT,
    "hung": Situation.HUNG,
}
"""What it is to the Linux program, and to whoever advises."""


def fix(reason: str, where: Platform | None) -> str | None:
    """Say what helps on a platform; None is Windows, where nvidia-smi.exe runs."""
    if where is None:
        return IN_WINDOWS.get(reason)
    situation = SITUATIONS.get(reason)
    return None if situation is None else advice.words(situation, where)


def ended(
    code: int, stdout: bytes, stderr: bytes, *, source: str, where: Platform | None
) -> TelemetryError:
    """Make an exit code other than 0 the reason for the whole answer; negative: a signal.

    ``where`` is None for nvidia-smi.exe.
    """
    said = windows.text(stdout).strip() or windows.text(stderr).strip()
    meant = next((SAYINGS[words] for words in SAYINGS if words in said), code)
    reason, words = EXITS.get(meant if code in UNTOLD else code, OTHER)
    if code < 0:
        reason, words = SIGNALLED, f"killed by {SIGNALS.get(-code, f'signal {-code}')}"
    elif code == NOT_STARTED and where is None and meant == code:
        reason, words = "interop_failed", "Windows did not start it"
    line = smi.quoted(said.partition("\n")[0])
    message = f"{source} ended with {code}: {words}" if code >= 0 else f"{source}: {words}"
    return TelemetryError(
        f'{message}: "{line}"' if line else message,
        reason=reason,
        fix=fix(reason, where),
    )


@dataclass(frozen=True, slots=True)
class Tie:
    """Who is to blame where sources disagree. ``fix`` is None where NVML has a better one."""

    reason: str
    detail: str
    fix: str | None


ITS_DRIVERS: Final = frozenset(
    {"no_device", "driver_not_loaded", "gpu_is_lost", "driver_mismatch", "interrupt_trouble"}
)
"""With these, nvidia-smi.exe says that Windows itself does not reach the GPU."""

NOT_BY_A_RESTART: Final = frozenset({"blocked_by_the_operating_system", "driver_mismatch"})
"""What NVML says where WSL will find the same again: Windows keeps the GPU in TCC mode, and its own
nvidia-smi.exe answers all the while, or a stray library shadows WSL's."""


def tie(windows_said: str | None, nvml: str | None, cuda: Failure | None) -> Tie | None:
    """Tell a dead driver from a dead way to it: nvidia-smi.exe does not go through WSL.

    ``windows_said`` and ``nvml``: the reason why that source has no readings, empty where it has
    some, None where it was not asked. ``cuda``: why CUDA lists no GPU, None where it lists them.
    Gives None where there is nothing to decide: something in WSL works, or Windows is silent too.
    """
    if nvml is None or not nvml or cuda is None or windows_said is None:
        return None
    silent = f"neither NVML ({nvml}) nor CUDA ({cuda.reason.value}) answers in WSL"
    if not windows_said:
        again = f"{IN_WINDOWS['interop_failed']}; if it stays, `wsl --update`"
        return Tie(
            "wsl_side",
            f"{silent}, and Windows' own nvidia-smi.exe does: the driver is well, WSL's way to it "
            "is not",
            None if nvml in NOT_BY_A_RESTART else again,
        )
    if windows_said in ITS_DRIVERS:
        return Tie(
            "windows_side",
            f"{silent}, nor does Windows' own nvidia-smi.exe ({windows_said}): it is not WSL",
            IN_WINDOWS[windows_said],
        )
    return None


def blamed(said: Telemetry, inventory: Inventory | None, now_mono_s: float) -> Tie | None:
    """Give ``tie`` of what the sources and CUDA said last; CUDA that was not asked says nothing."""
    if inventory is None:
        return None
    return tie(
        _silence(said.answers.get("nvidia_smi_exe"), now_mono_s),
        _silence(said.answers.get("nvml"), now_mono_s),
        inventory.failure,
    )


def _silence(answer: Answer | None, now_mono_s: float) -> str | None:
    """Say why a source has no readings; what it said too long ago it has not said."""
    if answer is None or now_mono_s - answer.taken_mono_s > answer.holds_s:
        return None
    return answer.reason or ""
