"""What gpud remembers of each GPU between runs, for the gate before one and the flags after it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from gpud.agent.measure import condition_rules as conditions
from gpud.agent.measure import flags, gate
from gpud.agent.measure.flags import Circumstances, Pulse
from gpud.agent.measure.gate import Asked, Moment
from gpud.core.errors import StoreError
from gpud.core.sample import Flag

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from gpud.agent.measure.condition_rules import Conditions
    from gpud.agent.measure.gate import Answer
    from gpud.core.clock import Instant
    from gpud.core.sample import Condition, Device, ProbeSpec, RunReport, Skip
    from gpud.core.sections import Gate

    Look: TypeAlias = Callable[[str | None], Awaitable[Conditions]]
    Remembrance: TypeAlias = tuple[dict[str, Condition], tuple[Flag, ...]]
    Remembered: TypeAlias = Callable[[str, str], Awaitable[list[Remembrance]]]

_Run: TypeAlias = tuple[str, str | None]
"""A probe, and the UUID of its GPU."""


@dataclass(frozen=True, slots=True)
class Due:
    """A run that wants to start. ``since_s``: since when it waits, by the monotonic clock."""

    spec: ProbeSpec
    device: Device | None
    since_s: float | None = None

    @property
    def uuid(self) -> str | None:
        """The GPU, None for the CPU's."""
        return None if self.device is None else self.device.uuid


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found before a run: what the gate says, on what grounds, and when."""

    answer: Answer
    conditions: Conditions
    at: Instant


@dataclass(frozen=True, slots=True)
class _Memory:
    """The last runs of one probe on one GPU and power source, oldest first."""

    pulses: deque[Pulse] = field(default_factory=lambda: deque(maxlen=flags.USUAL_RUNS))
    throttles: deque[frozenset[str]] = field(default_factory=lambda: deque(maxlen=flags.USUAL_RUNS))

    low: deque[Pulse] = field(default_factory=lambda: deque(maxlen=flags.LOW_RUNS))

    def learn(self, after: Conditions, marks: Collection[Flag]) -> None:
        """Take a good run into account; a marked one for its throttle reasons alone.

        Where nothing but slow runs come for long enough, they are what is usual from now on.
        """
        if after.throttle_reasons is not None:
            self.throttles.append(after.throttle_reasons)
        if not marks:
            self.low.clear()
            self.pulses.append(flags.pulse(after))
        elif set(marks) == {Flag.LOW}:
            self.low.append(flags.pulse(after))
            if len(self.low) == flags.LOW_RUNS:
                self.pulses.clear()
                self.pulses.extend(self.low)
                self.low.clear()


class Gatekeeper:
    """Asks the gate with all it needs to know, and remembers what the next run is compared with.

    ``look`` gives the conditions of the moment, ``remembered`` those stored with earlier runs of
    a probe on a GPU that bear no mark or were slow, with their marks, newest first.
    """

    def __init__(  # noqa: PLR0913  # each is one thing the gate has to know
        self,
        settings: Gate,
        *,
        look: Look,
        remembered: Remembered,
        now: Callable[[], Instant],
        local_min: Callable[[float], int],
        resumed_s: Callable[[], float | None],
    ) -> None:
        self._settings = settings
        self._look = look
        self._remembered = remembered
        self._now = now
        self._local_min = local_min
        self._resumed_s = resumed_s
        self._own_ended_s: dict[str, float] = {}
        self._need_bytes: dict[_Run, int] = {}
        self._put_off_since_s: dict[_Run, float] = {}
        self._memories: dict[_Run, dict[bool | None, _Memory]] = {}

    async def ask(self, due: Due) -> Seen:
        """Look, and say whether the run may start. The moment is that before the look.

        A reading is never older than the moment, so an echo of our own work cannot be taken for
        somebody else's because the look took its time.
        """
        at = self._now()
        seen = await self._look(due.uuid)
        asked = Asked(
            due.spec.backend,
            due.spec.pace,
            at.mono_s if due.since_s is None else due.since_s,
            need_bytes=self._need_bytes.get((due.spec.name, due.uuid), 0),
            own_ended_s=None if due.uuid is None else self._own_ended_s.get(due.uuid),
        )
        moment = Moment(at.mono_s, self._local_min(at.wall_s), self._resumed_s())
        return Seen(gate.decide(self._settings, asked, seen, moment), seen, at)

    def put_off(self, due: Due, reason: Skip, now_s: float) -> bool:
        """Note a run that was left out, and say whether that has gone on for too long.

        Quiet hours and a battery are the person's choice, and end the row. What comes in between
        and is over soon, such as a run by hand, neither begins a row nor ends one.
        """
        run = (due.spec.name, due.uuid)
        if reason in gate.CHOSEN:
            self._put_off_since_s.pop(run, None)
        if reason in gate.PRESSING:
            self._put_off_since_s.setdefault(run, now_s)
        since_s = self._put_off_since_s.get(run)
        return since_s is not None and now_s - since_s >= self._settings.starve_after_s

    async def ended(
        self, due: Due, report: RunReport, before: Seen, ended: Instant, *, jumped: bool
    ) -> tuple[RunReport, tuple[Flag, ...]]:
        """Look again after a run: give its report with the conditions, and its flags."""
        run = (due.spec.name, due.uuid)
        self._put_off_since_s.pop(run, None)
        if due.uuid is not None:
            self._own_ended_s[due.uuid] = ended.mono_s
        after = await self._look(due.uuid)
        memory = await self._memory(run, ac=after.ac)
        resumed_s = self._resumed_s()
        marks = flags.of(
            Circumstances(
                before.conditions,
                after,
                flags.usual(tuple(memory.pulses)),
                flags.usual_throttles(tuple(memory.throttles)),
                settled=report.conditions.get("settled") is not False,
                since_resume_s=None if resumed_s is None else ended.mono_s - resumed_s,
                jumped=jumped,
            ),
            resume_grace_s=self._settings.resume_grace_s,
        )
        if report.failure is None:
            self._need_bytes[run] = report.vram_peak_bytes or 0
            memory.learn(after, marks)
        known = {
            **report.conditions,
            **conditions.named("before", before.conditions),
            **conditions.named("after", after),
        }
        return replace(report, conditions=known), marks

    async def _memory(self, run: _Run, *, ac: bool | None) -> _Memory:
        """Give what is remembered on this power source, from the history the first time."""
        probe, uuid = run
        if run not in self._memories:
            stored: list[Remembrance] = []
            try:
                if uuid is not None:
                    stored = await self._remembered(probe, uuid)
            except StoreError:
                stored = []  # told by the runs themselves; what is usual is learned anew
            self._memories[run] = {}
            for known, marks in reversed(stored):
                after = conditions.stored("after", known)
                self._of_source(run, ac=after.ac).learn(after, marks)
        return self._of_source(run, ac=ac)

    def _of_source(self, run: _Run, *, ac: bool | None) -> _Memory:
        return self._memories[run].setdefault(ac, _Memory())
