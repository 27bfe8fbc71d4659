"""The gate before each run, the flags after it, and what is remembered of each GPU in between.

The person at the machine comes first. A reading that is absent holds nothing back and flags
nothing: WSL2 withholds several, and a gate that stays shut would measure nothing. A flagged run is
stored and shown, and no verdict rests on it.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from gpud.agent.history import queries
from gpud.agent.measure import conditions
from gpud.agent.measure.clocks import local_min
from gpud.agent.measure.conditions import HOT, SLOWED
from gpud.core import clock
from gpud.core.errors import StoreError
from gpud.core.sample import Backend, Flag, Pace, Skip, to_leave_free

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gpud.agent.history.queries import Similar
    from gpud.agent.history.store import History
    from gpud.agent.measure.conditions import Conditions, Observer
    from gpud.agent.state.board import Board
    from gpud.core.clock import Instant
    from gpud.core.sample import Device, ProbeSpec, RunReport
    from gpud.core.sections import GateSettings

ECHO_S = 1.2
"""So long after our own work a GPU still looks busy with it: NVML's utilisation looks back over
up to a second, and a reading takes its time."""

BUSY_RATIO = 0.05
"""Another process used the GPU for more of the time than this."""
BUSY_MEMORY_BYTES = 128 << 20
"""Memory that appeared or went during a run by more than this was another process's: a desktop's
windows come and go below it, and gpud has given its own back when the second look is taken, all but
a context that was opened in this run."""
LOW_RATIO = 0.9
"""Of the usual SM clock; below, the run was in a slow power state."""
USUAL_RUNS = 50
FEWEST_RUNS = 5
"""Fewer runs than this give no usual clock."""
LOW_RUNS = 150
"""So many slow runs in a row are what is usual from then on: a lower power limit stays, and a GPU
whose every run is flagged would never be evaluated again. The detector wants 120, and so reports
it first. At a round every ten minutes that is 25 hours of use."""

RESUMED_S: Final = 120.0
"""So long after a long pause runs are marked as those of a resumed machine."""
STARVED_S: Final = 7200.0
STARVED_ROUNDS: Final = 3
"""Put off for so long, and in so many rounds, a probe is reported."""

PRESSING = frozenset({Skip.GPU_HOT, Skip.VRAM_SHORT, Skip.GPU_BUSY, Skip.PEER_BUSY})
"""Reasons that nobody chose: a probe they keep away for hours is reported."""
CHOSEN = frozenset({Skip.QUIET_HOURS, Skip.ON_BATTERY})
"""Reasons that the person chose: what was put off before them is forgotten."""

_RunKey: TypeAlias = tuple[str, str | None]
"""A probe, and the UUID of its GPU."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run that is due, and the moment. Units: bytes, and seconds of CLOCK_MONOTONIC."""

    backend: Backend
    pace: Pace
    now_s: float
    local_min: int  # minute of the local day
    need_bytes: int = 0  # of GPU memory, as its last run took it
    memory_bytes: int = 0  # of the GPU in all; 0: it is not known
    own_ended_s: float | None = None  # when gpud itself last worked on this GPU


@dataclass(frozen=True, slots=True)
class Wait:
    """The GPU may only look busy, with what gpud itself has just done there.

    Decide again at ``until_s``; nothing else is to be started before, or the wait begins anew.
    """

    until_s: float


def decide(gate: GateSettings, run: Candidate, before: Conditions) -> Wait | Skip | None:
    """Return None for a run that may start, the reason to skip it, or a short wait.

    The small CPU probe costs nobody anything and always goes. However often a run was skipped, the
    reason for it holds: a game is not disturbed to please a graph.
    """
    large = run.pace is Pace.LARGE
    if run.backend is Backend.CPU and not large:
        return None
    if clock.quiet(gate.quiet_hours, run.local_min):
        return Skip.QUIET_HOURS
    if before.ac is False and (gate.on_battery == "none" or (large and gate.on_battery != "all")):
        return Skip.ON_BATTERY
    return _of_gpu(gate, run, before) if run.backend is Backend.CUDA else None


def _of_gpu(gate: GateSettings, run: Candidate, before: Conditions) -> Wait | Skip | None:
    """Return what speaks against work on the GPU, the worst first."""
    hot = before.temperature_celsius is not None and before.temperature_celsius > gate.hot_celsius
    if hot or HOT & (before.throttle_reasons or frozenset()):
        return Skip.GPU_HOT
    free, used = before.memory_free_bytes, before.utilization_gpu_ratio
    least_bytes, stays_bytes = to_leave_free(gate.vram_free_min_bytes, run.memory_bytes)
    if free is not None and free < max(least_bytes, run.need_bytes + stays_bytes):
        return Skip.VRAM_SHORT
    if used is None:
        return None
    echo_over_s = -math.inf if run.own_ended_s is None else run.own_ended_s + ECHO_S
    if used > min(gate.busy_ratio, BUSY_RATIO) and run.now_s < echo_over_s:
        return Wait(echo_over_s)
    return Skip.GPU_BUSY if used > gate.busy_ratio else None


@dataclass(frozen=True, slots=True)
class Past:
    """The last runs of one probe on one GPU and power source, oldest first.

    Shapes: ``pulses`` and ``low`` hold (SM clock in hertz, power state) after good and slow runs.
    """

    pulses: deque[tuple[float | None, float | None]] = field(
        default_factory=lambda: deque(maxlen=USUAL_RUNS)
    )
    throttles: deque[frozenset[str]] = field(default_factory=lambda: deque(maxlen=USUAL_RUNS))
    low: deque[tuple[float | None, float | None]] = field(
        default_factory=lambda: deque(maxlen=LOW_RUNS)
    )

    def learn(self, after: Conditions, flags: Collection[Flag]) -> None:
        """Add a good run; of a flagged one only its throttle reasons count.

        Where nothing but slow runs come for long enough, they are what is usual from then on.
        """
        if after.throttle_reasons is not None:
            self.throttles.append(after.throttle_reasons)
        pulse = (after.clock_sm_hertz, after.pstate)
        if not flags:
            self.low.clear()
            self.pulses.append(pulse)
        elif set(flags) == {Flag.LOW}:
            self.low.append(pulse)
            if len(self.low) == LOW_RUNS:
                self.pulses.clear()
                self.pulses.extend(self.low)
                self.low.clear()

    def slow(self, after: Conditions) -> bool:
        """Return whether the GPU was in a slower power state than usual.

        Throttle reasons of at least half of the runs, flagged ones included, are usual: some
        laptops report a power cap all day long, and what it does to the clocks shows in the clocks.
        """
        clock = _median(clock for clock, _ in self.pulses)
        state = _median(state for _, state in self.pulses)
        now_hertz, now_state = after.clock_sm_hertz, after.pstate
        if now_hertz is not None and clock is not None and now_hertz < LOW_RATIO * clock:
            return True
        if now_state is not None and state is not None and now_state > state:
            return True
        return bool((SLOWED & (after.throttle_reasons or frozenset())) - self._usual_throttles())

    def _usual_throttles(self) -> frozenset[str]:
        if len(self.throttles) < FEWEST_RUNS:
            return frozenset()
        half = len(self.throttles) / 2
        return frozenset(r for r in SLOWED if sum(r in of for of in self.throttles) >= half)


def _median(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are not None, None for fewer than ``FEWEST_RUNS``."""
    present = [value for value in values if value is not None]
    return statistics.median(present) if len(present) >= FEWEST_RUNS else None


def _appeared(before: Conditions, after: Conditions) -> float:
    """Return the memory that has appeared in between; 0 where it is not known."""
    first, last = before.memory_used_bytes, after.memory_used_bytes
    return 0.0 if first is None or last is None else last - first


def _busy(before: Conditions, after: Conditions, own_bytes: float) -> bool:
    used = before.utilization_gpu_ratio  # the reading after the run shows our own use
    if used is not None and used > BUSY_RATIO:
        return True
    return abs(_appeared(before, after) - own_bytes) > BUSY_MEMORY_BYTES


@dataclass(frozen=True, slots=True)
class Due:
    """A run that is to start: a probe, its GPU if it has one, and the second one of a copy."""

    spec: ProbeSpec
    device: Device | None
    peer: Device | None = None

    @property
    def uuid(self) -> str | None:
        """The GPU, None for the CPU's."""
        return None if self.device is None else self.device.uuid

    @property
    def key(self) -> _RunKey:
        """Probe and GPU."""
        return self.spec.name, self.uuid


@dataclass(frozen=True, slots=True)
class Admission:
    """The gate's answer before a run, the conditions it rests on, and when they were read."""

    answer: Wait | Skip | None
    conditions: Conditions
    at: Instant
    peer: Conditions | None = None  # of the second GPU


class Gate:
    """Decides on runs by what is read and remembered of each GPU, and flags those that ended."""

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
        self._need_bytes: dict[_RunKey, int] = {}
        self._context_bytes: dict[str, float] = {}  # what appeared with the last one, by GPU
        self._put_off_since_s: dict[_RunKey, float] = {}
        self._past: dict[_RunKey, dict[bool | None, Past]] = {}  # by power source

    async def admit(self, due: Due) -> Admission:
        """Read the conditions, and decide; a second GPU must allow the run as well.

        The moment is that before the reading. A reading is never older than the moment, so an echo
        of our own work cannot be taken for another process's because the reading took its time.
        """
        at = self._now()
        before = await self._observer.look(due.uuid)
        answer = decide(self._settings, self._candidate(due, due.device, at), before)
        if answer is not None or due.peer is None:
            return Admission(answer, before, at)
        peer = await self._observer.look(due.peer.uuid)
        answer = decide(self._settings, self._candidate(due, due.peer, at), peer)
        answer = Skip.PEER_BUSY if answer in PRESSING else answer
        return Admission(answer, before, at, peer)

    def _candidate(self, due: Due, device: Device | None, at: Instant) -> Candidate:
        return Candidate(
            due.spec.backend,
            due.spec.pace,
            at.mono_s,
            local_min(at.wall_s),
            need_bytes=self._need_bytes.get(due.key, 0),
            memory_bytes=0 if device is None else device.memory_total_bytes,
            own_ended_s=None if device is None else self._own_ended_s.get(device.uuid),
        )

    def put_off(self, due: Due, reason: Skip, now_s: float) -> bool:
        """Note a run that was skipped, and return whether that has gone on for too long.

        Quiet hours and a battery are the person's choice: they reset the time since when it is put
        off. What is over soon, such as a run by hand, neither starts nor resets it.
        """
        if reason in CHOSEN:
            self._put_off_since_s.pop(due.key, None)
        if reason in PRESSING:
            self._put_off_since_s.setdefault(due.key, now_s)
        since_s = self._put_off_since_s.get(due.key)
        patience_s = max(STARVED_S, STARVED_ROUNDS * self._board.read().pace.beat.gpu_s)
        return since_s is not None and now_s - since_s >= patience_s

    def worked(self, due: Due, at: Instant) -> None:
        """Note that a child of ours has had the GPU until this moment."""
        for device in (due.device, due.peer):
            if device is not None:
                self._own_ended_s[device.uuid] = at.mono_s

    async def flagged(
        self, due: Due, report: RunReport, admission: Admission, at: Instant, *, jumped: bool
    ) -> tuple[RunReport, tuple[Flag, ...]]:
        """Read the conditions after a run: return its report with both readings, and its flags.

        ``jumped``: the clocks parted while it ran.
        """
        self._put_off_since_s.pop(due.key, None)
        self.worked(due, at)
        before, after = admission.conditions, await self._observer.look(due.uuid)
        busy = _busy(before, after, self._own_bytes(due, report, before, after))
        if due.peer is not None and admission.peer is not None:  # its context is gone by now
            peer = await self._observer.look(due.peer.uuid)
            busy = busy or _busy(admission.peer, peer, 0.0)
        past = await self._past_of(due.key, ac=after.ac)
        resumed_s = self._board.read().machine.resumed_mono_s
        raised = {
            Flag.BUSY: busy,
            Flag.LOW: past.slow(after),
            Flag.RESUME: resumed_s is not None and at.mono_s - resumed_s < RESUMED_S,
            Flag.COLD: report.conditions.get("settled") is False,  # the warm-up's runs disagreed
            Flag.JUMPED: jumped,
        }
        flags = tuple(flag for flag in Flag if raised.get(flag))
        if report.failure is None:
            self._need_bytes[due.key] = report.vram_peak_bytes or 0
            past.learn(after, flags)
        around = {**conditions.named("before", before), **conditions.named("after", after)}
        return replace(report, conditions={**report.conditions, **around}), flags

    def _own_bytes(
        self, due: Due, report: RunReport, before: Conditions, after: Conditions
    ) -> float:
        """Return what a context of ours takes that was opened in this run: what the last one took.

        Nobody says how much that is, so the first one is not questioned.
        """
        if due.uuid is None or report.conditions.get("context_s") is None:
            return 0.0
        appeared = _appeared(before, after)
        last_bytes = self._context_bytes.get(due.uuid, appeared)
        self._context_bytes[due.uuid] = appeared
        return last_bytes

    async def _past_of(self, run: _RunKey, *, ac: bool | None) -> Past:
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
            for row, flags in reversed(rows):
                after = conditions.stored("after", row)
                self._past[run].setdefault(after.ac, Past()).learn(after, flags)
        return self._past[run].setdefault(ac, Past())
