"""NVML, through its helper process: asked with a deadline, replaced when it hangs or ends."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import msgspec

from gpud.agent import processes
from gpud.agent.measure import conditions
from gpud.agent.state.snapshot import holds_s
from gpud.agent.telemetry.helper import Helper
from gpud.core import advice, wire
from gpud.core.advice import Situation
from gpud.core.errors import TelemetryError, WireError
from gpud.core.gpus import MOST_GPUS
from gpud.core.telemetry import LEVELS, impossible

if TYPE_CHECKING:
    from collections.abc import Sequence

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
for it does not help. Then it is killed, once, and another one tries."""
REFUSAL_REST_S = (5.0, 45.0)
"""After NVML would not open, or crashed: with the interval that follows, its return is noticed
within a minute, at little cost."""
ON_BATTERY_S = 300.0
"""The interval on battery: the GPU of a laptop sleeps only while it is not asked."""
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

    @property
    def is_last(self) -> bool:
        """Whether the helper ends with this answer."""
        return self.last or self.readings is None


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
    """NVML as a telemetry source. Its helper is started when it is needed, and kept."""

    def __init__(
        self,
        context: Context,
        *,
        command: Sequence[str] = HELPER,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        settings = context.settings
        self._context = context
        self._platform = advice.of(context.read().machine.platform)
        self._command = (*command, f"--platform={self._platform}")
        if settings.telemetry.pcie_throughput:
            self._command += ("--pcie-throughput",)
        self._candidates = candidates(settings)
        self._deadline_s = deadline_s
        self._holds_s = holds_s(settings.schedule.telemetry_interval_s)
        self._success_mono_s: float | None = None  # of the last collection, if it succeeded
        self._missing: frozenset[str] = frozenset()  # GPUs that a new helper did not list either
        self._helper = Helper()
        self._retry_at_s = 0.0
        self._failures = 0  # in a row
        self._failure: TelemetryError | None = None  # raised until its rest is over
        self._asking: asyncio.Task[tuple[Reading, ...]] | None = None
        self._overdue = False  # a caller gave up waiting for the task
        self._xids: dict[str, tuple[str, float]] = {}  # by UUID, for the next helper

    async def collect(self, missing: frozenset[str]) -> Answer | None:  # noqa: ARG002  # it gives all
        """Return every field of every GPU, each with a value or a reason, or why there is none.

        None on battery, while the last answer is not old.
        """
        begun, on_battery = self._context.now(), self._context.on_battery()
        last_s = self._success_mono_s
        if on_battery and last_s is not None and begun.mono_s - last_s < ON_BATTERY_S:
            return None
        self._success_mono_s = None
        try:
            result: tuple[Reading, ...] | TelemetryError = await self._ask_next(ALL)
            self._success_mono_s = begun.mono_s
        except TelemetryError as error:
            result = error
        holds_s = max(self._holds_s, ON_BATTERY_S + SLACK_S if on_battery else 0.0)
        return self._context.answer(NAME, begun, result, holds_s=holds_s)

    async def look(self, patience_s: float | None = None) -> tuple[Reading, ...]:
        """Return what conditions are made of, of every GPU, as it is from now on.

        Errors: ``TelemetryError`` with the reason for the whole collection. Waits no longer than
        the deadline and ``patience_s``; beyond that the reason is ``slow``, the collection goes on,
        and until it has ended every other caller with a patience gets ``slow`` at once.
        """
        return await self._ask_next(OF_A_LOOK, patience_s)

    async def close(self) -> None:
        """End the helper."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        await self._helper.end()

    async def _ask_next(
        self, question: bytes, patience_s: float | None = None
    ) -> tuple[Reading, ...]:
        """Ask after whatever is asked now: its values may be older than this call."""
        slow = TelemetryError(f"NVML has not answered within {patience_s} s yet", reason="slow")
        if patience_s is not None and self._overdue:
            raise slow
        try:
            async with asyncio.timeout(patience_s):
                while self._asking is not None:
                    await asyncio.wait([self._asking])
                self._asking = asyncio.create_task(self._readings(question))
                self._asking.add_done_callback(self._done)
                return await asyncio.shield(self._asking)
        except TimeoutError:
            self._overdue = True
            raise slow from None

    def _done(self, task: asyncio.Task[tuple[Reading, ...]]) -> None:
        self._asking, self._overdue = None, False
        if not task.cancelled():
            task.exception()  # retrieved: there may be no caller any more

    async def _readings(self, question: bytes) -> tuple[Reading, ...]:
        if self._failure is not None and not await self._rest_is_over():
            raise self._failure
        answer = await self._ask(question)
        if answer.reason == REPLACED:  # a new helper has the new library
            await self._helper.end()
            answer = await self._ask(question)
        if answer.is_last:
            await self._helper.end()
        if answer.readings is None:
            raise self._failed(answer.detail, answer.reason, answer.fix)
        self._failure, self._failures = None, 0
        readings = tuple(read.reading() for read in answer.readings)
        self._keep_xids(readings)
        if self._is_gpu_new(readings) or self._context.on_battery():
            # A new helper lists the GPU; and an open NVML keeps the GPU of a laptop awake.
            await self._helper.end()
        return readings

    def _keep_xids(self, readings: Sequence[Reading]) -> None:
        """Keep what is counted so far, by UUID; of too many GPUs the newest."""
        values = {(read.gpu, read.field): read.value for read in readings}
        for (gpu, field), uuid in values.items():
            xids, last = values.get((gpu, "xids")), values.get((gpu, "xid_last"))
            if field == "uuid" and type(xids) is str and type(last) is float:
                self._xids[str(uuid)] = (xids, last)
        self._xids = dict(list(self._xids.items())[-MOST_GPUS:])

    def _is_gpu_new(self, readings: Sequence[Reading]) -> bool:
        """Return, once, whether CUDA lists a GPU that was not there when NVML was opened."""
        inventory = self._context.read().measure.inventory
        devices = () if inventory is None else inventory.devices
        listed = frozenset(device.uuid for device in devices if device.mig is None)
        before = self._missing
        self._missing = listed - {read.value for read in readings if read.field == "uuid"}
        return not self._missing <= before

    async def _rest_is_over(self) -> bool:
        """Return whether NVML may be asked again: after a while, or because a late answer came."""
        if (line := self._helper.late_answer()) is not None:
            if _is_last(line):
                await self._helper.end()
            return True
        if self._context.now().mono_s < self._retry_at_s:
            return False
        await self._helper.end()
        return True

    async def _ask(self, question: bytes) -> HelperAnswer:
        """Put one question to the helper, which is started where there is none."""
        if self._helper.pid is None:
            await self._start()
        silent = advice.words(Situation.TELEMETRY_SILENT, self._platform)
        try:
            line = await self._helper.ask(question, deadline_s=self._deadline_s)
        except TimeoutError:
            words = f"NVML did not answer within {self._deadline_s:g} s"
            raise self._failed(words, "hung", silent) from None
        if not line:
            code = await self._helper.end()
            end = processes.signal_name(-code) if code is not None and code < 0 else f"code {code}"
            raise self._failed(f"NVML ended its process ({end})", "crashed", silent)
        try:
            return _decoded(line)
        except WireError as error:
            await self._helper.end()
            raise self._failed(f"the telemetry helper: {error}", "bad_output", None) from error

    async def _start(self) -> None:
        if (process := self._helper.stuck()) is not None:
            state = processes.condition(process)
            words = f"process {process.pid} was killed in a call of NVML and stays ({state})"
            raise self._failed(words, "stuck", advice.words(Situation.HUNG, self._platform))
        self._context.spawned()
        xids = msgspec.json.encode(self._xids).decode()
        try:
            await self._helper.start((*self._command, f"--xids={xids}", *self._candidates))
        except OSError as error:
            words = f"cannot start the telemetry helper: {error.strerror}"
            raise self._failed(words, "spawn_failed", None) from error

    def _failed(self, detail: str, reason: str, fix: str | None) -> TelemetryError:
        """Return the error, which is raised until its rest is over, without starting anything."""
        self._retry_at_s = self._context.now().mono_s + rest_s(reason, self._failures)
        self._failures += 1
        self._failure = TelemetryError(detail, reason=reason, fix=fix)
        return self._failure


def _is_last(line: bytes) -> bool:
    """Return whether an answer was a helper's last; any other helper is asked on.

    A new one would be as slow again where only the start of NVML takes its time.
    """
    try:
        return _decoded(line).is_last
    except WireError:
        return True
