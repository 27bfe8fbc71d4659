"""NVML, through its helper process: asked with a deadline, replaced when it hangs or ends."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import msgspec

from gpud.agent import processes
from gpud.agent.measure import condition_rules as conditions
from gpud.agent.state.snapshot import holds_s
from gpud.agent.telemetry.conversation import GONE_S, Helper
from gpud.core import advice, wire
from gpud.core.advice import Situation
from gpud.core.errors import TelemetryError, WireError
from gpud.core.gpus import MOST_KNOWN
from gpud.core.telemetry import LEVELS, impossible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.agent.telemetry.conversation import Conversation
    from gpud.agent.telemetry.source import Context
    from gpud.core.sample import Reading
    from gpud.core.settings import Settings
    from gpud.core.telemetry import Answer

NAME = "nvml"
LEVEL = LEVELS.index(NAME)

HELPER = (sys.executable, "-I", "-m", "gpud.agent.telemetry.nvml")
DEADLINE_S = 5.0
HANG_REST_S = 55.0
"""How long a helper that hangs is left alone: the driver may only be busy, and killing what waits
for it helps nobody. Then it is killed, once, and another one tries."""
REFUSAL_REST_S = (5.0, 45.0)
"""After NVML would not open, or crashed: with the interval that follows, its return is noticed
within a minute, at little cost."""
ON_BATTERY_S = 300.0
"""The interval on battery: the GPU of a laptop sleeps only where nobody asks."""
SLACK_S = 30.0
"""For an answer that is asked for seldom: the next one comes before it is too old."""

ALL = b"{}"
OF_A_LOOK = msgspec.json.encode({"fields": sorted(conditions.ASKED)})
"""Right before and after a run, no more is asked than is made use of."""
REPLACED = "library_replaced"


class HelperAnswer(msgspec.Struct, frozen=True):
    """One line of the helper; ``gpud.agent.telemetry.nvml`` describes each part."""

    readings: tuple[wire.Read, ...] | None = None
    last: bool = False
    reason: Annotated[str, msgspec.Meta(pattern="^[a-z_]{1,64}$")] = "failed"
    detail: str = ""
    fix: str | None = None


def _decoded(line: bytes) -> HelperAnswer:
    """Decode an answer. ``Errors: WireError`` where it is none, or has what NVML cannot give."""
    try:
        answer = msgspec.json.decode(line, type=HelperAnswer)
    except wire.UNREADABLE as error:
        raise WireError(str(error)) from error
    readings = [read.reading() for read in answer.readings or ()]
    if (trouble := impossible(readings, NAME)) is not None:
        raise WireError(trouble)
    return answer


def candidates(settings: Settings) -> list[str]:
    """Return where the library may be: the configured path alone, or WSL's, then the loader's."""
    if settings.nvml.library:
        return [settings.nvml.library]
    wsl = f"{settings.sysroot.rstrip('/')}/usr/lib/wsl/lib/libnvidia-ml.so.1"
    return [wsl, "libnvidia-ml.so.1"]


def create(context: Context) -> Nvml:
    """Create the source."""
    return Nvml(context)


def rest_s(reason: str, failures: int) -> float:
    """Return the rest after a failure, when ``failures`` went before it in a row."""
    if reason == "hung":
        return HANG_REST_S
    first_s, longest_s = REFUSAL_REST_S
    return min(first_s * 2.0 ** min(failures, 20), longest_s)


class Nvml:
    """One helper at a time, started when asked and kept.

    One that hangs is left alone for a while and then killed once; while it does not go, no other is
    started.
    """

    def __init__(
        self,
        context: Context,
        *,
        command: Sequence[str] = HELPER,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        settings = context.settings
        self._context = context
        self._platform = advice.of(context.read().platform)
        self._command = (*command, f"--platform={self._platform}")
        if settings.telemetry.pcie_throughput:
            self._command += ("--pcie-throughput",)
        self._candidates = candidates(settings)
        self._deadline_s = deadline_s
        self._holds_s = holds_s(settings.schedule.telemetry_interval_s)
        self._answered_s: float | None = None  # when it last gave readings
        self._sought: frozenset[str] = frozenset()  # GPUs that a new helper did not list either
        self._helper = Helper()
        self._retry_at_s = 0.0
        self._failures = 0  # in a row
        self._failure: TelemetryError | None = None  # given until its rest is over
        self._asking: asyncio.Task[tuple[Reading, ...]] | None = None
        self._overdue = False  # somebody gave up waiting for it
        self._xids: dict[str, tuple[str, float]] = {}  # by UUID, for the next helper

    async def collect(self, wanted: frozenset[str]) -> Answer | None:  # noqa: ARG002  # it gives all
        """Return every field of every GPU, each with a value or a reason, or why there is none.

        None on battery, while the last answer is not old.
        """
        begun, on_battery = self._context.now(), self._context.on_battery()
        last_s, self._answered_s = self._answered_s, None
        if on_battery and last_s is not None and begun.mono_s - last_s < ON_BATTERY_S:
            self._answered_s = last_s
            return None
        try:
            result: tuple[Reading, ...] | TelemetryError = await self._answered(ALL)
            self._answered_s = begun.mono_s
        except TelemetryError as error:
            result = error
        holds_s = max(self._holds_s, ON_BATTERY_S + SLACK_S if on_battery else 0.0)
        return self._context.answer(NAME, begun, result, holds_s=holds_s)

    async def look(self, patience_s: float | None = None) -> tuple[Reading, ...]:
        """Return what conditions are made of, of every GPU, as it is from now on.

        Errors: ``TelemetryError`` with the reason for the whole collection; never waits longer
        than the deadline, and not beyond ``patience_s``: then the reason is ``slow``, the
        collection goes on, and until it has ended nobody with a patience waits for it again.
        """
        return await self._answered(OF_A_LOOK, patience_s)

    async def close(self) -> None:
        """End the helper; its input closes, and if that is not enough it is killed once."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        await self._helper.end()

    async def _answered(
        self, question: bytes, patience_s: float | None = None
    ) -> tuple[Reading, ...]:
        if patience_s is not None and self._asking is not None and self._overdue:
            raise _slow(patience_s)
        try:
            async with asyncio.timeout(patience_s):
                while self._asking is not None:  # it began before now: its values may be older
                    await asyncio.wait([self._asking])
                self._asking = asyncio.create_task(self._collected(question))
                self._asking.add_done_callback(self._done)
                return await asyncio.shield(self._asking)
        except TimeoutError:
            assert patience_s is not None  # noqa: S101  # without one there is no timeout
            self._overdue = True
            raise _slow(patience_s) from None

    def _done(self, task: asyncio.Task[tuple[Reading, ...]]) -> None:
        self._asking, self._overdue = None, False
        if not task.cancelled():
            task.exception()  # retrieved: nobody may be waiting any more

    async def _collected(self, question: bytes) -> tuple[Reading, ...]:
        if self._failure is not None and not await self._rested():
            raise self._failure
        answer = await self._asked(question)
        if answer.reason == REPLACED:  # a new helper has the new library
            await self._helper.end()
            answer = await self._asked(question)
        if answer.readings is None or answer.last:
            await self._helper.end()
        if answer.readings is None:
            raise self._failed(answer.detail, answer.reason, answer.fix)
        self._failure, self._failures = None, 0
        readings = tuple(read.reading() for read in answer.readings)
        self._keep_xids(readings)
        await self._end_without_new_gpus(readings)
        if self._context.on_battery():
            await self._helper.end()  # an open NVML keeps the GPU of a laptop awake
        return readings

    def _keep_xids(self, readings: Sequence[Reading]) -> None:
        """Keep what is counted so far, by UUID; of too many GPUs the newest."""
        values = {(read.gpu, read.field): read.value for read in readings}
        for (gpu, field), uuid in values.items():
            xids, last = values.get((gpu, "xids")), values.get((gpu, "xid_last"))
            if field == "uuid" and type(xids) is str and type(last) is float:
                self._xids[str(uuid)] = (xids, last)
        self._xids = dict(list(self._xids.items())[-MOST_KNOWN:])

    async def _end_without_new_gpus(self, readings: Sequence[Reading]) -> None:
        """End the helper, once, where CUDA lists a GPU that was not there when NVML was opened."""
        inventory = self._context.read().inventory
        devices = () if inventory is None else inventory.devices
        listed = frozenset(device.uuid for device in devices if device.mig is None)
        missing = listed - {read.value for read in readings if read.field == "uuid"}
        if missing - self._sought:
            await self._helper.end()
        self._sought = missing

    async def _rested(self) -> bool:
        """Return whether a rest is over: by its time, or because a late answer came."""
        process = self._helper.process
        if process is not None and process.caught_up():
            if _is_last(process.late):
                await self._helper.end()
            return True
        if self._context.now().mono_s < self._retry_at_s:
            return False
        await self._helper.kill()
        return True

    async def _asked(self, question: bytes) -> HelperAnswer:
        """Put one question to the helper, which is started where there is none."""
        process = self._helper.process or self._started()
        silent = advice.words(Situation.TELEMETRY_SILENT, self._platform)
        try:
            line = await process.ask(question, deadline_s=self._deadline_s)
        except TimeoutError:
            words = f"NVML did not answer within {self._deadline_s:g} s"
            raise self._failed(words, "hung", silent) from None
        if not line:
            code = await process.ended(GONE_S)
            await self._helper.kill()
            raise self._failed(f"NVML ended its process ({_end(code)})", "crashed", silent)
        try:
            return _decoded(line)
        except WireError as error:
            await self._helper.kill()
            raise self._failed(f"the telemetry helper: {error}", "bad_output", None) from error

    def _started(self) -> Conversation:
        if (process := self._helper.staying()) is not None:
            state = processes.condition(process)
            words = f"process {process.pid} was killed in a call of NVML and stays ({state})"
            raise self._failed(words, "stuck", advice.words(Situation.HUNG, self._platform))
        self._context.spawned()
        xids = msgspec.json.encode(self._xids).decode()
        try:
            return self._helper.start((*self._command, f"--xids={xids}", *self._candidates))
        except OSError as error:
            words = f"cannot start the telemetry helper: {error.strerror}"
            raise self._failed(words, "spawn_failed", None) from error

    def _failed(self, detail: str, reason: str, fix: str | None) -> TelemetryError:
        """Return the error; it is given until a rest is over, without starting anything."""
        self._retry_at_s = self._context.now().mono_s + rest_s(reason, self._failures)
        self._failures += 1
        self._failure = TelemetryError(detail, reason=reason, fix=fix)
        return self._failure


def _slow(patience_s: float) -> TelemetryError:
    return TelemetryError(f"NVML has not answered within {patience_s:g} s yet", reason="slow")


def _is_last(line: bytes) -> bool:
    """Return whether an answer was a helper's last; any other helper is asked on.

    A new one would be as slow again where only the start of NVML takes its time.
    """
    try:
        answer = msgspec.json.decode(line, type=HelperAnswer)
    except msgspec.DecodeError:
        return True
    return answer.last or answer.readings is None


def _end(code: int | None) -> str:
    """Describe how a process ended: a signal by its name."""
    return f"code {code}" if code is None or code >= 0 else processes.signal_name(-code)
