"""Exposure of a GPU to this machine, and where Windows' driver store lies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

STORE: Final = "usr/lib/wsl/drivers"
"""Windows' driver store as WSL shows it, below the root of the machine."""
PREFIX: Final = "nv"  # of NVIDIA's folders, in lower case; it has a thousand others
MARKS: Final = ("libcuda.so.1.1", "nvidia-smi")
"""Files of which one at least lies in a folder that holds a driver."""

NVIDIA: Final = 0x10DE
DISPLAY: Final = 0x03
"""A PCI device's vendor, and the class of what draws or computes: NVIDIA made chipsets too."""


def on_wsl(*, device: bool, enabled: bool) -> str:
    """Judge by the device /dev/dxg; a GPU switched off in wsl.conf is none that is missing.

    The device is the virtual machine's and stays then; what is left out is the driver's libraries.
    Source: WSL's init, which mounts them only where [gpu] enabled is not false.
    """
    if not enabled:
        return "disabled"
    return "yes" if device else "no"


def on_linux(devices: Iterable[str], cards: Iterable[tuple[str, str]]) -> str:
    """Judge by the names in /dev, and by vendor and class of each PCI device ("0x10de")."""
    if any(re.fullmatch(r"nvidia(ctl|\d{1,4})", name) for name in devices):
        return "yes"
    return "yes" if any(_is_gpu(vendor, kind) for vendor, kind in cards) else "no"


def _is_gpu(vendor: str, kind: str) -> bool:
    try:
        return int(vendor, 16) == NVIDIA and int(kind, 16) >> 16 == DISPLAY
    except ValueError:
        return False
