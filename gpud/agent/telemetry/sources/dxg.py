"""The machine itself: whether it offers a GPU at all.

Source: ``/dev/dxg`` and ``wsl.conf`` in WSL2, ``/dev`` and the PCI bus on plain Linux. No driver is
asked.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud import regular_file
from gpud.agent.state.snapshot import holds_s
from gpud.core import wsl
from gpud.core.sample import Reading

if TYPE_CHECKING:
    from gpud.agent.telemetry.answers import Answer
    from gpud.agent.telemetry.collection import SourceContext

NAME = "dxg"

NVIDIA: Final = "0x10de"
DISPLAY: Final = "0x03"
"""A PCI device's vendor, and the class of what draws or computes: NVIDIA made chipsets too."""
_DEVICE = re.compile(r"nvidia(ctl|\d{1,4})")


def create(context: SourceContext) -> Dxg:
    """Create the source."""
    return Dxg(context)


class Dxg:
    """Looks at the device each time."""

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self._root = Path(context.settings.sysroot)
        self._holds_s = holds_s(context.settings.schedule.telemetry_interval_s)

    async def collect(self) -> Answer:
        """Return whether there is a GPU."""
        begun = self._context.now()
        exposed = self._exposed(self._context.board.read().machine.platform.get("wsl", ""))
        readings = (Reading(None, "exposed", exposed, NAME),)
        return self._context.answer(NAME, begun, readings, holds_s=self._holds_s)

    def _exposed(self, system: str) -> str:
        if system == "1":
            return "no"
        if system == "2":
            # Switched off, WSL's init mounts none of the driver's libraries; the device stays.
            conf = wsl.sections(_text(self._root / "etc/wsl.conf"))
            if wsl.switch(conf, "gpu", "enabled") is False:
                return "disabled"
            return "yes" if (self._root / "dev/dxg").is_char_device() else "no"
        if any(map(_DEVICE.fullmatch, _names(self._root / "dev"))):
            return "yes"
        # In a container the bus shows the cards of its host, whoever was given them.
        inside = self._context.board.read().machine.platform.get("container")
        return "yes" if not inside and self._has_card() else "no"

    def _has_card(self) -> bool:
        bus = self._root / "sys/bus/pci/devices"
        return any(
            _text(bus / name / "vendor").strip() == NVIDIA
            and _text(bus / name / "class").startswith(DISPLAY)
            for name in _names(bus)
        )


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  # a ``Path`` costs more than a name
    except OSError:
        return []


def _text(path: Path) -> str:
    return regular_file.text(path) or ""
