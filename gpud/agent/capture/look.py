"""The files, devices and folders of a machine, as a program of its own that prints one document.

``python -I -m gpud.agent.capture.look linux|windows SYSROOT``. What Windows serves (its drives, the
driver store) may not answer for minutes or ever: whoever asks waits for as long as he likes.
"""

from __future__ import annotations

import json
import os
import re
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpud import regular_file
from gpud.agent.measure import conditions
from gpud.core import exposure, wsl
from gpud.core.advice import CONTAINER_MARKS

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST = 64 << 10
MOST_NAMES = 4096
MOST_LINES = 64
"""Of the names in one folder, and of folders of one kind."""

TEXTS = (
    "/etc/os-release",
    "/etc/wsl.conf",
    "/proc/1/comm",
    "/proc/driver/nvidia/version",
    "/proc/sys/fs/binfmt_misc/WSLInterop",
    "/proc/sys/fs/binfmt_misc/WSLInterop-late",
    "/proc/sys/kernel/osrelease",
    "/proc/version",
)
SUPPLIES = "/sys/class/power_supply"
PCI = "/sys/bus/pci/devices"
DISPLAY_CLASS = "0x03"
DEVICES = re.compile(r"dxg|nvidia\d+|nvidiactl|nvidia-uvm")
DRIVER_STORE = f"/{exposure.STORE}"
DRIVER_FOLDER = re.compile(r"nv[^/]*\.inf_[a-z0-9]+_[0-9a-f]+", re.IGNORECASE)
DRIVER_FILES = re.compile(r".*\.so(?:\.[0-9]+)*|nvidia-smi|nvcubins\.bin")


def main() -> int:
    """Print what was asked for. Arguments: ``linux`` or ``windows``, and where the tree begins."""
    parts = {"linux": linux, "windows": windows}
    match sys.argv[1:]:
        case [part, sysroot] if part in parts:
            # A name that is no UTF-8 must not cost the rest of the document.
            answer = json.dumps(parts[part](Path(sysroot)), ensure_ascii=False)
            sys.stdout.buffer.write(answer.encode(errors="replace"))
            return 0
    print("usage: gpud.agent.capture.look linux|windows SYSROOT", file=sys.stderr)
    return 2


def linux(root: Path) -> dict[str, Any]:
    """Give what Linux itself has: it answers at once."""
    files = {path: text for path in TEXTS if (text := _text(root, path)) is not None}
    # That they are there says that this is a container; what they hold is not looked at.
    files |= {path: "" for path in CONTAINER_MARKS if _at(root, path).exists()}
    for supply in _names(root, SUPPLIES)[:MOST_LINES]:
        for name in conditions.SUPPLY_FILES:
            path = f"{SUPPLIES}/{supply}/{name}"
            if (text := _text(root, path)) is not None:
                files[path] = text
    return {"files": files, "devices": list(_devices(root)), "pci": list(_display_vendors(root))}


def windows(root: Path) -> dict[str, Any]:
    """Give what lies on Windows' side: NVIDIA's driver folders and people's .wslconfig."""
    store = {}
    paths = [name for name in _names(root, DRIVER_STORE) if DRIVER_FOLDER.fullmatch(name)]
    for folder in paths[:MOST_LINES]:
        held = filter(DRIVER_FILES.fullmatch, _names(root, f"{DRIVER_STORE}/{folder}"))
        store[folder] = list(islice(held, MOST_LINES))
    users = f"{wsl.mounts_at(wsl.sections(_text(root, '/etc/wsl.conf') or ''))}/c/Users"
    settings = [f"{users}/{name}/.wslconfig" for name in _names(root, users)[:MOST_LINES]]
    # Whoever may write into a folder of Windows could let a name there lead to another's file.
    read = {path: _text(root, path, os.O_NOFOLLOW) for path in settings}
    texts = {path: text for path, text in read.items() if text is not None}
    folders = {folder: files for folder, files in store.items() if files}
    return {"files": texts, "driver_store": folders}


def _devices(root: Path) -> Iterator[str]:
    for name in _names(root, "/dev"):
        if DEVICES.fullmatch(name) and _at(root, f"/dev/{name}").is_char_device():
            yield f"/dev/{name}"


def _display_vendors(root: Path) -> Iterator[str]:
    for name in _names(root, PCI):
        if (_text(root, f"{PCI}/{name}/class") or "").startswith(DISPLAY_CLASS):
            vendor = (_text(root, f"{PCI}/{name}/vendor") or "").strip()
            if vendor:
                yield vendor


def _at(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _names(root: Path, path: str) -> list[str]:
    """List a folder, sorted; empty when it cannot be listed."""
    try:
        with os.scandir(_at(root, path)) as entries:
            return sorted(entry.name for entry in islice(entries, MOST_NAMES))
    except OSError:
        return []


def _text(root: Path, path: str, flags: int = 0) -> str | None:
    """Read the beginning of a regular file; None if there is none."""
    try:
        return regular_file.read(_at(root, path), LARGEST, flags).decode(errors="replace")
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main())
