"""When a program may be started again, and what the last start brought: kept beyond a restart.

CLOCK_MONOTONIC and the boot's id: a wall clock that is set back grants no start and costs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gpud.agent import platform, processes
from gpud.core import clock, wire
from gpud.core.clock import Instant
from gpud.core.errors import TelemetryError
from gpud.core.report import ProcessRef
from gpud.core.sample import plain
from gpud.core.telemetry import LEVELS, Answer, impossible

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


REST_S: Final = 300.0


class _Said(msgspec.Struct, frozen=True):
    """A good ``Answer``."""

    taken_s: float
    taken_mono_s: float
    duration_s: float
    holds_s: float
    readings: tuple[wire.Read, ...]


class _Note(msgspec.Struct, frozen=True):
    """The last start, as the agent leaves it to the next one."""

    boot_id: str
    started_mono_s: float
    process: ProcessRef | None = None
    said: _Said | None = None
    left_out: frozenset[str] = frozenset()


class Starts:
    """The starts of one source, noted in ``path`` before they happen."""

    def __init__(self, source: str, path: Path, now: Callable[[], Instant]) -> None:
        self._source = source
        self._path = path
        self._now = now
        self._retry_mono_s = 0.0
        self._watch: processes.Watch | None = None
        before = self._read()
        self._note = before or _Note(platform.boot_id(), 0.0)
        self._left = None if before is None else before.process
        if before is not None:
            self._retry_mono_s = before.started_mono_s + REST_S

    def may(self) -> bool:
        """Say whether the rest is over and the last one gone."""
        left, self._left = self._left, None  # of an earlier agent; a loop runs by now, to watch it
        if left is not None and processes.ref(left.pid) == left:
            self.watch(left)
        return self._watch is None and self._now().mono_s >= self._retry_mono_s

    def begin(self) -> None:
        """Note a start before it happens: an agent that dies in the middle leaves word of it.

        Errors: ``TelemetryError`` where that cannot be written; then nothing may be started.
        """
        self.rest(REST_S)
        self._note = _Note(self._note.boot_id, self._now().mono_s, left_out=self._note.left_out)
        try:
            self._write()
        except OSError as error:
            raise TelemetryError(
                f"starts cannot be limited: {self._path}: {error.strerror}",
                reason="unlimited",
                fix=f"let gpud's user write {self._path.parent}",
            ) from error

    def began(self, process: ProcessRef) -> None:
        """Note who it is. ``Errors: OSError``."""
        self._note = msgspec.structs.replace(self._note, process=process)
        self._write()

    def brought(self, answer: Answer) -> None:
        """Keep a good answer: an agent that is restarted shows it on. ``Errors: OSError``."""
        said = _Said(
            answer.taken_s,
            answer.taken_mono_s,
            answer.duration_s or 0.0,
            answer.holds_s,
            tuple(wire.Read(**plain(reading)) for reading in answer.readings),
        )
        self._note = msgspec.structs.replace(self._note, said=said)
        self._write()

    def kept(self) -> Answer | None:
        """Give what an earlier agent was told, while it holds."""
        said, now = self._note.said, self._now()
        if said is None:
            return None
        asleep_s = clock.parted_s(Instant(said.taken_s, said.taken_mono_s), now)
        answer = Answer(
            self._source,
            LEVELS.index(self._source),
            said.taken_s,
            said.taken_mono_s - (asleep_s if asleep_s >= clock.ASLEEP_FROM_S else 0.0),
            tuple(read.reading() for read in said.readings),
            holds_s=said.holds_s,
            duration_s=said.duration_s,
        )
        if said.taken_mono_s > now.mono_s or impossible(answer.readings, self._source):
            return None
        return answer if answer.holds(now.mono_s) else None

    @property
    def left_out(self) -> frozenset[str]:
        """What the program is not to be asked for, because it does not know the name."""
        return self._note.left_out

    def leave_out(self, names: frozenset[str]) -> None:
        """Keep that for the next start, also one of the next agent. ``Errors: OSError``."""
        self._note = msgspec.structs.replace(self._note, left_out=names)
        self._write()

    def rest(self, rest_s: float) -> None:
        """Let nothing start for so long from now on."""
        self._retry_mono_s = self._now().mono_s + rest_s

    def watch(self, process: ProcessRef) -> None:
        """Let nothing start before this process is gone."""
        self.close()
        self._watch = processes.Watch(process, self._gone)

    def close(self) -> None:
        """Watch nobody any more."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _gone(self) -> None:
        self._watch = None

    def _read(self) -> _Note | None:
        """Give the last start of this boot; one of a later moment than now is none."""
        try:
            note = msgspec.json.decode(self._path.read_bytes(), type=_Note)
        except (OSError, *wire.UNREADABLE):
            return None
        past = 0 <= note.started_mono_s <= self._now().mono_s
        return note if past and note.boot_id == platform.boot_id() else None

    def _write(self) -> None:
        temporary = self._path.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.encode(self._note) + b"\n")
        temporary.replace(self._path)
