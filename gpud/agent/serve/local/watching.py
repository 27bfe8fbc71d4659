"""Lines for ``gpud top``: the status document, with telemetry and processes of each second.

NVML is asked every second only while somebody is connected, and for all of them together: never on
battery, not in WSL2, whose driver is not to be polled, and not beside a run of a probe.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from gpud.agent.measure import conditions
from gpud.agent.state import status, telemetry
from gpud.core.errors import TelemetryError
from gpud.core.wsl import is_wsl2
from gpud.requests import TopLine

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from gpud.agent.measure.launch import Launcher
    from gpud.agent.state.snapshot import Snapshot
    from gpud.agent.telemetry.answers import LiveAnswer
    from gpud.agent.telemetry.collection import Collection
    from gpud.core.clock import Instant
    from gpud.core.settings import Settings
    from gpud.requests import GpuProcess

EVERY_S: Final = 1.0
SHARED_S: Final = 0.8
"""An answer that is younger is that of this second, for everybody who is connected."""
SHOWN_S: Final = 15.0
"""While a probe runs the last answer is shown for so long; most runs take less."""
LATEST_S: Final = 5.0
"""A line comes so often without anything new, too: its age says how old the rest is."""
PROBE: Final = "rests while a probe runs"
BATTERY: Final = "every 15 min on battery"


class Watching:
    """Answers everybody who is connected; ``read`` gives the present snapshot."""

    def __init__(  # noqa: PLR0913  # the parts, each passed by name
        self,
        settings: Settings,
        *,
        read: Callable[[], Snapshot],
        telemetry: Collection,
        launcher: Launcher,
        now: Callable[[], Instant],
        every_s: float = EVERY_S,
    ) -> None:
        self._settings = settings
        self._read = read
        self._telemetry = telemetry
        self._launcher = launcher
        self._now = now
        self._every_s = every_s
        self._lock = asyncio.Lock()
        self._latest: LiveAnswer | None = None

    async def lines(self) -> AsyncGenerator[TopLine, None]:
        """Yield a line at once and then each second in which something is new; never ends."""
        sent: object = None
        sent_s = 0.0
        while True:
            pause = await self._refresh()
            moment = self._read(), pause, self._latest
            if moment != sent or self._now().mono_s - sent_s >= LATEST_S:
                sent, sent_s = moment, self._now().mono_s
                yield self._line(*moment)
            await asyncio.sleep(self._every_s)

    async def _refresh(self) -> str | None:
        """Read what changes from second to second; why not, where that is not done now."""
        async with self._lock:
            age_s = self._age_s()
            if (pause := self._pause_reason()) is not None:
                self._latest = None
            elif self._launcher.measuring:
                pause = PROBE
                self._latest = self._latest if age_s < SHOWN_S else None
            elif age_s >= SHARED_S:
                self._latest = None
                try:
                    self._latest = await self._telemetry.live()
                except TelemetryError as error:
                    pause = str(error)
            return pause

    def _pause_reason(self) -> str | None:
        """Return why telemetry is not asked faster on this machine, or with this power."""
        if is_wsl2(self._read().machine.platform.get("kernel", "")):
            return f"every {self._settings.schedule.telemetry_interval_s:g} s in WSL2"
        return BATTERY if conditions.on_battery(self._settings.sysroot) else None

    def _age_s(self) -> float:
        if self._latest is None:
            return SHOWN_S
        return self._now().mono_s - self._latest.answer.taken_mono_s

    def _line(self, snapshot: Snapshot, pause: str | None, latest: LiveAnswer | None) -> TopLine:
        """Write a moment; the document has the latest answer in place of the published one."""
        processes: dict[int, tuple[GpuProcess, ...]] = {}
        unknown_reason: dict[int, str] = {}
        if latest is not None:
            gpus, merged = telemetry.with_answer(snapshot, latest.answer)
            snapshot = replace(snapshot, gpus=gpus, telemetry=merged)
            uuids = {r.gpu: r.value for r in latest.answer.readings if r.field == "uuid"}
            numbers = {
                r.value: r.gpu
                for r in merged.answers[latest.answer.source].readings
                if r.field == "uuid"
            }
            for each in latest.processes:
                number = numbers.get(uuids.get(each.gpu, ""))
                if number is None:
                    continue
                if each.unknown_reason is None:
                    processes[number] = each.processes
                else:
                    unknown_reason[number] = each.unknown_reason
        document = status.document(snapshot, now=self._now())
        return TopLine(
            status=msgspec.Raw(msgspec.json.encode(document)),
            pause=pause,
            processes=processes,
            unknown_reason=unknown_reason,
        )
