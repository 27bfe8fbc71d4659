"""Flags of a run: its figures are kept and shown, and no verdict rests on them.

Pure: the conditions before and after in, flags out. A condition that is not known flags nothing.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpud.agent.measure.conditions import SLOWED
from gpud.core.sample import Flag

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from gpud.agent.measure.conditions import Conditions

BUSY_RATIO = 0.05
"""Another process used the GPU for more of the time than this."""
BUSY_MEMORY_BYTES = 128 << 20
"""Memory that appeared or went during a run by more than this was another process's: a desktop's
windows come and go below it, and gpud has given its own back when the second look is taken."""
LOW_RATIO = 0.9
"""Of the usual SM clock; below, the run was in a slow power state."""
USUAL_RUNS = 50
FEWEST_RUNS = 5
"""Fewer runs than this give no usual clock."""
LOW_RUNS = 150
"""So many slow runs in a row are what is usual from then on: a lower power limit stays, and a GPU
whose every run is flagged would never be evaluated again. The detector wants 120, and so reports
it first."""


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

    def usual_throttles(self) -> frozenset[str]:
        """Return the throttle reasons of at least half of the runs, flagged ones included.

        Some laptops report a power cap all day long. It would flag every run, and where everything
        is unusual nothing is: what it does to the clocks shows in the clocks.
        """
        if len(self.throttles) < FEWEST_RUNS:
            return frozenset()
        reasons = frozenset().union(*self.throttles)
        half = len(self.throttles) / 2
        return frozenset(r for r in reasons if sum(r in of for of in self.throttles) >= half)


def flags(  # noqa: PLR0913  # each is one reason for a flag
    before: Conditions,
    after: Conditions,
    past: Past,
    *,
    settled: bool,
    resumed: bool,
    jumped: bool,
) -> tuple[Flag, ...]:
    """Return the flags of a run, in the order of ``Flag``.

    ``settled``: three runs of the warm-up agreed. ``resumed``: the machine came back from a pause
    just before. ``jumped``: the clocks parted while it ran.
    """
    raised = {
        Flag.BUSY: _busy(before, after),
        Flag.LOW: any(_slow(after, past)),
        Flag.RESUME: resumed,
        Flag.COLD: not settled,
        Flag.JUMPED: jumped,
    }
    return tuple(flag for flag in Flag if raised.get(flag))


def _busy(before: Conditions, after: Conditions) -> bool:
    used = before.utilization_gpu_ratio  # that of after is our own
    if used is not None and used > BUSY_RATIO:
        return True
    first, last = before.memory_used_bytes, after.memory_used_bytes
    return first is not None and last is not None and abs(last - first) > BUSY_MEMORY_BYTES


def _slow(after: Conditions, past: Past) -> Iterator[bool]:
    clock = _median(clock for clock, _ in past.pulses)
    state = _median(state for _, state in past.pulses)
    if after.clock_sm_hertz is not None and clock is not None:
        yield after.clock_sm_hertz < LOW_RATIO * clock
    if after.pstate is not None and state is not None:
        yield after.pstate > state
    yield bool((SLOWED & (after.throttle_reasons or frozenset())) - past.usual_throttles())


def _median(values: Iterable[float | None]) -> float | None:
    """Return the median of what is known, None for fewer than ``FEWEST_RUNS`` values."""
    given = [value for value in values if value is not None]
    return statistics.median(given) if len(given) >= FEWEST_RUNS else None
