"""The machine itself: whether it offers a GPU at all.

Source: ``/dev/dxg`` and ``wsl.conf`` in WSL2, ``/dev`` and the PCI bus on plain Linux. No driver is
asked.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from gpud import regular_file
from gpud.agent.state.snapshot import holds_s
from gpud.core import exposure, wsl
from gpud.core.sample import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.agent.telemetry.answers import Answer
    from gpud.agent.telemetry.collection import SourceContext

NAME = "dxg"


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

    async def close(self) -> None:
        """Nothing was started."""

    def _exposed(self, system: str) -> str:
        if system == "1":
            return "no"
        if system == "2":
            conf = wsl.sections(_text(self._root / "etc/wsl.conf"))
            enabled = wsl.switch(conf, "gpu", "enabled") is not False
            device = _is_device(self._root / "dev/dxg")
            return exposure.on_wsl(device=device, enabled=enabled)
        # In a container the bus shows the cards of its host, whoever was given them.
        inside = self._context.board.read().machine.platform.get("container")
        return exposure.on_linux(_names(self._root / "dev"), () if inside else self._cards())

    def _cards(self) -> Iterator[tuple[str, str]]:
        devices = self._root / "sys/bus/pci/devices"
        for name in _names(devices):
            yield _text(devices / name / "vendor"), _text(devices / name / "class")


def _is_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208  # a ``Path`` costs more than a name
    except OSError:
        return []


def _text(path: Path) -> str:
    return regular_file.text(path) or ""
