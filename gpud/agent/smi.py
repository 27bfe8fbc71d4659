"""How either nvidia-smi is asked: seldom, one at a time, with a deadline.

A start of nvidia-smi leaks memory of the host on some versions of WSL, and one that hangs in the
driver cannot be ended. So there is one start in ``REST_S`` at the most, also across restarts of the
agent, none at all for what it has been found not to know, and none while an earlier one lives.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from gpud.agent import children, processes, programs
from gpud.agent.starts import REST_S, Starts
from gpud.core import smi, smi_exit, telemetry, windows
from gpud.core.errors import TelemetryError
from gpud.core.fields import WORTH_A_START
from gpud.core.sample import Absent
from gpud.core.telemetry import LEVELS, Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpud.agent.children import Ended
    from gpud.agent.telemetry.source import Context
    from gpud.core.advice import Platform
    from gpud.core.clock import Instant
    from gpud.core.report import ProcessRef
    from gpud.core.sample import Reading

LONGEST_REST_S: Final = 3600.0
"""After a hang, each of which doubles the rest: its end was a kill of a process in the driver."""
HOLDS_S: Final = 330.0
"""The next answer comes before the last one is too old."""
DEADLINE_S: Final = 10.0
FAILED_AGAIN_S: Final = 3600.0
"""A field that failed is not wanted again before; one that is not offered, never by this driver."""


@dataclass(frozen=True, slots=True)
class Program:
    """What to start: the first of ``paths`` that is there. ``where`` is None for Windows."""

    paths: tuple[str, ...]
    where: Platform | None
    environment: Mapping[str, str]


class Smi:
    """One of the programs as a telemetry source.

    ``program`` says what to start, None for "not now", and raises ``TelemetryError`` where it
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
        self._starts = Starts(name, context.own / f"{name}.json", context.now)
        self._kept = self._starts.kept()
        self._path: str | None = None  # where it was found
        self._not_given: dict[str, float] = {}  # field: when to ask again, monotonic
        self._drivers: dict[str, str] = {}  # by the source that told
        self._hangs = 0  # in a row
        self._said: str | None = None  # why nothing was started
        self._asking = False

    async def collect(self, wanted: frozenset[str]) -> Answer | None:
        """Start the program where it is worth it and may be, and give its answer.

        None while the last answer says it all, and where the program could add nothing. What an
        earlier agent was told comes first while it holds. That a program is not there, or cannot be
        started, is said once.
        """
        kept, self._kept = self._kept, None
        if kept is not None:
            self._learn(kept.readings)
            return kept
        if self._asking or not self._starts.may() or not self._worth(wanted):
            return None
        self._asking = True
        begun = self._context.now()
        try:
            return await self._asked(begun)
        except TelemetryError as error:
            if self._said == str(error):
                return None
            self._said = str(error)
            return self._failed(begun, error)
        finally:
            self._asking = False

    async def close(self) -> None:
        """Watch nobody any more; a program that runs ends by itself or is noted for the next."""
        self._starts.close()

    async def _asked(self, begun: Instant) -> Answer | None:
        program = self._program()
        if program is None:
            return None
        where, left_out = program.where, self._starts.left_out
        path = self._path or await self._found(program)
        self._starts.begin()
        self._context.started(self._name)
        ended, process = await self._run([path, *smi.arguments(left_out)], program)
        self._said = None
        try:
            readings = self._read(ended, process, where, left_out)
        except TelemetryError as error:
            return self._failed(begun, error)
        self._learn(readings)
        answer = Answer(
            self._name,
            LEVELS.index(self._name),
            begun.wall_s,
            begun.mono_s,
            readings,
            holds_s=HOLDS_S,
            duration_s=self._context.now().mono_s - begun.mono_s,
        )
        with contextlib.suppress(OSError):  # a restart then shows nothing for a while
            self._starts.brought(answer)
        return answer

    async def _found(self, program: Program) -> str:
        """Look where it is. ``Errors: TelemetryError``, and then it is not looked for at once."""
        self._context.spawned()
        begun: list[ProcessRef] = []
        try:
            found, ended = await programs.find(
                program.paths,
                deadline_s=self._deadline_s,
                grace_s=self._grace_s,
                started=partial(self._began, begun),
            )
        except OSError as error:
            raise self._unstarted(error) from error
        if found is None:
            self._starts.rest(REST_S)
            if ended.killed:
                raise self._hung(ended, begun, program.where, f"{program.paths[0]} to open")
            raise TelemetryError(f"{self._name}: no {' nor '.join(program.paths)}", reason="absent")
        self._path = found
        return found

    async def _run(self, command: list[str], program: Program) -> tuple[Ended, list[ProcessRef]]:
        begun: list[ProcessRef] = []
        try:
            ended = await programs.run(
                command,
                deadline_s=self._deadline_s,
                grace_s=self._grace_s,
                started=partial(self._began, begun),
                environment=program.environment,
            )
        except OSError as error:
            raise self._unstarted(error) from error
        return ended, begun

    def _began(self, begun: list[ProcessRef], process: ProcessRef) -> None:
        begun.append(process)
        with contextlib.suppress(OSError):  # the next agent may then not know of this one
            self._starts.began(process)

    def _read(
        self,
        ended: Ended,
        begun: list[ProcessRef],
        where: Platform | None,
        left_out: frozenset[str],
    ) -> tuple[Reading, ...]:
        """Make of an end what it means. ``Errors: TelemetryError``."""
        if ended.overflowed:
            if ended.code is None:
                self._starts.watch(begun[0])
            words = f"{self._name}: it said more than {children.KEPT_STDOUT} bytes, and was ended"
            raise TelemetryError(words, reason="bad_output")
        if ended.killed or ended.code is None:
            raise self._hung(ended, begun, where, f"{self._path} to answer")
        self._hangs = 0
        refused = smi.refused(windows.text(ended.stdout) + windows.text(ended.stderr))
        if ended.code == 0 and refused is None:
            return smi.read(ended.stdout, self._name, left_out)
        if refused is not None:
            with contextlib.suppress(OSError):  # it is then refused once more after a restart
                self._starts.leave_out(smi.without(left_out, refused))
        if ended.code in {programs.CANNOT_EXECUTE, programs.NOT_THERE}:
            self._path = None
        code = ended.code or smi_exit.INVALID_ARGUMENT
        raise smi_exit.ended(code, ended.stdout, ended.stderr, source=self._name, where=where)

    def _hung(
        self, ended: Ended, begun: list[ProcessRef], where: Platform | None, what: str
    ) -> TelemetryError:
        """Let it rest for longer each time, and nobody in while the process stays."""
        self._hangs += 1
        self._starts.rest(min(REST_S * 2.0 ** min(self._hangs - 1, 20), LONGEST_REST_S))
        words = f"{self._name}: waited {self._deadline_s:g} s in vain for {what}"
        if ended.code is None and begun:
            self._starts.watch(begun[0])
            state = processes.condition(begun[0]) or "gone since"
            words += f"; process {ended.pid} was killed and is still there ({state})"
        return TelemetryError(words, reason="hung", fix=smi_exit.fix("hung", where))

    def _unstarted(self, error: OSError) -> TelemetryError:
        self._starts.rest(REST_S)
        return TelemetryError(
            f"{self._name}: {programs.SHELL} cannot be started: {error.strerror}",
            reason="spawn_failed",
        )

    def _failed(self, begun: Instant, error: TelemetryError) -> Answer:
        return Answer(
            self._name,
            LEVELS.index(self._name),
            begun.wall_s,
            begun.mono_s,
            holds_s=HOLDS_S,
            duration_s=self._context.now().mono_s - begun.mono_s,
            reason=error.reason,
            detail=str(error),
            fix=error.fix,
        )

    def _worth(self, wanted: frozenset[str]) -> bool:
        """Say whether it may know what nobody else does, or its last answer is what is shown."""
        self._hear()
        now_mono_s = self._context.now().mono_s
        known = {name for name, until_s in self._not_given.items() if now_mono_s < until_s}
        if (wanted & smi.OFFERED) - known:
            return True
        said = self._context.read().telemetry
        return self._name in said.answers and any(
            reading.source == self._name
            and reading.field in WORTH_A_START
            and not isinstance(reading.value, Absent)
            for reading in telemetry.current(said, now_mono_s)
        )

    def _learn(self, readings: tuple[Reading, ...]) -> None:
        """Remember what no GPU gave: it is no reason for another start."""
        now_mono_s = self._context.now().mono_s
        lasting = {Absent.UNSUPPORTED, Absent.NOT_PERMITTED}
        why: dict[str, bool] = {}
        given = set()
        for reading in readings:
            if isinstance(reading.value, Absent):
                why[reading.field] = why.get(reading.field, True) and reading.value in lasting
            else:
                given.add(reading.field)
        self._not_given = {
            name: math.inf if for_good else now_mono_s + FAILED_AGAIN_S
            for name, for_good in why.items()
            if name not in given
        }

    def _hear(self) -> None:
        """Forget what was learned of a driver when any source tells of another one."""
        for answer in self._context.read().telemetry.answers.values():
            for reading in answer.readings:
                if reading.field != "driver_version" or isinstance(reading.value, Absent):
                    continue
                version = str(reading.value)
                if self._drivers.setdefault(answer.source, version) != version:
                    self._drivers[answer.source] = version
                    self._not_given = {}
                    with contextlib.suppress(OSError):
                        self._starts.leave_out(frozenset())
