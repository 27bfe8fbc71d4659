"""What a run was like: figures of a marked run are kept and shown, and no verdict rests on them.

Pure: the conditions before and after in, flags out. A condition that is not known marks nothing.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpud.agent.measure.condition_rules import SLOWED
from gpud.core.sample import Flag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpud.agent.measure.condition_rules import Conditions

BUSY_RATIO = 0.05
"""Somebody else used the GPU for more of the time than this."""
BUSY_MEMORY_BYTES = 128 << 20
"""Memory that appeared or went during a run by more than this was somebody else's: a desktop's
windows come and go below it, and gpud has given its own back when the second look is taken."""
LOW_RATIO = 0.9
"""Of the usual SM clock; below, the run was in a slow power state."""
USUAL_RUNS = 50
FEWEST_RUNS = 5
"""Before so many runs nobody knows what is usual."""
LOW_RUNS = 150
"""So many slow runs in a row are what is usual from then on: a lower power limit stays, and a GPU
whose every run is marked is judged no more. The detector wants 120, and so tells first."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """How fast a GPU was after a run: what ``low`` compares. None: not known."""

    clock_sm_hertz: float | None
    pstate: float | None


@dataclass(frozen=True, slots=True)
class Circumstances:
    """All that marks a run."""

    before: Conditions
    after: Conditions
    usual: Pulse  # of one GPU, probe and power source
    usual_throttles: frozenset[str]  # likewise
    settled: bool  # three runs of the warm-up agreed
    since_resume_s: float | None  # at its end
    jumped: bool  # the clocks parted while it ran


def of(run: Circumstances, *, resume_grace_s: float) -> tuple[Flag, ...]:
    """Give the flags of a run, in the order in which ``Flag`` lists them."""
    found = set()
    if _busy(run.before, run.after):
        found.add(Flag.BUSY)
    if _low(run):
        found.add(Flag.LOW)
    if run.since_resume_s is not None and run.since_resume_s < resume_grace_s:
        found.add(Flag.RESUME)
    if not run.settled:
        found.add(Flag.COLD)
    if run.jumped:
        found.add(Flag.JUMPED)
    return tuple(flag for flag in Flag if flag in found)


def pulse(after: Conditions) -> Pulse:
    """Take from the conditions after a run what ``usual`` is made of."""
    return Pulse(after.clock_sm_hertz, after.pstate)


def usual(recent: Sequence[Pulse]) -> Pulse:
    """Give the medians of unmarked runs, oldest first, of which the last ``USUAL_RUNS`` count."""
    last = recent[-USUAL_RUNS:]
    clocks = [one.clock_sm_hertz for one in last if one.clock_sm_hertz is not None]
    states = [one.pstate for one in last if one.pstate is not None]
    return Pulse(_median(clocks), _median(states))


def usual_throttles(recent: Sequence[frozenset[str]]) -> frozenset[str]:
    """Give the throttle reasons of at least half of the last ``USUAL_RUNS``, marked ones included.

    Some laptops name a power cap all day long. It would mark every run, and where everything is
    unusual nothing is: what it does to the clocks is seen by the clocks.
    """
    last = recent[-USUAL_RUNS:]
    if len(last) < FEWEST_RUNS:
        return frozenset()
    found = {word for reasons in last for word in reasons}
    return frozenset(w for w in found if 2 * sum(w in reasons for reasons in last) >= len(last))


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if len(values) >= FEWEST_RUNS else None


def _busy(before: Conditions, after: Conditions) -> bool:
    used = before.utilization_gpu_ratio  # that of after is our own
    if used is not None and used > BUSY_RATIO:
        return True
    first, last = before.memory_used_bytes, after.memory_used_bytes
    return first is not None and last is not None and abs(last - first) > BUSY_MEMORY_BYTES


def _low(run: Circumstances) -> bool:
    return any(_signs_of_low(run.after, run.usual, run.usual_throttles))


def _signs_of_low(after: Conditions, known: Pulse, throttles: frozenset[str]) -> Iterator[bool]:
    if after.clock_sm_hertz is not None and known.clock_sm_hertz is not None:
        yield after.clock_sm_hertz < LOW_RATIO * known.clock_sm_hertz
    if after.pstate is not None and known.pstate is not None:
        yield after.pstate > known.pstate
    yield bool((SLOWED & (after.throttle_reasons or frozenset())) - throttles)
