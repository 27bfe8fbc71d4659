"""NVML, through its helper process: asked with a deadline, replaced when it hangs or ends."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import msgspec

from gpud.agent import processes
from gpud.agent.conversation import GONE_S, Helper
from gpud.core import advice, conditions, wire, xids
from gpud.core.advice import Platform, Situation
from gpud.core.errors import TelemetryError, WireError
from gpud.core.snapshot import holds_s
from gpud.core.telemetry import LEVELS, Answer, impossible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpud.agent.conversation import Conversation
    from gpud.agent.telemetry.source import Context
    from gpud.core.clock import Instant
    from gpud.core.sample import Reading
    from gpud.core.settings import Settings
    from gpud.core.xids import Seen

NAME = "nvml"
LEVEL = LEVELS.index(NAME)

HELPER = (sys.executable, "-I", "-m", "gpud.agent.nvml")
DEADLINE_S = 5.0
HANG_REST_S = 55.0
"""How long a helper that hangs is left alone: the driver may only be busy, and killing what waits
for it helps nobody. Then it is killed, once, and another one tries."""
REFUSAL_REST_S = (5.0, 45.0)
"""After NVML would not open, or crashed: with the interval that follows, it coming back is noticed
within a minute, at little cost."""
SLACK_S = 30.0
"""For an answer that is asked for seldom: the next one comes before it is too old."""

ALL = b"{}"
OF_A_LOOK = msgspec.json.encode({"fields": sorted(conditions.ASKED)})
"""Right before and after a run, no more is asked than is made use of."""


_CHANGING = "another driver is being installed: its library changed twice in a row"


class _Answer(msgspec.Struct, frozen=True):
    """What the helper says; ``gpud.agent.nvml`` tells what each part means."""

    readings: tuple[wire.Read, ...] | None = None
    again: bool = False
    last: bool = False
    reason: Annotated[str, msgspec.Meta(pattern="^[a-z_]{1,64}$")] = "failed"
    detail: str = ""
    fix: str | None = None


def _understood(line: bytes) -> _Answer:
    """Read an answer. ``Errors: WireError`` where it is none, or has what no NVML can tell."""
    try:
        answer = msgspec.json.decode(line, type=_Answer)
    except wire.UNREADABLE as error:
        raise WireError(str(error)) from error
    said = [read.reading() for read in answer.readings or ()]
    if (trouble := impossible(said, NAME)) is not None:
        raise WireError(trouble)
    return answer


def _slow(patience_s: float) -> TelemetryError:
    return TelemetryError(f"NVML has not answered within {patience_s:g} s yet", reason="slow")


def candidates(settings: Settings) -> list[str]:
    """Where the library may be: the configured path alone, else WSL's folder, then the loader's."""
    if settings.nvml.library:
        return [settings.nvml.library]
    wsl = f"{settings.sysroot.rstrip('/')}/usr/lib/wsl/lib/libnvidia-ml.so.1"
    return [wsl, "libnvidia-ml.so.1"]


def create(context: Context) -> Nvml:
    """Make the source."""

    def listed() -> frozenset[str]:
        inventory = context.read().inventory
        devices = () if inventory is None else inventory.devices
        return frozenset(device.uuid for device in devices if device.mig is None)

    return Nvml(
        context.settings,
        now=context.now,
        platform=advice.of(context.read().platform),
        on_spawn=context.spawned,
        listed=listed,
    )


def rest_s(reason: str, failures: int) -> float:
    """Give the rest after one more failure of a kind, when ``failures`` went before it in a row."""
    if reason == "hung":
        return HANG_REST_S
    first_s, longest_s = REFUSAL_REST_S
    return min(first_s * 2.0 ** min(failures, 20), longest_s)


class Nvml:
    """One helper at a time, started when asked and kept.

    One that hangs is left alone for a while and then killed once; while it does not go, no other is
    started.
    """

    def __init__(  # noqa: PLR0913  # each is one thing a caller chooses
        self,
        settings: Settings,
        *,
        now: Callable[[], Instant],
        platform: Platform = Platform.LINUX,
        command: Sequence[str] = HELPER,
        deadline_s: float = DEADLINE_S,
        on_spawn: Callable[[], None] = lambda: None,
        on_battery: Callable[[], bool] = lambda: False,
        listed: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        throughput = ("--pcie-throughput",) if settings.telemetry.pcie_throughput else ()
        options = (f"--platform={platform}", *throughput)
        self._platform = platform
        self._holds_s = holds_s(settings.schedule.telemetry_interval_s)
        self._now = now
        self._deadline_s = deadline_s
        self._on_spawn = on_spawn
        self._on_battery = on_battery
        self._seldom_s = settings.telemetry.on_battery_interval_s
        self._told_s: float | None = None  # when it last gave readings
        self._listed = listed  # the GPUs that CUDA offers, by UUID
        self._sought: frozenset[str] = frozenset()  # those that a new helper did not find either
        self._helper = Helper((*command, *options, *candidates(settings)))
        self._retry_at_s = 0.0
        self._failures = 0  # in a row
        self._resting: TelemetryError | None = None
        self._flight: asyncio.Task[tuple[Reading, ...]] | None = None
        self._overdue = False  # somebody gave up waiting for it
        self._xids: Mapping[str, Seen] = {}  # that this helper has told
        self._xids_before: Mapping[str, Seen] = {}  # those before it

    async def collect(self, wanted: frozenset[str]) -> Answer | None:  # noqa: ARG002  # it gives all
        """Give every field of every GPU, each with a value or a reason, or why there is none.

        None on battery, while the last answer is not old: a GPU sleeps only where nobody asks.
        """
        begun, seldom = self._now(), self._on_battery()
        if seldom and self._told_s is not None and begun.mono_s - self._told_s < self._seldom_s:
            return None
        self._told_s = None
        try:
            readings = await self._answered(ALL)
        except TelemetryError as error:
            return Answer(
                NAME,
                LEVEL,
                begun.wall_s,
                begun.mono_s,
                duration_s=self._now().mono_s - begun.mono_s,
                reason=error.reason,
                detail=str(error),
                fix=error.fix,
            )
        self._told_s = begun.mono_s
        return Answer(
            NAME,
            LEVEL,
            begun.wall_s,
            begun.mono_s,
            readings,
            holds_s=max(self._holds_s, self._seldom_s + SLACK_S if seldom else 0.0),
            duration_s=self._now().mono_s - begun.mono_s,
        )

    async def look(self, patience_s: float | None = None) -> tuple[Reading, ...]:
        """Give what conditions are made of, of every GPU, as it is from now on.

        Errors: ``TelemetryError`` with the reason for the whole collection; never waits longer
        than the deadline, and not beyond ``patience_s``: then the reason is ``slow``, the
        collection goes on, and until it has ended nobody with a patience waits for it again.
        """
        return await self._answered(OF_A_LOOK, patience_s)

    async def _answered(
        self, question: bytes, patience_s: float | None = None
    ) -> tuple[Reading, ...]:
        if patience_s is not None and self._flight is not None and self._overdue:
            raise _slow(patience_s)
        try:
            async with asyncio.timeout(patience_s):
                while self._flight is not None:  # one that began before now may tell what was
                    await asyncio.wait([self._flight])
                self._flight = asyncio.create_task(self._collected(question))
                self._flight.add_done_callback(self._landed)
                return await asyncio.shield(self._flight)
        except TimeoutError:
            assert patience_s is not None  # noqa: S101  # without one there is no timeout
            self._overdue = True
            raise _slow(patience_s) from None

    def _landed(self, flight: asyncio.Task[tuple[Reading, ...]]) -> None:
        self._flight, self._overdue = None, False
        if not flight.cancelled():
            flight.exception()  # looked at: nobody may be waiting any more

    async def _collected(self, question: bytes) -> tuple[Reading, ...]:
        if self._resting is not None and not await self._tried_again():
            raise self._resting
        answer = await self._asked(question)
        if answer.again:  # the library is another one by now: a new helper has the new one
            await self._helper.end()
            answer = await self._asked(question)
        if answer.readings is None or answer.last:
            await self._helper.end()
        if answer.again:
            raise self._rested(_CHANGING, "library_replaced", None)
        if answer.readings is None:
            raise self._rested(answer.detail, answer.reason, answer.fix)
        self._resting, self._failures = None, 0
        readings = tuple(read.reading() for read in answer.readings)
        self._xids = xids.seen(readings) or self._xids
        await self._renewed(readings)
        if self._on_battery():
            await self._helper.end()  # an open NVML keeps the GPU of a laptop awake
        return xids.carried(self._xids_before, readings)

    async def _renewed(self, readings: Sequence[Reading]) -> None:
        """End the helper, once, where CUDA offers a GPU that was not there when NVML was opened."""
        shown = {read.value for read in readings if read.field == "uuid"}
        unseen = self._listed() - shown
        if unseen - self._sought:
            await self._helper.end()
        self._sought = unseen

    async def _tried_again(self) -> bool:
        """Say whether a rest is over: by its time, or because a late answer shows that NVML is."""
        helper = self._helper.process
        if helper is not None and helper.caught_up():
            if _last(helper.late):
                await self._helper.end()
            return True
        if self._now().mono_s < self._retry_at_s:
            return False
        await self._helper.kill()
        return True

    async def _asked(self, question: bytes) -> _Answer:
        """Put one question to the helper, which is started where there is none."""
        helper = self._helper.process or self._started()
        silent = advice.words(Situation.TELEMETRY_SILENT, self._platform)
        try:
            line = await helper.ask(question, deadline_s=self._deadline_s)
        except TimeoutError:
            said = f"NVML did not answer within {self._deadline_s:g} s"
            raise self._rested(said, "hung", silent) from None
        if not line:
            code = await helper.ended(GONE_S)
            await self._helper.kill()
            raise self._rested(f"NVML ended its process ({_end(code)})", "crashed", silent)
        try:
            return _understood(line)
        except WireError as error:
            await self._helper.kill()
            raise self._rested(f"the telemetry helper: {error}", "bad_output", None) from error

    async def close(self) -> None:
        """End the helper; its input closes, and if that is not enough it is killed once."""
        if self._flight is not None:
            self._flight.cancel()
            await asyncio.wait([self._flight])
        await self._helper.end()

    def _started(self) -> Conversation:
        if (left := self._helper.staying()) is not None:
            silent = advice.words(Situation.HUNG, self._platform)
            state = processes.condition(left)
            said = f"process {left.pid} was killed in a call of NVML and stays ({state})"
            raise self._rested(said, "stuck", silent)
        self._xids_before, self._xids = xids.together(self._xids_before, self._xids), {}
        self._on_spawn()
        try:
            return self._helper.start()
        except OSError as error:
            raise self._rested(
                f"cannot start the telemetry helper: {error.strerror}", "spawn_failed", None
            ) from error

    def _rested(self, detail: str, reason: str, fix: str | None) -> TelemetryError:
        """Make the error, and answer with it until a rest is over, without starting anything."""
        self._retry_at_s = self._now().mono_s + rest_s(reason, self._failures)
        self._failures += 1
        self._resting = TelemetryError(detail, reason=reason, fix=fix)
        return self._resting


def _last(late: bytes) -> bool:
    """Say whether an answer was a helper's last; else it is asked on.

    Begun anew it would be as slow again where only the start of NVML takes its time.
    """
    try:
        answer = msgspec.json.decode(late, type=_Answer)
    except msgspec.DecodeError:
        return True
    return answer.last or answer.readings is None


def _end(code: int | None) -> str:
    """Say how a process ended: a signal by its name."""
    return f"code {code}" if code is None or code >= 0 else processes.signal_name(-code)
