"""The likely causes of a slowdown, in order: what differs between the runs before and after it.

A card that was always hot is no cause, and what is not known on one side is not compared. Pure.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

from gpud.agent.measure.conditions import NONE, SLOWED
from gpud.agent.regression.causes import (
    BATTERY,
    CLOCKSOURCE,
    CPU,
    CPU_LOAD,
    KERNEL,
    LIBRARY,
    LOADING,
    MACHINE,
    MEMORY,
    MEMORY_CLOCK,
    NOTHING,
    OF_CHANGES,
    PCIE,
    POWER_LIMIT,
    PYTHON,
    SM_CLOCK,
    THROTTLE,
)
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
    "clocksource": CLOCKSOURCE,
    "library": LIBRARY,
    "loading": LOADING,
    "python": PYTHON,
}


def likely(
    before: Runs,
    after: Runs,
    *,
    changed: Iterable[Cause] = (),
    beside: Iterable[Cause] = (),
    cpu_slower: bool | None = None,
) -> tuple[Cause, ...]:
    """Return what may have made the figures worse, the most likely first; never empty.

    ``before`` and ``after`` are the conditions of the runs on either side. ``changed`` is what
    differs between their contexts, ``beside`` what else happened, such as a message of dxgkrnl.
    ``cpu_slower``: the streams of the CPU slowed at the same time; None if that is not known.
    """
    first = list(ordered(changed))
    updated = {cause.kind for cause in first}
    result = [*first]
    if cpu_slower:
        result.append(Cause(CPU, detail=MACHINE))
    result += [cause for cause in map(_renamed, beside) if cause.kind not in updated]
    if min(len(before), len(after)) >= FEWEST:
        result += _states(before, after)
        result += (one for one in _facts(before, after) if one.kind not in updated)
    return tuple(result) or (Cause(NOTHING, detail="nothing that gpud records changed"),)


def ordered(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Put changes of driver and machine first; what was measured keeps its order."""
    ranks = {kind: rank for rank, kind in enumerate(OF_CHANGES.values())}
    return tuple(sorted(map(_renamed, causes), key=lambda one: ranks.get(one.kind, len(ranks))))


def _renamed(cause: Cause) -> Cause:
    """Name a change as a cause; of kernels only the numbers, where these differ."""
    kind, old, new = OF_CHANGES.get(cause.kind, cause.kind), cause.old, cause.new
    if kind == KERNEL and old and new:
        numbers = old.partition("-")[0], new.partition("-")[0]
        old, new = numbers if numbers[0] != numbers[1] else (old, new)
    return Cause(kind, old, new, cause.detail)


def _states(before: Runs, after: Runs) -> Iterator[Cause]:
    """Compare the GPU right after each run; before it the card may be asleep."""
    yield from _lower(POWER_LIMIT, before, after, "after.power_limit_watts", "{:.0f} W")
    yield from _link(before, after)
    yield from _throttled(before, after)
    yield from _lower(SM_CLOCK, before, after, "after.clock_sm_hertz", "{:.0f} MHz", 1e6)
    yield from _lower(MEMORY_CLOCK, before, after, "after.clock_memory_hertz", "{:.0f} MHz", 1e6)
    plugged = _plugged(before), _plugged(after)
    if _enough(*plugged) and median(plugged[0]) == 1 and median(plugged[1]) == 0:
        yield Cause(BATTERY, "mains", "battery")
    free = [_free(side) for side in (before, after)]
    if _enough(*free) and median(free[1]) < FULL <= median(free[0]):
        yield Cause(MEMORY, f"{median(free[0]):.0%}", f"{median(free[1]):.0%}")


def _facts(before: Runs, after: Runs) -> Iterator[Cause]:
    """Compare what the probes report of themselves."""
    for name, kind in TEXTS.items():
        old, new = _usual(before, name), _usual(after, name)
        if old is not None and new is not None and old != new:
            yield Cause(kind, old, new)
    loads = _numbers(before, "load_1m"), _numbers(after, "load_1m")
    if _enough(*loads):
        old_load, new_load = map(median, loads)
        if new_load >= max(old_load + LOAD, 2 * old_load):
            yield Cause(CPU_LOAD, f"{old_load:.1f}", f"{new_load:.1f}")


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
        yield Cause(PCIE, f"gen {old_generation} x{old_width}", f"gen {generation} x{width}")


def _throttled(before: Runs, after: Runs) -> Iterator[Cause]:
    """Name the reasons that hold the clocks down more often than before, and the heat."""
    sides = [_throttle_reasons(before), _throttle_reasons(after)]
    if not _enough(*sides):
        return
    old, new = (
        {reason: sum(reason in one for one in side) / len(side) for reason in SLOWED}
        for side in sides
    )
    risen = sorted(reason for reason in SLOWED if new[reason] >= old[reason] + RAISED)
    if risen:
        usual = sorted(reason for reason in SLOWED if old[reason] >= RAISED)
        heat = None
        degrees = [_numbers(side, "after.temperature_celsius") for side in (before, after)]
        if _enough(*degrees) and median(degrees[1]) > median(degrees[0]):
            heat = f"{median(degrees[0]):.0f} -> {median(degrees[1]):.0f} degrees C"
        yield Cause(THROTTLE, ", ".join(usual) or "by nothing", f"by {', '.join(risen)}", heat)


def _throttle_reasons(runs: Runs) -> list[set[str]]:
    texts = [one.get("after.throttle_reasons") for one in runs]
    return [set(text.split(",")) - {NONE, ""} for text in texts if isinstance(text, str)]


def _free(runs: Runs) -> list[float]:
    """Return the share of GPU memory that was free before each run."""
    pairs = [
        _numbers([one], "before.memory_free_bytes") + _numbers([one], "before.memory_used_bytes")
        for one in runs
    ]
    return [pair[0] / sum(pair) for pair in pairs if len(pair) > 1 and sum(pair) > 0]


def _numbers(runs: Runs, name: str) -> list[float]:
    values = [one.get(name) for one in runs]
    return [float(value) for value in values if type(value) in {int, float}]  # type: ignore[arg-type]


def _plugged(runs: Runs) -> list[int]:
    """Return 1 for each run on mains, 0 for each on battery."""
    return [int(value) for one in runs if isinstance(value := one.get("after.ac"), bool)]


def _enough(*sides: Sequence[object]) -> bool:
    return all(len(side) >= FEWEST for side in sides)


def _usual(runs: Runs, name: str) -> str | None:
    """Return the text of more than half of the runs that have one."""
    texts = [text for one in runs if isinstance(text := one.get(name), str) and text]
    if len(texts) < FEWEST:
        return None
    text, count = Counter(texts).most_common(1)[0]
    return text if 2 * count > len(texts) else None
