"""The gate before each run and the flags after it, with what is remembered of each GPU between."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from gpud.agent.history import queries
from gpud.agent.measure import conditions, gate
from gpud.agent.measure.clocks import local_min
from gpud.agent.measure.flags import Past, flags
from gpud.agent.measure.gate import Asked, Moment
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpud.agent.history.queries import Similar
    from gpud.agent.history.store import History
    from gpud.agent.measure.conditions import Conditions, Observer
    from gpud.agent.measure.gate import Answer
    from gpud.agent.state.board import Board
    from gpud.core.clock import Instant
    from gpud.core.sample import Device, Flag, ProbeSpec, RunReport, Skip
    from gpud.core.sections import GateSettings

_Run: TypeAlias = tuple[str, str | None]
"""A probe, and the UUID of its GPU."""


@dataclass(frozen=True, slots=True)
class Due:
    """A run that is to start. ``since_s``: since when it waits, by the monotonic clock."""

    spec: ProbeSpec
    device: Device | None
    since_s: float | None = None

    @property
    def uuid(self) -> str | None:
        """The GPU, None for the CPU's."""
        return None if self.device is None else self.device.uuid

    @property
    def run(self) -> _Run:
        """Probe and GPU."""
        return self.spec.name, self.uuid


@dataclass(frozen=True, slots=True)
class Admission:
    """The gate's answer before a run, the conditions it rests on, and when they were read."""

    answer: Answer
    conditions: Conditions
    at: Instant


class Gatekeeper:
    """Asks the gate, and remembers what the next run is compared with."""

    def __init__(
        self,
        settings: GateSettings,
        observer: Observer,
        history: History,
        board: Board,
        now: Callable[[], Instant],
    ) -> None:
        self._settings = settings
        self._observer = observer
        self._history = history
        self._board = board
        self._now = now
        self._own_ended_s: dict[str, float] = {}
        self._need_bytes: dict[_Run, int] = {}
        self._put_off_since_s: dict[_Run, float] = {}
        self._past: dict[_Run, dict[bool | None, Past]] = {}  # by power source

    async def ask(self, due: Due) -> Admission:
        """Look, and decide whether the run may start. The moment is that before the look.

        A reading is never older than the moment, so an echo of our own work cannot be taken for
        another process's because the look took its time.
        """
        at = self._now()
        before = await self._observer.look(due.uuid)
        asked = Asked(
            due.spec.backend,
            due.spec.pace,
            at.mono_s if due.since_s is None else due.since_s,
            need_bytes=self._need_bytes.get(due.run, 0),
            own_ended_s=None if due.uuid is None else self._own_ended_s.get(due.uuid),
        )
        moment = Moment(at.mono_s, local_min(at.wall_s), self._board.read().machine.resumed_mono_s)
        return Admission(gate.decide(self._settings, asked, before, moment), before, at)

    def put_off(self, due: Due, reason: Skip, now_s: float) -> bool:
        """Note a run that was skipped, and return whether that has gone on for too long.

        Quiet hours and a battery are the person's choice, and end the row. What comes in between
        and is over soon, such as a run by hand, neither begins a row nor ends it.
        """
        if reason in gate.CHOSEN:
            self._put_off_since_s.pop(due.run, None)
        if reason in gate.PRESSING:
            self._put_off_since_s.setdefault(due.run, now_s)
        since_s = self._put_off_since_s.get(due.run)
        return since_s is not None and now_s - since_s >= self._settings.starve_after_s

    async def ended(
        self, due: Due, report: RunReport, before: Conditions, at: Instant, *, jumped: bool
    ) -> tuple[RunReport, tuple[Flag, ...]]:
        """Look again after a run: return its report with the conditions, and its flags."""
        self._put_off_since_s.pop(due.run, None)
        if due.uuid is not None:
            self._own_ended_s[due.uuid] = at.mono_s
        after = await self._observer.look(due.uuid)
        past = await self._past_of(due.run, ac=after.ac)
        resumed_s = self._board.read().machine.resumed_mono_s
        grace_s = self._settings.resume_grace_s
        raised = flags(
            before,
            after,
            past,
            settled=report.conditions.get("settled") is not False,
            resumed=resumed_s is not None and at.mono_s - resumed_s < grace_s,
            jumped=jumped,
        )
        if report.failure is None:
            self._need_bytes[due.run] = report.vram_peak_bytes or 0
            past.learn(after, raised)
        known = {
            **report.conditions,
            **conditions.named("before", before),
            **conditions.named("after", after),
        }
        return replace(report, conditions=known), raised

    async def _past_of(self, run: _Run, *, ac: bool | None) -> Past:
        """Return the last runs on this power source, from the history the first time."""
        probe, uuid = run
        if run not in self._past:
            rows: list[Similar] = []
            if uuid is not None:
                try:
                    rows = await self._history.read(queries.similar_runs, probe, uuid)
                except StoreError:
                    rows = []  # reported by the runs themselves; what is usual is learned anew
            self._past[run] = {}
            for row, marks in reversed(rows):
                after = conditions.stored("after", row)
                self._past[run].setdefault(after.ac, Past()).learn(after, marks)
        return self._past[run].setdefault(ac, Past())
