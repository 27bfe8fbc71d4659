"""The nvidia-smi programs as a fallback: started rarely, one at a time, and asked for CSV.

A start leaks memory of the host on some versions of WSL, and one that hangs in the driver cannot be
ended. So each start is noted in a file before it happens, and the next agent keeps to it: none
before its moment, nor while the process of the last one lives (ADR 15).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from gpud.agent import children, platform
from gpud.agent.telemetry import smi_output, windows
from gpud.core import wire
from gpud.core.errors import TelemetryError
from gpud.core.report import ProcessRef
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from gpud.agent.children import Ended
    from gpud.agent.telemetry.answers import Answer
    from gpud.agent.telemetry.collection import SourceContext
    from gpud.agent.telemetry.smi_output import SmiColumn
    from gpud.core.advice import Platform
    from gpud.core.sample import Reading

REST_S: Final = 300.0
"""Between two starts, and after anything that prevents one."""
LONG_REST_S: Final = 3600.0
"""After a hang, which ended with a kill of a process in the driver. Likewise, how long a field that
the last answer lacked is no reason for a start."""
HOLDS_S: Final = 330.0
"""The next answer comes before the last one is too old."""
DEADLINE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class SmiProgram:
    """The program to start, the first of ``places``. ``platform`` is None for Windows."""

    places: tuple[str, ...]
    platform: Platform | None


class StartNote(msgspec.Struct, frozen=True):
    """The last start, for the next agent of the same boot. Units: CLOCK_MONOTONIC."""

    boot_id: str
    retry_mono_s: float = 0.0
    process: ProcessRef | None = None


class NvidiaSmi:
    """One of the programs as a telemetry source; each defines ``program``."""

    def __init__(
        self, context: SourceContext, name: str, *, deadline_s: float = DEADLINE_S
    ) -> None:
        self.context = context
        self._name = name
        self._deadline_s = deadline_s
        self._path = context.own / f"{name}.json"
        self._note = self._read_note()
        self._columns: tuple[SmiColumn, ...] = smi_output.COLUMNS
        self._lacking = frozenset[str]()  # fields without a value in the last answer
        self._lacking_until_s = 0.0

    def program(self) -> SmiProgram | None:
        """Return what to start, None for not now."""
        raise NotImplementedError

    async def collect(self, missing: frozenset[str]) -> Answer | None:
        """Start the program if it may bring a missing field and its rest is over."""
        begun = self.context.now()
        lacking = self._lacking if begun.mono_s < self._lacking_until_s else frozenset()
        if not (missing & smi_output.OFFERED) - lacking or not self._may_start(begun.mono_s):
            return None
        if (program := self.program()) is None:
            return None
        result: tuple[Reading, ...] | TelemetryError
        try:
            self._rest(REST_S)
            result = await self._ask(program)
        except TelemetryError as error:
            result = error
        return self.context.answer(self._name, begun, result, holds_s=HOLDS_S)

    async def close(self) -> None:
        """Leave a program that runs to its end; the note names it for the next agent."""

    def _may_start(self, now_mono_s: float) -> bool:
        last = self._note.process
        alive = last is not None and children.ref(last.pid) == last
        return now_mono_s >= self._note.retry_mono_s and not alive

    async def _ask(self, program: SmiProgram) -> tuple[Reading, ...]:
        """Start it and read its answer. ``Errors: TelemetryError``."""
        sysroot = self.context.settings.sysroot
        in_windows = program.platform is None
        environment = windows.environment(sysroot) if in_windows else children.ENVIRONMENT
        self.context.count_process()
        try:
            ended = await children.run_program(
                program.places,
                smi_output.arguments(self._columns),
                deadline_s=self._deadline_s,
                started=self._note_process,
                environment=environment,
            )
        except OSError as error:
            words = f"{self._name}: {children.SHELL} cannot be started: {error.strerror}"
            raise TelemetryError(words, reason="spawn_failed") from error
        if ended.code == children.NOT_THERE and not ended.stdout:
            words = f"{self._name}: no {' nor '.join(program.places)}"
            raise TelemetryError(words, reason="absent")
        self.context.count_start(self._name)
        if ended.overflowed:
            words = f"{self._name}: more than {children.STDOUT_BYTES} bytes of output"
            raise smi_output.bad_output(words)
        if ended.killed or ended.code is None:
            raise self._hung(ended, program)
        if smi_output.refuses_a_column(ended.code, ended.stdout + ended.stderr):
            self._columns = smi_output.OLDER  # at the next start
        if ended.code != 0:
            raise smi_output.exit_error(ended, self._name, program.platform)
        readings = smi_output.read_csv(ended.stdout, self._name, self._columns)
        answered = {read.field for read in readings if not isinstance(read.value, Absent)}
        self._lacking = frozenset({read.field for read in readings} - answered)
        self._lacking_until_s = self.context.now().mono_s + LONG_REST_S
        return readings

    def _hung(self, ended: Ended, program: SmiProgram) -> TelemetryError:
        with contextlib.suppress(TelemetryError):  # it is noted here, if not for the next agent
            self._rest(LONG_REST_S)
        words = f"{self._name}: {program.places[0]} did not answer within {self._deadline_s:g} s"
        if ended.code is None and (process := self._note.process) is not None:
            state = children.condition(process) or "gone since"
            words += f"; process {process.pid} was killed and is still there ({state})"
        return TelemetryError(
            words, reason="hung", fix=smi_output.exit_fix("hung", program.platform)
        )

    def _rest(self, rest_s: float) -> None:
        """Note that nothing is to be started for so long.

        Errors: ``TelemetryError`` where that cannot be written; then nothing may be started.
        """
        retry_s = self.context.now().mono_s + rest_s
        try:
            self._write(StartNote(platform.boot_id(), retry_s, self._note.process))
        except OSError as error:
            raise TelemetryError(
                f"starts cannot be limited: {self._path}: {error.strerror}",
                reason="unlimited",
                fix=f"let gpud's user write {self._path.parent}",
            ) from error

    def _note_process(self, process: ProcessRef) -> None:
        with contextlib.suppress(OSError):  # the next agent may then not see this process
            self._write(msgspec.structs.replace(self._note, process=process))

    def _read_note(self) -> StartNote:
        """Read the note of this boot; a damaged one is none."""
        boot_id = platform.boot_id()
        with contextlib.suppress(OSError, *wire.UNREADABLE):
            note = msgspec.json.decode(self._path.read_bytes(), type=StartNote)
            if note.boot_id == boot_id:
                return note
        return StartNote(boot_id)

    def _write(self, note: StartNote) -> None:
        self._note = note
        temporary = self._path.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.encode(note) + b"\n")
        temporary.replace(self._path)
