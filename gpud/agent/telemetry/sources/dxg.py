"""The machine itself: whether it offers a GPU at all, and the folder of Windows' driver.

Source: ``/dev/dxg`` and ``wsl.conf`` in WSL2, ``/dev`` and the PCI bus on plain Linux; Windows'
driver store, which lies on 9p and is listed by a process of its own. No driver is asked.
"""

from __future__ import annotations

import asyncio
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpud.agent import children, plainfile, processes
from gpud.agent.state.snapshot import holds_s
from gpud.core import exposure, telemetry, wire, wsl
from gpud.core.fields import plausible
from gpud.core.sample import Absent, Reading
from gpud.core.telemetry import LEVELS, Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpud.agent.telemetry.source import Context
    from gpud.core.report import ProcessRef

NAME = "dxg"
LEVEL = LEVELS.index(NAME)

LISTER = (sys.executable, "-I", "-m", "gpud.agent.telemetry.driver_store")
DEADLINE_S = 10.0
PATIENCE_S = 1.0
"""How long a collection waits for the list; one that takes longer is told by the next."""
AGAIN_S = 300.0
MOST_CARDS = 256


class _Listed(msgspec.Struct, frozen=True):
    folders: tuple[exposure.Folder, ...]


@dataclass(frozen=True, slots=True)
class _List:
    """What the last look at the store brought: folders, or why none."""

    folders: tuple[exposure.Folder, ...] = ()
    trouble: str | None = None


def create(context: Context) -> Dxg:
    """Make the source."""
    return Dxg(context)


class Dxg:
    """Looks at the device each time, and at the store now and then."""

    def __init__(
        self,
        context: Context,
        *,
        lister: Sequence[str] = LISTER,
        deadline_s: float = DEADLINE_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._context = context
        self._root = Path(context.settings.sysroot)
        self._lister = tuple(lister)
        self._deadline_s = deadline_s
        self._patience_s = patience_s
        self._holds_s = holds_s(context.settings.schedule.telemetry_interval_s)
        self._list: _List | None = None
        self._listing: asyncio.Task[_List] | None = None
        self._due_s = 0.0  # by the monotonic clock
        self._driver: str | None = None  # its version at the last list
        self._left: ProcessRef | None = None  # a lister that may still be there

    async def collect(self, wanted: frozenset[str]) -> Answer:  # noqa: ARG002  # all of it is cheap
        """Say whether there is a GPU, and the driver's folder as far as it is known."""
        begun = self._context.now()
        system = self._context.read().platform.get("wsl", "")
        readings = [Reading(None, "exposed", self._exposed(system), NAME)]
        if system == "2":
            readings += await self._folder(begun.mono_s)
        return Answer(
            NAME,
            LEVEL,
            begun.wall_s,
            begun.mono_s,
            tuple(readings),
            holds_s=self._holds_s,
            duration_s=self._context.now().mono_s - begun.mono_s,
        )

    async def close(self) -> None:
        """Look no more; a lister that waits for Windows ends by itself, or not."""
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait([self._listing])

    def _exposed(self, system: str) -> str:
        if system == "1":
            return "no"
        if system == "2":
            said = wsl.sections(_text(self._root / "etc/wsl.conf"))
            enabled = wsl.switch(said, "gpu", "enabled") is not False
            device = _is_device(self._root / "dev/dxg")
            return exposure.on_wsl(device=device, enabled=enabled)
        # In a container the bus shows the cards of its host, whoever was given them.
        inside = self._context.read().platform.get("container")
        return exposure.on_linux(_names(self._root / "dev"), () if inside else self._cards())

    def _cards(self) -> Iterator[tuple[str, str]]:
        devices = self._root / "sys/bus/pci/devices"
        for name in _names(devices)[:MOST_CARDS]:
            yield _text(devices / name / "vendor"), _text(devices / name / "class")

    async def _folder(self, now_s: float) -> list[Reading]:
        """Give the folder, a reason why there is none, or nothing while nobody knows yet."""
        if self._listing is None and self._is_due(now_s):
            self._listing = asyncio.create_task(self._listed())
        if self._listing is not None:
            await asyncio.wait([self._listing], timeout=self._patience_s)
            if self._listing.done():
                self._take(self._listing.result(), now_s)
                self._listing = None
        if self._list is None:
            return []
        inventory = self._context.read().inventory
        loaded = None if inventory is None else inventory.driver_folder
        name = exposure.chosen(self._list.folders, loaded)
        if name is not None:
            return [Reading(None, "driver_folder", plausible("driver_folder", name), NAME)]
        trouble = self._list.trouble
        reason = Absent.UNSUPPORTED if trouble is None else Absent.FAILED
        none = trouble or "no folder of the driver store holds NVIDIA's driver"
        return [Reading(None, "driver_folder", reason, NAME, none)]

    def _is_due(self, now_s: float) -> bool:
        if self._left is not None and processes.ref(self._left.pid) == self._left:
            return False  # one that waits for Windows is enough
        driver = self._driver_version(now_s)
        if driver not in {None, self._driver}:
            self._driver = driver
            return True
        return now_s >= self._due_s

    def _take(self, found: _List, now_s: float) -> None:
        """Keep a list; one that differs from the last is looked at again at once."""
        same = self._list is None or self._list == found
        self._due_s = now_s + AGAIN_S if same else now_s
        self._list = found

    def _driver_version(self, now_s: float) -> str | None:
        said = telemetry.current(self._context.read().telemetry, now_s)
        return next(
            (
                reading.value
                for reading in said
                if reading.field == "driver_version" and type(reading.value) is str
            ),
            None,
        )

    async def _listed(self) -> _List:
        def started(process: ProcessRef) -> None:
            self._left = process

        self._context.spawned()
        try:
            ended = await children.run(
                [*self._lister, str(self._root / exposure.STORE)],
                b"",
                deadline_s=self._deadline_s,
                started=started,
            )
        except OSError as error:
            return _List(trouble=f"cannot start {self._lister[0]}: {error.strerror}")
        if ended.killed:
            return _List(
                trouble=f"Windows' driver store did not answer within {self._deadline_s:g} s"
            )
        try:
            listed = msgspec.json.decode(ended.stdout, type=_Listed)
        except wire.UNREADABLE:
            words = ended.stderr.decode(errors="replace").strip()[-200:]
            return _List(trouble=words or f"the lister of the driver store ended ({ended.code})")
        return _List(tuple(sorted(listed.folders, key=lambda folder: folder.name)))


def _is_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    try:
        return sorted(place.name for place in folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    return plainfile.text(path) or ""
