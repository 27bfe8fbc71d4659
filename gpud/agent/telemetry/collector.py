"""Ask the telemetry helper, with a deadline; replace it when it hangs or ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from gpud.core.errors import TelemetryError
from gpud.core.sample import Absent, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpud.core.settings import Settings

HELPER = (sys.executable, "-I", "-m", "gpud.agent.telemetry")
DEADLINE_S = 5.0
HANG_REST_S = (60.0, 3600.0)
"""After a hang: the first rest and the longest. Each hang in a row doubles it."""
REFUSAL_REST_S = (5.0, 60.0)
"""After NVML would not open: it coming back is noticed within a minute, at little cost."""
LONGEST_LINE = 4 * 1024 * 1024
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class _Read(msgspec.Struct, frozen=True):
    """A ``Reading`` on the wire, where text and reason must be kept apart."""

    gpu: int
    field: str
    source: str
    value: float | str | None = None
    absent: Absent | None = None
    detail: str | None = None

    def reading(self) -> Reading:
        """Give the noun; neither value nor reason counts as failed."""
        value = self.value if self.value is not None else self.absent or Absent.FAILED
        return Reading(self.gpu, self.field, value, self.source, self.detail)


class _Answer(msgspec.Struct, frozen=True):
    readings: tuple[_Read, ...] | None = None
    reason: str = "failed"
    detail: str = ""
    fix: str | None = None


def candidates(settings: Settings) -> list[str]:
    """Where the library may be: the configured path alone, else WSL's folder, then the loader's."""
    if settings.nvml.library:
        return [settings.nvml.library]
    wsl = f"{settings.sysroot.rstrip('/')}/usr/lib/wsl/lib/libnvidia-ml.so.1"
    return [wsl, "libnvidia-ml.so.1"]


class Collector:
    """One helper at a time, started when asked and kept; one that hangs is killed once."""

    def __init__(
        self,
        settings: Settings,
        *,
        command: Sequence[str] = HELPER,
        deadline_s: float = DEADLINE_S,
        on_spawn: Callable[[], None] = lambda: None,
    ) -> None:
        self._command = (*command, *candidates(settings))
        self._deadline_s = deadline_s
        self._on_spawn = on_spawn
        self._helper: asyncio.subprocess.Process | None = None
        self._retry_at_s = 0.0
        self._failures = 0  # in a row
        self._resting: TelemetryError | None = None

    async def collect(self) -> tuple[Reading, ...]:
        """Give every field of every GPU, with a value or a reason.

        Errors: ``TelemetryError`` with the reason for the whole collection; never waits longer
        than the deadline.
        """
        if self._resting is not None and time.monotonic() < self._retry_at_s:
            raise self._resting
        try:
            line = await asyncio.wait_for(self._asked(), self._deadline_s)
        except TimeoutError:
            raise self._hung() from None
        except (OSError, ValueError) as error:
            await self.close()
            raise TelemetryError(f"the telemetry helper: {error}", reason="failed") from error
        if not line:
            code = await self._gone()
            raise TelemetryError(f"the telemetry helper ended ({code})", reason="crashed")
        try:
            answer = msgspec.json.decode(line, type=_Answer)
        except msgspec.DecodeError as error:
            await self.close()
            raise TelemetryError(f"the telemetry helper: {error}", reason="bad_output") from error
        if answer.readings is None:
            await self._gone()
            refusal = TelemetryError(answer.detail, reason=answer.reason, fix=answer.fix)
            self._rest(refusal, REFUSAL_REST_S)
            raise refusal
        self._resting, self._failures = None, 0
        return tuple(read.reading() for read in answer.readings)

    async def close(self) -> None:
        """End the helper; its input closes, and if that is not enough it is killed once."""
        helper, self._helper = self._helper, None
        if helper is None or helper.returncode is not None:
            return
        if helper.stdin is not None:
            helper.stdin.close()
        try:
            await asyncio.wait_for(helper.wait(), 1.0)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                helper.kill()

    async def _asked(self) -> bytes:
        if self._helper is None or self._helper.returncode is not None:
            self._on_spawn()
            self._helper = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=LONGEST_LINE,
                start_new_session=True,
                cwd="/",
                env=ENVIRONMENT,
            )
        helper = self._helper
        if helper.stdin is None or helper.stdout is None:
            raise ValueError("the helper has no pipes")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            helper.stdin.write(b"{}\n")
            await helper.stdin.drain()
        return await helper.stdout.readline()

    def _hung(self) -> TelemetryError:
        """Kill the helper once, not waiting for it, and rest longer after every hang in a row."""
        helper, self._helper = self._helper, None
        if helper is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(helper.pid, 9)
        error = TelemetryError(
            f"NVML did not answer within {self._deadline_s:g} s",
            reason="hung",
            fix="if GPU programs hang too: `wsl --shutdown` from Windows",
        )
        self._rest(error, HANG_REST_S)
        return error

    def _rest(self, error: TelemetryError, limits_s: tuple[float, float]) -> None:
        """Answer with ``error`` until the rest is over, without starting anything."""
        first_s, longest_s = limits_s
        rest_s = min(first_s * 2.0 ** min(self._failures, 20), longest_s)
        self._failures += 1
        self._retry_at_s = time.monotonic() + rest_s
        self._resting = error

    async def _gone(self) -> int | None:
        helper, self._helper = self._helper, None
        if helper is None:
            return None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(helper.wait(), 1.0)
        return helper.returncode
