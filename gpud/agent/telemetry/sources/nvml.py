"""NVML, through its helper process: asked with a deadline, replaced when it hangs or ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import msgspec

from gpud import gpu_lock
from gpud.agent import children
from gpud.agent.measure import conditions
from gpud.agent.state.snapshot import holds_s
from gpud.agent.telemetry.answers import GpuProcesses, LiveAnswer
from gpud.agent.telemetry.fields import FIELDS
from gpud.core import advice, wire
from gpud.core.advice import Situation
from gpud.core.errors import TelemetryError
from gpud.core.sample import Absent, Reading
from gpud.core.settings import NVML_LOCK
from gpud.document.machine import ReadingReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.agent.telemetry.answers import Answer
    from gpud.agent.telemetry.collection import SourceContext
    from gpud.core.settings import Settings

NAME = "nvml"
HELPER = (sys.executable, "-I", "-m", "gpud.agent.telemetry.nvml")
DEADLINE_S = 5.0
KILL_AFTER_S = 60.0
"""From an unanswered question to the kill of the helper: the driver may only be busy, and killing
what waits for it does not help. Then it is killed, once, and another one tries; in WSL2 it is left
alone, and none does until it has ended."""
REFUSAL_REST_S = (5.0, 45.0)
"""After NVML would not open, or crashed: with the interval that follows, its return is noticed
within a minute, at little cost."""
ON_BATTERY_S = 900.0
"""The interval on battery: the GPU of a laptop sleeps only while it is not asked."""
SLACK_S = 30.0
"""For an answer that is asked for seldom: the next one comes before it is too old."""
END_S = 1.0
"""How long the helper may take to end after its input closed, and again after its kill."""

ALL = b"{}"
LOOK_FIELDS = conditions.FIELDS_OF_A_RUN | {"xids", "xid_last"}
"""Right before and after a run, no more is asked than is made use of, and Xids, which the driver
tells once: they go on to the next helper."""
OF_A_LOOK = msgspec.json.encode({"fields": sorted(LOOK_FIELDS)})
LIVE_FIELDS = frozenset(
    {
        *LOOK_FIELDS,
        *("driver_version", "cuda_version", "nvml_version", "name", "pci_bus_id"),
        *("memory_total_bytes", "fan_ratio", "temperature_slowdown_celsius"),
        *("clock_sm_max_hertz", "clock_memory_max_hertz"),
    }
)
LIVE = msgspec.json.encode({"fields": sorted(LIVE_FIELDS), "processes": True})
"""While a person looks on: what changes from second to second, and what names it."""
REPLACED = "library_replaced"


class HelperAnswer(msgspec.Struct, frozen=True):
    """One line of the helper; ``gpud.agent.telemetry.nvml.__main__`` describes each part."""

    readings: tuple[ReadingReport, ...] | None = None
    processes: tuple[GpuProcesses, ...] = ()
    last: bool = False
    reason: Annotated[str, msgspec.Meta(pattern="^[a-z_]{1,64}$")] = "failed"
    detail: str = ""
    fix: str | None = None


def candidates(settings: Settings) -> list[str]:
    """Return where the library may be: the configured path alone, or WSL's, then the loader's."""
    if settings.nvml.library:
        return [settings.nvml.library]
    wsl = f"{settings.sysroot.rstrip('/')}/usr/lib/wsl/lib/libnvidia-ml.so.1"
    return [wsl, "libnvidia-ml.so.1"]


def create(context: SourceContext) -> Nvml:
    """Create the source."""
    return Nvml(context)


class Nvml:
    """NVML as a telemetry source. Its helper is started when it is needed, and kept.

    No helper is started beside one that outlived its kill, or that hangs and is left alone as
    ``[cuda] hung_child`` says.
    """

    def __init__(
        self,
        context: SourceContext,
        *,
        command: Sequence[str] = HELPER,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        settings, machine = context.settings, context.board.read().machine.platform
        self._context = context
        self._platform = advice.of(machine)
        self._leave = settings.cuda.leaves_hung(machine.get("kernel", ""))
        self._command = (*command, f"--platform={self._platform}")
        if self._leave:
            self._command += ("--budget-s=0",)  # without an alarm of its own
        if settings.telemetry.pcie_throughput:
            self._command += ("--pcie-throughput",)
        self._candidates = candidates(settings)
        self._deadline_s = deadline_s
        self._success_mono_s: float | None = None  # of the last collection, if it succeeded
        self._lock = asyncio.Lock()  # one question at a time
        self._helper: children.Child | None = None
        self._owes = False  # the helper owes an answer
        self._request_mono_s = 0.0  # when it got its last question
        self._retry_mono_s = 0.0
        self._failures = 0  # in a row
        self._failure: TelemetryError | None = None  # raised until its rest is over
        self._xids: dict[str, tuple[str, float]] = {}  # by UUID, for the next helper

    async def collect(self) -> Answer | None:
        """Return every field of every GPU, each with a value or a reason, or why there is none.

        None on battery, while the last answer is not old.
        """
        begun, on_battery = self._context.now(), self._on_battery()
        last_s = self._success_mono_s
        if on_battery and last_s is not None and begun.mono_s - last_s < ON_BATTERY_S:
            return None
        self._success_mono_s = None
        result: tuple[Reading, ...] | TelemetryError
        try:
            async with self._lock:
                result = self._kept(await self._asked(ALL, self._deadline_s))
            self._success_mono_s = begun.mono_s
        except TelemetryError as error:
            result = error
        long_s = holds_s(self._context.settings.schedule.telemetry_interval_s)
        long_s = max(long_s, ON_BATTERY_S + SLACK_S) if on_battery else long_s
        return self._context.answer(NAME, begun, result, holds_s=long_s)

    def _on_battery(self) -> bool:
        return conditions.on_battery(self._context.settings.sysroot)

    async def look(self, patience_s: float = DEADLINE_S) -> tuple[Reading, ...]:
        """Return what conditions are made of, of every GPU, as it is from now on.

        Errors: ``TelemetryError`` with the reason for the whole collection; ``slow`` where that
        would take longer than ``patience_s``.
        """
        begun_s = self._context.now().mono_s
        try:
            await asyncio.wait_for(self._lock.acquire(), patience_s)
        except TimeoutError:
            raise self._silence(patience_s) from None
        try:
            spent_s = self._context.now().mono_s - begun_s
            return self._kept(await self._asked(OF_A_LOOK, max(patience_s - spent_s, 0.0)))
        finally:
            self._lock.release()

    async def live(self) -> LiveAnswer:
        """Return what changes from second to second, and the processes of each GPU.

        Not for a machine on battery. Errors: as ``look``.
        """
        begun = self._context.now()
        async with self._lock:
            answer = await self._asked(LIVE, self._deadline_s)
        readings = self._context.answer(NAME, begun, self._kept(answer), holds_s=SLACK_S)
        return LiveAnswer(readings, answer.processes)

    async def close(self) -> None:
        """End the helper."""
        await self._end()

    async def _asked(self, question: bytes, wait_s: float) -> HelperAnswer:
        """Return an answer with readings. Errors: ``TelemetryError``."""
        if self._failure is not None and self._context.now().mono_s < self._retry_mono_s:
            raise self._failure
        await self._take_late_answer(wait_s)
        answer = await self._ask(question, wait_s)
        if answer.reason == REPLACED:  # a new helper has the new library
            answer = await self._ask(question, wait_s)
        if answer.readings is None:
            raise self._failed(answer.detail, answer.reason, answer.fix)
        if self._on_battery():  # an open NVML keeps the GPU of a laptop awake
            await self._end()
        self._failure, self._failures = None, 0
        return answer

    def _kept(self, answer: HelperAnswer) -> tuple[Reading, ...]:
        """Return the readings, and remember the Xids for the next helper."""
        readings = tuple(_reading(read) for read in answer.readings or () if read.field in FIELDS)
        values = {(reading.gpu, reading.field): reading.value for reading in readings}
        for (gpu, field), uuid in values.items():
            xids, last = values.get((gpu, "xids")), values.get((gpu, "xid_last"))
            if field == "uuid" and type(xids) is str and type(last) is float:
                self._xids[str(uuid)] = (xids, last)
        return readings

    async def _take_late_answer(self, wait_s: float) -> None:
        """Take the answer to an earlier question; its values are too old, its Xids count.

        Errors: ``TelemetryError`` while it is owed, until the helper has been killed for it.
        """
        if self._helper is None or not self._owes:
            return
        age_s = self._context.now().mono_s - self._request_mono_s
        left_s = max(self._deadline_s - age_s, 0.0)
        try:
            self._kept(await self._take_answer(self._helper, min(wait_s, left_s)))
        except TimeoutError:
            if age_s < KILL_AFTER_S:
                raise self._silence(age_s + wait_s) from None
            await self._end()

    async def _ask(self, question: bytes, wait_s: float) -> HelperAnswer:
        """Put one question to the helper, which is started where there is none."""
        helper = self._helper = self._helper or self._started()
        self._request_mono_s, self._owes = self._context.now().mono_s, True
        helper.send(question + b"\n")
        try:
            return await self._take_answer(helper, wait_s)
        except TimeoutError:
            raise self._silence(wait_s) from None

    async def _take_answer(self, helper: children.Child, wait_s: float) -> HelperAnswer:
        """Take the answer that is owed; the helper goes with its last one.

        Errors: ``TimeoutError``; ``TelemetryError`` where the helper ended or wrote no answer.
        """
        line = await helper.answer(wait_s)
        if line is None and not (helper.exited.is_set() or helper.out.overflowed):
            raise TimeoutError
        self._owes = False
        if line is None and helper.exited.is_set():
            code = await self._end()
            end = children.signal_name(-code) if code is not None and code < 0 else f"code {code}"
            raise self._failed(f"NVML ended its process ({end})", "crashed", self._silent_fix())
        try:
            answer = msgspec.json.decode(line or b"", type=HelperAnswer)
        except wire.UNREADABLE as error:
            await self._end()
            raise self._failed(f"the telemetry helper: {error}", "bad_output", None) from error
        if answer.last or answer.readings is None:
            await self._end()
        return answer

    def _started(self) -> children.Child:
        """Start a helper. Errors: ``TelemetryError``."""
        lock = self._taken()
        self._context.board.count_process()
        xids = msgspec.json.encode(self._xids).decode()
        try:
            helper = children.Child(
                (*self._command, f"--xids={xids}", *self._candidates),
                subprocess.PIPE,
                pass_fds=() if lock is None else (lock,),
            )
        except OSError as error:
            words = f"cannot start the telemetry helper: {error.strerror}"
            raise self._failed(words, "spawn_failed", None) from error
        else:
            if lock is not None:
                gpu_lock.note_holder(lock, helper.reference, KILL_AFTER_S, NAME)
            return helper
        finally:
            if lock is not None:
                os.close(lock)  # the helper alone has it

    def _taken(self) -> int | None:
        """Take the lock that the helper inherits; None where there is no place for one.

        One that stayed has it, an earlier agent's too. Errors: ``TelemetryError`` (stuck).
        """
        fd = None
        try:
            fd = gpu_lock.open_lock(self._context.own / NVML_LOCK)
            if gpu_lock.take_lock(fd):
                return fd
        except OSError:  # a folder of Windows has no locks
            if fd is not None:
                os.close(fd)
            return None
        holder = gpu_lock.lock_holder(fd)
        os.close(fd)
        words = "a helper that was started before stays in a call of NVML"
        if holder is not None:
            state = children.condition(holder.process)
            end = "is left alone" if self._leave else "was killed"
            words = f"process {holder.process.pid} {end} in a call of NVML and stays ({state})"
        raise self._failed(words, "stuck", advice.words(Situation.HUNG, self._platform))

    async def _end(self) -> int | None:
        """Close the helper's input, and kill it, once, if it has not ended after ``END_S``.

        One that is to be left alone gets no signal. Returns its exit code; None if there was no
        helper, or it is stuck now.
        """
        helper, self._helper, self._owes = self._helper, None, False
        if helper is None:
            return None
        helper.finish()
        try:
            return (await helper.ended(END_S, END_S, kill=not self._leave)).code
        finally:
            helper.close()

    def _silence(self, waited_s: float) -> TelemetryError:
        if waited_s < self._deadline_s:
            return TelemetryError("NVML has not answered yet", reason="slow")
        words = f"NVML did not answer within {self._deadline_s:g} s"
        return TelemetryError(words, reason="hung", fix=self._silent_fix())

    def _silent_fix(self) -> str:
        return advice.words(Situation.TELEMETRY_SILENT, self._platform)

    def _failed(self, detail: str, reason: str, fix: str | None) -> TelemetryError:
        """Return the error, which is raised until its rest is over, without starting anything."""
        first_s, longest_s = REFUSAL_REST_S
        rest_s = min(first_s * 2.0 ** min(self._failures, 20), longest_s)
        self._retry_mono_s = self._context.now().mono_s + rest_s
        self._failures += 1
        self._failure = TelemetryError(detail, reason=reason, fix=fix)
        return self._failure


def _reading(read: ReadingReport) -> Reading:
    """Return what the helper read; neither value nor reason counts as failed."""
    value = read.value if read.value is not None else Absent(read.absent or Absent.FAILED)
    return Reading(read.gpu, read.field, value, read.source, read.detail)
