"""Exposure of a GPU to this machine, and the folder of Windows that holds its driver."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STORE: Final = "usr/lib/wsl/drivers"
"""Windows' driver store as WSL shows it, below the root of the machine."""
PREFIX: Final = "nv"
"""How the names of NVIDIA's folders in it begin, in lower case; it has a thousand others."""
MARKS: Final = ("libcuda.so.1.1", "nvidia-smi")
"""Files of which one at least lies in a folder that holds a driver."""

NVIDIA: Final = 0x10DE
DISPLAY: Final = 0x03
"""A PCI device's vendor, and the class of what draws or computes: NVIDIA made chipsets too."""

_IN_THE_STORE = re.compile(r"/usr/lib/wsl/drivers/([^/]+)/")


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of the driver store that holds NVIDIA's driver. Units: Unix time."""

    name: str
    modified_s: float


def in_the_store(path: str) -> str | None:
    """Name the folder of the driver store that a file lies in; None for a file elsewhere."""
    match = _IN_THE_STORE.search(path)
    return None if match is None else match[1]


def chosen(folders: Sequence[Folder], loaded: str | None) -> str | None:
    """Say which folder the driver in use is from; None where there is none.

    It is the one libcuda was ``loaded`` from, where that is known and it is still there. Windows
    keeps folders of older drivers, so of the others it is the one that was written last.
    """
    if loaded in {folder.name for folder in folders}:
        return loaded
    newest = max(folders, key=lambda folder: (folder.modified_s, folder.name), default=None)
    return None if newest is None else newest.name


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
