"""Pace of the rounds of probes: how far apart they are, which have the GPU, and what is due. Pure.

When something ran last is a Unix time, so that a pause of the machine counts as time gone by. What
ran at a moment to come, since the clock was set back, is due.

In WSL2 GPU contexts are few: a round makes one for each GPU. Rounds are seldom there, and from half
of the budget on the GPU takes part in fewer and fewer of them, so that the rest lasts. GPU time has
a budget as well, of which large probes take turns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from gpud.core.sample import Backend, Pace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.agent.measure.gpu_contexts import GpuContexts
    from gpud.core.sample import ProbeSpec
    from gpud.core.sections import ScheduleSettings

SMALL_S: Final = 60.0
LARGE_S: Final = 900.0
"""Seconds between two runs of a probe, unless rounds are further apart or the settings say else."""
WSL2_ROUND_S: Final = 600.0
BATTERY_S: Final = {"all": 0.0, "small": 0.0, "seldom": 900.0, "none": math.inf}
"""Seconds between rounds with the GPU on battery, by `[gate] on_battery`: a run wakes it up."""
YOUNG_ROUND_S: Final = 120.0
YOUNG_ROUNDS: Final = 10
"""So many rounds of a boot are nearer, for whoever waits for the first figures."""
WSL2_BUDGET: Final = 250
STRETCH: Final = 2
"""Power of the stretch: an interval is at most 4 times the one before, and the second half of 250
contexts at 10 minutes lasts for 178 days. With a power of 1 it is gone after five days.
"""
LARGE_GPU_RATIO: Final = 0.0005
"""Of all time, for large probes on a GPU: with the small ones less than a thousandth."""
SAVED_S: Final = 7200.0
"""So much time at most may a round make up for."""
LATE_S: Final = 5400.0
"""After this a large probe comes before others: none takes more than two hours where one run of
each is 3.6 s of GPU time together at most.
"""
LIST: Final = ""
"""The list of GPUs, among the names of probes: it is taken as often as a large one runs."""
EARLY_RATIO: Final = 0.25
"""A run is due when less than this of a round is missing: rounds have jitter."""


@dataclass(frozen=True, slots=True)
class PacePlan:
    """What the settings come to on this machine. Units: seconds; ``budget`` in GPU contexts."""

    round_s: float
    young_s: float  # between the first rounds of a boot
    small_s: float  # between two runs of a small probe, if rounds allow
    large_s: float
    budget: int | None  # for the life of this boot; None: any number
    battery_s: float = 0.0  # between rounds with the GPU on battery, at least
    large_gpu_ratio: float | None = None  # of all time, for large probes on a GPU; None: any


def plan(schedule: ScheduleSettings, *, wsl2: bool, on_battery: str) -> PacePlan:
    """Return the plan of a machine: what is set holds, and what is not depends on WSL2."""
    small_s = schedule.small_interval_s or SMALL_S
    large_s = schedule.large_interval_s or LARGE_S
    seldom = wsl2 and not schedule.small_interval_s
    round_s = min(WSL2_ROUND_S if seldom else small_s, large_s)
    budget: int | None = schedule.context_budget or None
    if budget == -1:
        budget = WSL2_BUDGET if wsl2 else None
    young_s = min(YOUNG_ROUND_S, round_s) if seldom else round_s
    gpu_ratio = None if schedule.large_interval_s else LARGE_GPU_RATIO
    battery_s = BATTERY_S[on_battery]
    return PacePlan(round_s, young_s, small_s, large_s, budget, battery_s, gpu_ratio)


def stretch(budget: int | None, used: int) -> float:
    """Return how many times as far apart the GPU's rounds are, after so many contexts."""
    if budget is None:
        return 1.0
    return max((budget / 2 / max(budget - used, 1)) ** STRETCH, 1.0)


def is_due(every_s: float, since_s: float | None, round_s: float) -> bool:
    """Return whether what happens every so often is due; ``since_s``: None for never yet."""
    return since_s is None or since_s >= every_s - EARLY_RATIO * round_s


def elapsed_s(last_s: float | None, now_s: float) -> float | None:
    """Return the seconds since a moment, None for no moment; for ever where it is yet to come.

    Then the clock was set back.
    """
    if last_s is None:
        return None
    return now_s - last_s if last_s <= now_s else math.inf


def _whole(every_s: float, round_s: float, step_s: float) -> float:
    """Return after how many seconds something is due that only every ``step_s`` can be done."""
    return step_s * max(math.ceil((every_s - EARLY_RATIO * round_s) / step_s), 1)


@dataclass(frozen=True, slots=True)
class Beat:
    """How far apart rounds and runs are at the moment. Units: seconds."""

    round_s: float = SMALL_S
    gpu_s: float = SMALL_S  # between rounds with the GPU
    small_s: float = SMALL_S
    large_s: float = LARGE_S

    def run_s(self, spec: ProbeSpec | None) -> float:
        """Return the seconds between two runs of a probe; None for one that is not known."""
        small = spec is not None and spec.pace is Pace.SMALL
        every_s = (self.small_s if small else self.large_s) * (1 if spec is None else spec.every)
        on_cpu = spec is not None and spec.backend is Backend.CPU
        return _whole(every_s, self.round_s, self.round_s if on_cpu else self.gpu_s)


class Turn(NamedTuple):
    """What is due in one round: probes, and whether the list of GPUs is.

    ``resting`` are the GPU's probes that are put off on battery; until ``rest_until_s``, None for
    as long as the battery is used.
    """

    probes: list[ProbeSpec]
    look: bool
    resting: Sequence[ProbeSpec] = ()
    rest_until_s: float | None = None


class Rounds:
    """What is due in each round, by when it ran last and by how many contexts are left.

    Large probes on a GPU rotate: a round takes those that are overdue most, in intervals of their
    own, as long as their GPU time lasts.
    """

    def __init__(self, plan: PacePlan, contexts: GpuContexts) -> None:
        self._plan = plan
        self._contexts = contexts
        self._due_s: dict[str, float] = {}  # the last round it ran in, by probe
        self._gpu_s: float | None = None  # when the GPU last took part
        self._on_battery = False
        self._saved_s = 0.0  # of GPU time, for large probes
        self._begun_s: float | None = None  # the last round
        self._costs_s: dict[str, float] = {}  # of the probes of the last round that have not run

    def interval_s(self) -> float:
        """Return the seconds to the next round."""
        young = self._contexts.rounds < YOUNG_ROUNDS
        return self._plan.young_s if young else self._plan.round_s

    def begin(
        self,
        specs: Sequence[ProbeSpec],
        now_s: float,
        costs_s: Mapping[str, float],
        *,
        on_battery: bool,
    ) -> Turn:
        """Count a round that begins at ``now_s``; return what is due in it.

        A probe stays due until it ``ran``. ``costs_s`` has the GPU seconds of the last run of each
        probe, where they are known.
        """
        interval_s, gpu = self.interval_s(), self._gpu_due(now_s)
        rests = gpu and on_battery and self._rests(now_s)
        self._contexts.round_begun()
        self._on_battery = on_battery
        due = [
            spec
            for spec in specs
            if (gpu or spec.backend is Backend.CPU)
            and is_due(self._every_s(spec), self._since_s(spec.name, now_s), interval_s)
        ]
        resting = [spec for spec in due if rests and spec.backend is Backend.CUDA]
        awake = [spec for spec in due if spec not in resting]
        probes = self._afforded(awake, now_s, costs_s)
        if gpu and not rests:
            self._gpu_s = now_s
        listed = is_due(self._plan.large_s, self._since_s(LIST, now_s), interval_s)
        look = gpu and not rests and listed
        if look:
            self._due_s[LIST] = now_s
        return Turn(probes, look, resting, self._rest_until_s(now_s) if rests else None)

    def _afforded(
        self, due: list[ProbeSpec], now_s: float, costs_s: Mapping[str, float]
    ) -> list[ProbeSpec]:
        """Leave out the large probes on a GPU that have to wait; none has before its first run."""
        ratio = self._plan.large_gpu_ratio
        since_s = 0.0 if self._begun_s is None else now_s - self._begun_s
        self._begun_s = now_s
        self._costs_s = dict.fromkeys((spec.name for spec in due), 0.0)
        if ratio is None:
            return due
        self._saved_s = min(self._saved_s + ratio * max(since_s, 0.0), ratio * SAVED_S)
        large = [s for s in due if s.pace is Pace.LARGE and s.backend is Backend.CUDA]

        def overdue(spec: ProbeSpec) -> tuple[bool, float]:
            since_s = self._since_s(spec.name, now_s)
            if since_s is None:
                return True, math.inf
            return since_s >= LATE_S, since_s / (1 if since_s >= LATE_S else self._every_s(spec))

        waiting, left_s = set(), self._saved_s
        for spec in sorted(large, key=overdue, reverse=True):
            if left_s <= 0 and spec.name in self._due_s:
                waiting.add(spec.name)
            else:
                self._costs_s[spec.name] = costs_s.get(spec.name, 0.0)
                left_s -= self._costs_s[spec.name]
        return [spec for spec in due if spec.name not in waiting]

    def ran(self, spec: ProbeSpec) -> None:
        """Count a run of this round, on the first GPU only: what is skipped stays due, for free."""
        cost_s = self._costs_s.pop(spec.name, None)
        if cost_s is not None and self._begun_s is not None:
            self._due_s[spec.name] = self._begun_s
            self._saved_s -= cost_s

    def beat(self) -> Beat:
        """Return how far apart rounds and runs are now.

        With no context left no more runs come, and the last figures are not fresh for long.
        """
        interval_s, plan = self.interval_s(), self._plan
        factor = 1.0 if self._contexts.spent else stretch(plan.budget, self._contexts.used)
        every_s = factor * plan.round_s if factor > 1 else interval_s
        gpu_s = _whole(every_s, plan.round_s if factor > 1 else interval_s, interval_s)
        if self._on_battery and plan.battery_s < math.inf:
            gpu_s = max(gpu_s, _whole(plan.battery_s, interval_s, interval_s))
        return Beat(interval_s, gpu_s, plan.small_s, plan.large_s)

    def _rests(self, now_s: float) -> bool:
        """Whether the GPU is left alone in a round on battery."""
        every_s, since_s = self._plan.battery_s, elapsed_s(self._gpu_s, now_s)
        return every_s == math.inf or not is_due(every_s, since_s, self.interval_s())

    def _rest_until_s(self, now_s: float) -> float | None:
        """Return when the next round with the GPU begins, of those that follow the one now."""
        if self._gpu_s is None or self._plan.battery_s == math.inf:
            return None
        interval_s, left_s = self.interval_s(), self._gpu_s + self._plan.battery_s - now_s
        return now_s + _whole(left_s, interval_s, interval_s)

    def _gpu_due(self, now_s: float) -> bool:
        """Whether the GPU takes part; with no context left its probes are due, and skipped."""
        used, last_s = self._contexts.used, self._contexts.last_s
        if self._contexts.spent or last_s is None:
            return True
        round_s = self._plan.round_s
        factor = stretch(self._plan.budget, used)
        return factor == 1 or is_due(factor * round_s, elapsed_s(last_s, now_s), round_s)

    def _every_s(self, spec: ProbeSpec) -> float:
        small = spec.pace is Pace.SMALL
        return (self._plan.small_s if small else self._plan.large_s) * spec.every

    def _since_s(self, name: str, now_s: float) -> float | None:
        return elapsed_s(self._due_s.get(name), now_s)
