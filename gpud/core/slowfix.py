"""What a person can do about something that became slower, by its likely cause and the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.core.advice import Platform
from gpud.core.causes import (
    BATTERY,
    CPU,
    CPU_LOAD,
    DRIVER,
    DXG,
    KERNEL,
    MEMORY,
    MEMORY_CLOCK,
    OF_THE_DRIVER,
    PCIE,
    POWER_LIMIT,
    SM_CLOCK,
    THROTTLE,
    WINDOWS,
    WSL,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.core.alerts import Cause

ACCEPT: Final = "to accept the new speed: `gpud baseline accept {alert}`"
LOOK: Final = "`gpud history` shows what it was like before and since"
IN_WSL: Final = frozenset({Platform.WSL2, Platform.WSL1})

_DRIVER_WSL: Final = (
    "to go back to driver {old} in Windows: Device Manager, Display adapters, the GPU, Driver, "
    "Roll Back Driver, or install {old} from nvidia.com/drivers; then `wsl --shutdown`"
)
_DRIVER_LINUX: Final = "to go back, install the driver's packages of {old} and reboot"
_UNNAMED_WSL: Final = (
    "to go back to the driver of before in Windows: Device Manager, Display adapters, the GPU, "
    "Driver, Roll Back Driver; then `wsl --shutdown`"
)
_UNNAMED_LINUX: Final = "to go back, install the driver's packages of before and reboot"
_WHERE: Final[Mapping[str, str]] = {
    KERNEL: "`wsl --version` in Windows names the kernel; `wsl --update` may bring a newer one",
    WSL: "`wsl --update` in Windows may bring a newer WSL, or --web-download an earlier one",
    WINDOWS: "Windows' Update history can take its last update back",
}
_ANYWHERE: Final[Mapping[str, str]] = {
    POWER_LIMIT: "look at the laptop's performance mode and charger, or at who set the power limit",
    PCIE: "put the card in its slot anew, or look at the link's setting in the BIOS and the riser",
    THROTTLE: "look at fans, dust, what else warms the machine, and the power supply",
    SM_CLOCK: "look at the power mode of Windows and of the laptop, and at who set the clocks",
    MEMORY_CLOCK: "look at the power mode of Windows and of the laptop, and at who set the clocks",
    BATTERY: "plug the machine in",
    MEMORY: "close programs that use GPU memory, in Windows too",
    CPU_LOAD: "look with `top`, and in Windows' Task Manager, at what keeps the CPU busy",
    CPU: "look at what else runs on the machine, its power mode and its temperature",
    DXG: "`wsl --shutdown` from Windows renews the channel to the GPU",
}


def fix(causes: Sequence[Cause], platform: Platform, alert: str) -> str:
    """Give what to do about the most likely cause, and how to live with it.

    ``alert`` is the alert's ID.
    """
    accept = ACCEPT.format(alert=alert)
    known = [words for cause in causes if (words := _words(cause, platform)) is not None]
    if not known:
        return f"{LOOK}; {accept}"
    # An update that came when the whole machine slowed down may be blamed for nothing.
    machine = _ANYWHERE[CPU]
    first = f"first {machine}; {known[0]}" if machine in known[1:] else known[0]
    return f"{first}; {accept}"


def going_back(driver: str, platform: Platform) -> str:
    """Say how to get an earlier driver back."""
    form = _DRIVER_WSL if platform in IN_WSL else _DRIVER_LINUX
    return form.format(old=driver)


def _words(cause: Cause, platform: Platform) -> str | None:
    if cause.kind == DRIVER and cause.old is not None:
        return going_back(cause.old, platform)
    if cause.kind in OF_THE_DRIVER:
        return _UNNAMED_WSL if platform in IN_WSL else _UNNAMED_LINUX
    if platform in IN_WSL and cause.kind in _WHERE:
        return _WHERE[cause.kind]
    return _ANYWHERE.get(cause.kind)
