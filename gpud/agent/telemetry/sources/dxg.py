"""The machine itself: whether it offers a GPU at all, and the folder of Windows' driver.

Source: ``/dev/dxg`` and ``wsl.conf`` in WSL2, ``/dev`` and the PCI bus on plain Linux; Windows'
driver store, which lies on 9p and is listed by a shell. No driver is asked.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from gpud import regular_file
from gpud.agent import children
from gpud.agent.state.snapshot import holds_s
from gpud.agent.telemetry import answers
from gpud.agent.telemetry.fields import plausible
from gpud.core import exposure, wsl
from gpud.core.errors import TelemetryError
from gpud.core.exposure import MARKS, PREFIX
from gpud.core.sample import Absent, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpud.agent.telemetry.answers import Answer
    from gpud.agent.telemetry.collection import SourceContext

NAME = "dxg"

_SCRIPT = f"""
[ -e "$1" ] || exit 0
cd "$1" || exit
list() {{
  for folder; do
    {" || ".join(f'[ -e "$folder/{mark}" ]' for mark in MARKS)} || continue
    stat -c "%Y %n" -- "$folder" || exit
  done
}}
likely=$(list {"".join(f"[{c}{c.upper()}]" for c in PREFIX)}*) || exit
[ "$likely" ] || likely=$(list *) || exit
printf "%s" "$likely"
"""
LISTER = (children.SHELL, "-c", _SCRIPT, children.SHELL)
"""Prints modification time (Unix) and name of each folder in Windows' driver store that holds a
driver of NVIDIA's. Any call there may wait for a Windows that does not answer."""
DEADLINE_S, GRACE_S = 4.0, 1.0
"""For the lister: together less than an interval, for which a collection may be late."""
AGAIN_S = 300.0
MOST_CARDS = 256
_FOLDER = re.compile(r"(\d{1,12}) ([^/]{1,255})", re.ASCII)


def create(context: SourceContext) -> Dxg:
    """Create the source."""
    return Dxg(context)


class Dxg:
    """Looks at the device each time, and at the store now and then."""

    def __init__(
        self,
        context: SourceContext,
        *,
        lister: Sequence[str] = LISTER,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._context = context
        self._root = Path(context.settings.sysroot)
        self._lister = (*lister, str(self._root / exposure.STORE))
        self._deadline_s = deadline_s
        self._holds_s = holds_s(context.settings.schedule.telemetry_interval_s)
        self._listing: dict[str, int] | TelemetryError | None = None  # the last one
        self._due_s = 0.0  # by the monotonic clock
        self._driver: str | None = None  # its version at the last listing
        self._left = children.Left()  # a lister that outlived its kill

    async def collect(self) -> Answer:
        """Return whether there is a GPU, and the driver's folder in WSL 2."""
        begun = self._context.now()
        system = self._context.board.read().machine.platform.get("wsl", "")
        readings = [Reading(None, "exposed", self._exposed(system), NAME)]
        if system == "2":
            readings.append(await self._folder(begun.mono_s))
        return self._context.answer(NAME, begun, tuple(readings), holds_s=self._holds_s)

    async def close(self) -> None:
        """Leave a lister that waits for Windows to itself."""

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
        for name in _names(devices)[:MOST_CARDS]:
            yield _text(devices / name / "vendor"), _text(devices / name / "class")

    async def _folder(self, now_s: float) -> Reading:
        """Return the folder, or a reason why there is none."""
        snapshot = self._context.board.read()
        driver = answers.of_machine(snapshot.telemetry, "driver_version", now_s)
        if driver not in {None, self._driver} or now_s >= self._due_s:
            self._driver = driver or self._driver
            listing, before = await self._list(), self._listing
            changed = before is not None and str(listing) != str(before)
            self._listing = listing
            self._due_s = now_s if changed else now_s + AGAIN_S  # a change is looked at twice
        inventory, listing = snapshot.measure.inventory, self._listing or {}
        if isinstance(listing, TelemetryError):
            return Reading(None, "driver_folder", Absent.FAILED, NAME, str(listing))
        if not listing:
            words = "no folder of the driver store holds NVIDIA's driver"
            return Reading(None, "driver_folder", Absent.UNSUPPORTED, NAME, words)
        # Windows keeps folders of older drivers: that of libcuda, else the one written last.
        loaded = None if inventory is None else inventory.driver_folder
        newest = max(listing, key=lambda name: (listing[name], name))
        name = loaded if loaded in listing else newest
        return Reading(None, "driver_folder", plausible("driver_folder", name), NAME)

    async def _list(self) -> dict[str, int] | TelemetryError:
        """List the store; a lister that still waits for Windows is enough."""
        if self._left.condition() is not None:
            return TelemetryError("Windows' driver store has not answered yet", reason="slow")
        self._context.count_process()
        try:
            ended = await children.run(
                self._lister,
                b"",
                deadline_s=self._deadline_s,
                grace_s=GRACE_S,
                started=self._left.began,
            )
        except OSError as error:
            words = f"cannot start {self._lister[0]}: {error.strerror}"
            return TelemetryError(words, reason="spawn_failed")
        self._left.ended(ended)
        if ended.killed:
            words = f"Windows' driver store did not answer within {self._deadline_s:g} s"
            return TelemetryError(words, reason="hung")
        lines = ended.stdout.decode(errors="replace").splitlines()
        folders = [match for line in lines if (match := _FOLDER.fullmatch(line)) is not None]
        if ended.code == 0 and len(folders) == len(lines):
            return {match[2]: int(match[1]) for match in folders}
        words = ended.stderr.decode(errors="replace").strip()[-200:]
        words = words or f"the driver store's lister ended ({ended.code})"
        return TelemetryError(words, reason="failed")


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
