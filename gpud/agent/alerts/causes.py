"""The likely causes of a slowdown, in order: what differs between the runs before and after it.

A card that was always hot is no cause, and what is not known on one side is not compared. Pure.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

from gpud.agent.measure.conditions import NONE, SLOWED
from gpud.agent.regression import causes as kinds
from gpud.core.alerts import Cause
from gpud.core.stats import median, quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpud.core.sample import Condition

    Runs: TypeAlias = Sequence[Mapping[str, Condition]]

FEWEST: Final = 5
"""Runs on either side: the median of fewer means nothing."""
LOWER: Final = 0.95
"""Clocks and limits wander by a percent or two with heat; a laptop's limit by a watt or so."""
RAISED: Final = 0.3
"""By how much the share of throttled runs has to rise: once in a while is normal."""
PEAK: Final = 0.9
"""Quantile of what a link reaches: it sleeps when nothing is sent, and is read as slower then."""
FULL: Final = 0.1
"""Share of free memory below which the driver begins to move things out."""
LOAD: Final = 1.0
"""By how many busy cores the load has to rise."""
TEXTS: Final = {
    "clocksource": kinds.CLOCKSOURCE,
    "library": kinds.LIBRARY,
    "loading": kinds.LOADING,
    "python": kinds.PYTHON,
}


def likely(
    before: Runs, after: Runs, changed: Iterable[Cause] = (), messages: Iterable[Cause] = ()
) -> tuple[Cause, ...]:
    """Return what may have made the figures worse, the most likely first; never empty.

    ``before`` and ``after`` are the conditions of the runs on either side. ``changed`` is what
    differs between their contexts, ``messages`` what else happened, such as one of dxgkrnl.
    """
    first = ordered(changed)
    updated = {cause.kind for cause in first}
    causes = [*messages]
    if _enough(before, after):
        # The GPU right after each run; before it the card may be asleep.
        causes += _lower(kinds.POWER_LIMIT, before, after, "after.power_limit_watts", "{:.0f} W")
        causes += [*_link(before, after), *_throttled(before, after)]
        causes += _lower(kinds.SM_CLOCK, before, after, "after.clock_sm_hertz", "{:.0f} MHz", 1e6)
        causes += _lower(
            kinds.MEMORY_CLOCK, before, after, "after.clock_memory_hertz", "{:.0f} MHz", 1e6
        )
        causes += [*_battery(before, after), *_memory(before, after)]
        causes += [*_texts(before, after), *_load(before, after)]
    causes = [cause for cause in map(_renamed, causes) if cause.kind not in updated]
    return (*first, *causes) or (Cause(kinds.NOTHING, detail="nothing that gpud records changed"),)


def ordered(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Put changes of driver and machine first; what was measured keeps its order."""
    ranks = {kind: rank for rank, kind in enumerate(kinds.OF_CHANGES.values())}
    return tuple(sorted(map(_renamed, causes), key=lambda cause: ranks.get(cause.kind, len(ranks))))


def _renamed(cause: Cause) -> Cause:
    """Name a change as a cause; of kernels only the numbers, where these differ."""
    kind, old, new = kinds.OF_CHANGES.get(cause.kind, cause.kind), cause.old, cause.new
    if kind == kinds.KERNEL and old and new:
        numbers = old.partition("-")[0], new.partition("-")[0]
        old, new = numbers if numbers[0] != numbers[1] else (old, new)
    return Cause(kind, old, new, cause.detail)


def _lower(  # noqa: PLR0913, PLR0917  # one row of a table
    kind: str, before: Runs, after: Runs, name: str, form: str, scale: float = 1.0
) -> Iterator[Cause]:
    values = _numbers(before, name), _numbers(after, name)
    if _enough(*values):
        old, new = map(median, values)
        if new < LOWER * old:
            yield Cause(kind, form.format(old / scale), form.format(new / scale))


def _link(before: Runs, after: Runs) -> Iterator[Cause]:
    peaks = []
    for name in ("after.pcie_generation", "after.pcie_width"):
        values = _numbers(before, name), _numbers(after, name)
        if not _enough(*values):
            return
        peaks.append([round(quantile(sorted(side), PEAK)) for side in values])
    (old_generation, generation), (old_width, width) = peaks
    if generation < old_generation or width < old_width:
        yield Cause(kinds.PCIE, f"gen {old_generation} x{old_width}", f"gen {generation} x{width}")


def _throttled(before: Runs, after: Runs) -> Iterator[Cause]:
    """Name the reasons that hold the clocks down more often than before, and the heat."""
    sides = []
    for runs in (before, after):
        texts = [run.get("after.throttle_reasons") for run in runs]
        sides.append([set(text.split(",")) - {NONE, ""} for text in texts if isinstance(text, str)])
    if not _enough(*sides):
        return
    old, new = (
        {reason: sum(reason in run for run in side) / len(side) for reason in SLOWED}
        for side in sides
    )
    risen = sorted(reason for reason in SLOWED if new[reason] >= old[reason] + RAISED)
    if risen:
        usual = sorted(reason for reason in SLOWED if old[reason] >= RAISED)
        heat = None
        degrees = [_numbers(side, "after.temperature_celsius") for side in (before, after)]
        if _enough(*degrees) and median(degrees[1]) > median(degrees[0]):
            heat = f"{median(degrees[0]):.0f} -> {median(degrees[1]):.0f} degrees C"
        yield Cause(
            kinds.THROTTLE, ", ".join(usual) or "by nothing", f"by {', '.join(risen)}", heat
        )


def _battery(before: Runs, after: Runs) -> Iterator[Cause]:
    mains = [
        [int(value) for run in side if isinstance(value := run.get("after.ac"), bool)]
        for side in (before, after)
    ]
    if _enough(*mains) and median(mains[0]) == 1 and median(mains[1]) == 0:
        yield Cause(kinds.BATTERY, "mains", "battery")


def _memory(before: Runs, after: Runs) -> Iterator[Cause]:
    """Compare the share of GPU memory that was free before each run."""
    free = []
    for side in (before, after):
        names = "before.memory_free_bytes", "before.memory_used_bytes"
        pairs = [[*_numbers([run], names[0]), *_numbers([run], names[1])] for run in side]
        free.append([pair[0] / sum(pair) for pair in pairs if len(pair) > 1 and sum(pair) > 0])
    if _enough(*free) and median(free[1]) < FULL <= median(free[0]):
        yield Cause(kinds.MEMORY, f"{median(free[0]):.0%}", f"{median(free[1]):.0%}")


def _texts(before: Runs, after: Runs) -> Iterator[Cause]:
    """Compare what more than half of the runs that name a library or a clock source name."""
    for name, kind in TEXTS.items():
        usual = []
        for side in (before, after):
            texts = [text for run in side if isinstance(text := run.get(name), str) and text]
            text, count = Counter(texts).most_common(1)[0] if _enough(texts) else ("", 0)
            usual.append(text if 2 * count > len(texts) else None)
        if None not in usual and usual[0] != usual[1]:
            yield Cause(kind, *usual)


def _load(before: Runs, after: Runs) -> Iterator[Cause]:
    loads = _numbers(before, "load_1m"), _numbers(after, "load_1m")
    if _enough(*loads):
        old, new = map(median, loads)
        if new >= max(old + LOAD, 2 * old):
            yield Cause(kinds.CPU_LOAD, f"{old:.1f}", f"{new:.1f}")


def _numbers(runs: Runs, name: str) -> list[float]:
    values = [run.get(name) for run in runs]
    return [float(value) for value in values if type(value) in {int, float}]  # type: ignore[arg-type]


def _enough(*sides: Sequence[object]) -> bool:
    return all(len(side) >= FEWEST for side in sides)
