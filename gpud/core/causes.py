"""What became another when the figures did: the likely causes of a change, in order.

Only what differs between the runs before and those after is ever named, so a card that was always
hot is no cause. What is not known on either side stays unsaid. Pure: conditions in, causes out.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gpud.core.alerts import Cause
from gpud.core.conditions import SLOWED, stored
from gpud.core.stats import median, quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gpud.core.conditions import Conditions
    from gpud.core.sample import Condition

    Run = Mapping[str, Condition]

DRIVER, KERNEL, WINDOWS, WSL = "driver", "kernel", "windows", "wsl"
CUDA, NVML, FOLDER = "cuda", "nvml", "driver_folder"
POWER_LIMIT, PCIE, THROTTLE = "power_limit", "pcie", "throttle"
SM_CLOCK, MEMORY_CLOCK, BATTERY, MEMORY = "sm_clock", "memory_clock", "battery", "memory"
CLOCKSOURCE, LIBRARY, LOADING, PYTHON = "clocksource", "library", "loading", "python"
CPU_LOAD, DXG, CPU, NOTHING = "cpu_load", "dxg", "cpu", "nothing"

MACHINE: Final = "the CPU's probes slowed as well: the machine, not the GPU"

OF_CHANGES: Final = {
    "driver_version": DRIVER,
    "kernel": KERNEL,
    "windows_build": WINDOWS,
    "wsl_version": WSL,
    "cuda_version": CUDA,
    "nvml_version": NVML,
    "driver_folder": FOLDER,
}
"""What the changes of driver and machine are called as causes; the most telling first."""

OF_THE_DRIVER: Final = frozenset({DRIVER, CUDA, NVML, FOLDER})
"""The driver, and what it brings: that tells of a driver whose version nobody names."""

WORDS: Final = {
    DRIVER: "driver",
    KERNEL: "kernel",
    WINDOWS: "Windows",
    WSL: "WSL",
    CUDA: "CUDA",
    NVML: "NVML",
    FOLDER: "driver folder",
    POWER_LIMIT: "power limit",
    PCIE: "PCIe link",
    THROTTLE: "clocks held down",
    SM_CLOCK: "SM clock",
    MEMORY_CLOCK: "memory clock",
    BATTERY: "power",
    MEMORY: "free GPU memory",
    CLOCKSOURCE: "clock source",
    LIBRARY: "CUDA library",
    LOADING: "module loading",
    PYTHON: "Python",
    CPU_LOAD: "load of the CPU",
    DXG: "the channel to Windows",
    CPU: "the machine",
}

FEWEST: Final = 5
"""Runs on either side: of fewer no median means anything."""
LOWER: Final = 0.95
"""Clocks and limits wander by a percent or two with heat; a laptop's limit by a watt or so."""
RAISED: Final = 0.3
"""By how much the share of runs that were held down has to rise: once in a while is normal."""
REACHED: Final = 0.9
"""The quantile that tells what a link gets to: it sleeps when nothing is sent, and only then reads
lower than it is."""
FULL: Final = 0.1
"""Of the memory; with less free than this the driver begins to move things out."""
LOAD: Final = 1.0
"""By how many busy cores the load has to rise."""


def likely(
    before: Sequence[Run],
    after: Sequence[Run],
    *,
    changed: Iterable[Cause] = (),
    beside: Iterable[Cause] = (),
    cpu_slower: bool | None = None,
) -> tuple[Cause, ...]:
    """Give what may have made the figures worse, the most likely first; never empty.

    ``before`` and ``after`` are the conditions of runs on either side of the change. ``changed`` is
    the difference of their contexts, ``beside`` what else happened near it, such as a message of
    dxgkrnl. ``cpu_slower``: the streams of the CPU slowed at the same time; None: not known.
    """
    told = list(ordered(changed))
    known = {cause.kind for cause in told}
    found = [*told, *(_called(cause) for cause in beside if _called(cause).kind not in known)]
    if len(before) >= FEWEST and len(after) >= FEWEST:
        found += _measured(before, after)
        found += (one for one in _facts(before, after) if one.kind not in known)
    if cpu_slower:
        found.insert(len(told), Cause(CPU, detail=MACHINE))
    return tuple(found) or (Cause(NOTHING, detail="nothing that gpud records changed"),)


def ordered(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Put what changed of driver and machine first; what was measured keeps its order."""
    return tuple(sorted((_called(cause) for cause in causes), key=_rank))


def words(cause: Cause) -> str:
    """Name a cause for a person: "driver 572.16 -> 576.02"."""
    if cause.old is None and cause.new is None:
        return cause.detail or WORDS.get(cause.kind, cause.kind)
    moved = f"{cause.old or 'unknown'} -> {cause.new or 'unknown'}"
    said = f"{WORDS.get(cause.kind, cause.kind.replace('_', ' '))} {moved}"
    return f"{said} ({cause.detail})" if cause.detail else said


def _called(cause: Cause) -> Cause:
    """Give a change its name as a cause; of a kernel only the number, where that says it."""
    kind, old, new = OF_CHANGES.get(cause.kind, cause.kind), cause.old, cause.new
    if kind == KERNEL and old and new:
        shorter = old.partition("-")[0], new.partition("-")[0]
        old, new = shorter if shorter[0] != shorter[1] else (old, new)
    return Cause(kind, old, new, cause.detail)


def _rank(cause: Cause) -> int:
    order = list(OF_CHANGES.values())
    return order.index(cause.kind) if cause.kind in order else len(order)


def _measured(before: Sequence[Run], after: Sequence[Run]) -> Iterator[Cause]:
    """Compare the states of the GPU, right after each run: before it the card may be asleep."""
    old = [stored("after", run) for run in before]
    new = [stored("after", run) for run in after]
    yield from _lower(POWER_LIMIT, old, new, lambda one: one.power_limit_watts, _watts)
    yield from _link(old, new)
    yield from _throttled(old, new)
    yield from _lower(SM_CLOCK, old, new, lambda one: one.clock_sm_hertz, _megahertz)
    yield from _lower(MEMORY_CLOCK, old, new, lambda one: one.clock_memory_hertz, _megahertz)
    yield from _unplugged(old, new)
    yield from _full(
        [stored("before", run) for run in before], [stored("before", run) for run in after]
    )


def _facts(before: Sequence[Run], after: Sequence[Run]) -> Iterator[Cause]:
    """Compare what the probes tell of themselves: the most common word of either side."""
    for name, kind in (
        ("clocksource", CLOCKSOURCE),
        ("library", LIBRARY),
        ("loading", LOADING),
        ("python", PYTHON),
    ):
        old, new = _usual(before, name), _usual(after, name)
        if old is not None and new is not None and old != new:
            yield Cause(kind, old, new)
    loads = _numbers(before, "load_1m"), _numbers(after, "load_1m")
    if _enough(*loads):
        first, last = median(loads[0]), median(loads[1])
        if last >= first + LOAD and last >= 2 * first:
            yield Cause(CPU_LOAD, f"{first:.1f}", f"{last:.1f}")


def _lower(
    kind: str,
    old: Sequence[Conditions],
    new: Sequence[Conditions],
    of: Callable[[Conditions], float | None],
    shown: Callable[[float], str],
) -> Iterator[Cause]:
    values = _known(old, of), _known(new, of)
    if _enough(*values):
        first, last = median(values[0]), median(values[1])
        if last < LOWER * first:
            yield Cause(kind, shown(first), shown(last))


def _link(old: Sequence[Conditions], new: Sequence[Conditions]) -> Iterator[Cause]:
    reached = []
    for side in (old, new):
        generations = _known(side, lambda one: one.pcie_generation)
        widths = _known(side, lambda one: one.pcie_width)
        if not _enough(generations, widths):
            return
        reached.append(tuple(round(_reached(values)) for values in (generations, widths)))
    (old_generation, old_width), (generation, width) = reached
    if generation < old_generation or width < old_width:
        yield Cause(PCIE, f"gen {old_generation} x{old_width}", f"gen {generation} x{width}")


def _reached(values: Sequence[float]) -> float:
    return quantile(sorted(values), REACHED)


def _throttled(old: Sequence[Conditions], new: Sequence[Conditions]) -> Iterator[Cause]:
    """Name the reasons that hold the clocks down more often than before, and how hot it is."""
    told = [[one.throttle_reasons for one in side if one.throttle_reasons is not None]
            for side in (old, new)]  # fmt: skip
    if not _enough(*told):
        return
    first, last = (
        {word: sum(word in one for one in side) / len(side) for word in SLOWED} for side in told
    )
    risen = sorted(word for word in SLOWED if last[word] >= first[word] + RAISED)
    if not risen:
        return
    degrees = [_known(side, lambda one: one.temperature_celsius) for side in (old, new)]
    heat = None
    if _enough(*degrees) and (at := median(degrees[1])) > (was := median(degrees[0])):
        heat = f"{was:.0f} -> {at:.0f} degrees C"
    usual = sorted(word for word in SLOWED if first[word] >= RAISED)
    yield Cause(THROTTLE, ", ".join(usual) or "by nothing", f"by {', '.join(risen)}", heat)


def _unplugged(old: Sequence[Conditions], new: Sequence[Conditions]) -> Iterator[Cause]:
    plugs = [[one.ac for one in side if one.ac is not None] for side in (old, new)]
    if _enough(*plugs) and 2 * sum(plugs[0]) > len(plugs[0]) and 2 * sum(plugs[1]) < len(plugs[1]):
        yield Cause(BATTERY, "mains", "battery")


def _full(old: Sequence[Conditions], new: Sequence[Conditions]) -> Iterator[Cause]:
    shares = []
    for side in (old, new):
        free = [
            one.memory_free_bytes / (one.memory_free_bytes + one.memory_used_bytes)
            for one in side
            if one.memory_free_bytes is not None
            and one.memory_used_bytes is not None
            and one.memory_free_bytes + one.memory_used_bytes > 0
        ]
        if len(free) < FEWEST:
            return
        shares.append(median(free))
    if shares[1] < FULL <= shares[0]:
        yield Cause(MEMORY, f"{shares[0]:.0%}", f"{shares[1]:.0%}")


def _known(side: Sequence[Conditions], of: Callable[[Conditions], float | None]) -> list[float]:
    return [value for one in side if (value := of(one)) is not None]


def _enough(*sides: Sequence[object]) -> bool:
    return all(len(side) >= FEWEST for side in sides)


def _numbers(runs: Sequence[Run], name: str) -> list[float]:
    return [
        float(value)
        for run in runs
        if isinstance(value := run.get(name), int | float) and not isinstance(value, bool)
    ]


def _usual(runs: Sequence[Run], name: str) -> str | None:
    """Give the word of more than half of the runs that tell one."""
    said = [value for run in runs if isinstance(value := run.get(name), str) and value]
    if len(said) < FEWEST:
        return None
    word, count = Counter(said).most_common(1)[0]
    return word if 2 * count > len(said) else None


def _watts(value: float) -> str:
    return f"{value:.0f} W"


def _megahertz(value: float) -> str:
    return f"{value / 1e6:.0f} MHz"
