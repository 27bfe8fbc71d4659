"""The nvidia-smi programs as a fallback: started rarely, one at a time, with a deadline.

A start leaks memory of the host on some versions of WSL, and one that hangs in the driver cannot be
ended. So each start is noted in a file before it happens, and the next agent keeps to it: none
within ``REST_S``, nor while the process of the last one lives (ADR 15).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from gpud.agent import children, platform, processes, programs
from gpud.agent.telemetry import smi_csv, smi_exit, windows
from gpud.core import wire
from gpud.core.errors import TelemetryError
from gpud.core.report import ProcessRef
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpud.agent.children import Ended
    from gpud.agent.telemetry.source import Context
    from gpud.core.advice import Platform
    from gpud.core.sample import Reading
    from gpud.core.telemetry import Answer

REST_S: Final = 300.0
LONGEST_REST_S: Final = 3600.0
"""After a hang, each of which doubles the rest: it ended with a kill of a process in the driver."""
HOLDS_S: Final = 330.0
"""The next answer comes before the last one is too old."""
DEADLINE_S: Final = 10.0
ASK_AGAIN_S: Final = 3600.0
"""How long a field that the last answer lacked is no reason for a start."""


@dataclass(frozen=True, slots=True)
class Program:
    """The program to start, the first of ``places``. ``where`` is None for Windows."""

    places: tuple[str, ...]
    where: Platform | None
    environment: Mapping[str, str]


class Note(msgspec.Struct, frozen=True):
    """The last start, as one agent leaves it to the next. Units: CLOCK_MONOTONIC of one boot."""

    boot_id: str
    retry_mono_s: float
    process: ProcessRef | None = None


class NvidiaSmi:
    """One of the programs as a telemetry source.

    ``program`` returns what to start, None for "not now", and raises ``TelemetryError`` where it
    cannot be started at all.
    """

    def __init__(
        self,
        context: Context,
        name: str,
        program: Callable[[], Program | None],
        *,
        deadline_s: float = DEADLINE_S,
        grace_s: float = children.GRACE_S,
    ) -> None:
        self._context = context
        self._name = name
        self._program = program
        self._deadline_s = deadline_s
        self._grace_s = grace_s
        self._path = context.own / f"{name}.json"
        self._note = self._read_note()
        self._hangs = 0  # in a row
        self._not_started = ""  # the last reason
        self._left_out = frozenset[str]()  # columns that the program does not know
        self._lacking = frozenset[str]()  # fields without a value in the last answer
        self._lacking_until_s = 0.0

    async def collect(self, missing: frozenset[str]) -> Answer | None:
        """Start the program if it may bring a missing field and its rest is over.

        A reason why it cannot be started at all is given once, and again after a start.
        """
        begun = self._context.now()
        lacking = self._lacking if begun.mono_s < self._lacking_until_s else frozenset()
        if not (missing & smi_csv.OFFERED) - lacking or not self._may_start(begun.mono_s):
            return None
        try:
            program = self._program()
            if program is None:
                return None
            self._rest(REST_S)
        except TelemetryError as error:
            if str(error) == self._not_started:
                return None
            self._not_started = str(error)
            return self._context.answer(self._name, begun, error, holds_s=HOLDS_S)
        self._not_started = ""
        try:
            result: tuple[Reading, ...] | TelemetryError = await self._ask(program)
        except TelemetryError as error:
            result = error
        return self._context.answer(self._name, begun, result, holds_s=HOLDS_S)

    async def close(self) -> None:
        """Leave a program that runs to its end; the note names it for the next agent."""

    def _may_start(self, now_mono_s: float) -> bool:
        last = self._note.process
        alive = last is not None and processes.ref(last.pid) == last
        return now_mono_s >= self._note.retry_mono_s and not alive

    async def _ask(self, program: Program) -> tuple[Reading, ...]:
        """Start it and read its answer. ``Errors: TelemetryError``."""
        self._context.spawned()
        try:
            ended = await programs.run(
                program.places,
                smi_csv.arguments(self._left_out),
                deadline_s=self._deadline_s,
                grace_s=self._grace_s,
                started=self._note_process,
                environment=program.environment,
            )
        except OSError as error:
            words = f"{self._name}: {programs.SHELL} cannot be started: {error.strerror}"
            raise TelemetryError(words, reason="spawn_failed") from error
        if ended.code == programs.NOT_THERE and not ended.stdout:
            words = f"{self._name}: no {' nor '.join(program.places)}"
            raise TelemetryError(words, reason="absent")
        self._context.started(self._name)
        if ended.overflowed:
            words = f"{self._name}: it said more than {children.STDOUT_BYTES} bytes, and was ended"
            raise TelemetryError(words, reason="bad_output")
        if ended.killed or ended.code is None:
            raise self._hung(ended, program)
        self._hangs = 0
        return self._read(ended, program.where)

    def _read(self, ended: Ended, where: Platform | None) -> tuple[Reading, ...]:
        refused = smi_csv.refused(windows.text(ended.stdout) + windows.text(ended.stderr))
        if ended.code == 0 and refused is None:
            readings = smi_csv.read(ended.stdout, self._name, self._left_out)
            given = {read.field for read in readings if not isinstance(read.value, Absent)}
            self._lacking = frozenset({read.field for read in readings} - given)
            self._lacking_until_s = self._context.now().mono_s + ASK_AGAIN_S
            return readings
        if refused is not None:
            self._left_out = smi_csv.without(self._left_out, refused)
        code = ended.code or smi_exit.INVALID_ARGUMENT
        raise smi_exit.error(code, ended.stdout, ended.stderr, source=self._name, where=where)

    def _hung(self, ended: Ended, program: Program) -> TelemetryError:
        self._hangs += 1
        with contextlib.suppress(TelemetryError):  # it is noted here, if not for the next agent
            self._rest(min(REST_S * 2.0 ** min(self._hangs - 1, 20), LONGEST_REST_S))
        place = program.places[0]
        words = f"{self._name}: waited {self._deadline_s:g} s in vain for {place} to answer"
        if ended.code is None and (process := self._note.process) is not None:
            state = processes.condition(process) or "gone since"
            words += f"; process {process.pid} was killed and is still there ({state})"
        return TelemetryError(words, reason="hung", fix=smi_exit.fix("hung", program.where))

    def _rest(self, rest_s: float) -> None:
        """Note that nothing is to be started for so long.

        Errors: ``TelemetryError`` where that cannot be written; then nothing may be started.
        """
        retry_s = self._context.now().mono_s + rest_s
        note = Note(platform.boot_id(), retry_s, self._note.process)
        try:
            self._write(note)
        except OSError as error:
            raise TelemetryError(
                f"starts cannot be limited: {self._path}: {error.strerror}",
                reason="unlimited",
                fix=f"let gpud's user write {self._path.parent}",
            ) from error

    def _note_process(self, process: ProcessRef) -> None:
        with contextlib.suppress(OSError):  # the next agent may then not know of this one
            self._write(msgspec.structs.replace(self._note, process=process))

    def _read_note(self) -> Note:
        """Read the note of this boot; one that is damaged or of a later moment is none."""
        boot_id = platform.boot_id()
        with contextlib.suppress(OSError, *wire.UNREADABLE):
            note = msgspec.json.decode(self._path.read_bytes(), type=Note)
            latest_s = self._context.now().mono_s + LONGEST_REST_S
            if note.boot_id == boot_id and note.retry_mono_s <= latest_s:
                return note
        return Note(boot_id, 0.0)

    def _write(self, note: Note) -> None:
        temporary = self._path.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.encode(note) + b"\n")
        temporary.replace(self._path)
        self._note = note
