"""The likely causes of a slowdown, in order: what differs between the runs before and after it.

A card that was always hot is no cause, and what is not known on one side is not compared. A
kernel's figure is its clock times the work of a cycle, both measured by the kernel itself: the one
moves with power and heat, the other with the machine code, or with the GPU. A kernel that is pinned
machine code tells the two apart. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from gpud.agent.measure.conditions import SLOWED
from gpud.agent.state import facts
from gpud.core.alerts import Cause
from gpud.core.stats import median, quantile
from gpud.words import BY_NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpud.core.sample import Condition

    Runs: TypeAlias = Sequence[Mapping[str, Condition]]
    Sides: TypeAlias = tuple[Runs, Runs]

DRIVER, KERNEL, WINDOWS, WSL = "driver", "kernel", "windows", "wsl"
CUDA, NVML, FOLDER = "cuda", "nvml", "driver_folder"
POWER_LIMIT, PCIE, THROTTLE = "power_limit", "pcie", "throttle"
SM_CLOCK, MEMORY_CLOCK, BATTERY, MEMORY = "sm_clock", "memory_clock", "battery", "memory"
CLOCKSOURCE, LIBRARY, LOADING, PYTHON = "clocksource", "library", "loading", "python"
CPU_LOAD, DXG, CPU, NOTHING = "cpu_load", "dxg", "cpu", "nothing"
COMPILER = "compiler"

MACHINE: Final = "the CPU's probes slowed as well: the machine, not the GPU"

SAME_WORK_OF_A_CYCLE: Final = "a cycle does as much as before"

OF_CHANGES: Final = {
    facts.DRIVER_VERSION: DRIVER,
    facts.KERNEL: KERNEL,
    facts.WINDOWS_BUILD: WINDOWS,
    facts.WSL_VERSION: WSL,
    facts.CUDA_VERSION: CUDA,
    facts.NVML_VERSION: NVML,
    facts.DRIVER_FOLDER: FOLDER,
}
"""Versions that a run is stored with, as causes, the most telling first."""

OF_THE_DRIVER: Final = frozenset({DRIVER, CUDA, NVML, FOLDER})
"""The driver and what comes with it: these show a new driver whose version is not known."""

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
SLOWER: Final = 0.98
"""Less of a slowdown is not explained; pinned code that lost more has slowed as well."""
PINNED: Final = "pinned"
"""The mode whose machine code no driver compiles."""
MOST: Final = 0.5
"""Share of a slowdown from which on its cause is named."""
TEXTS: Final = {
    "clocksource": CLOCKSOURCE,
    "library": LIBRARY,
    "loading": LOADING,
    "python": PYTHON,
}


def likely(
    before: Runs,
    after: Runs,
    changed: Iterable[Cause] = (),
    messages: Iterable[Cause] = (),
    *,
    mode: str = "",
) -> tuple[Cause, ...]:
    """Return what may have made the figures worse, the most likely first; never empty.

    ``before`` and ``after`` are the conditions of the runs on either side. ``changed`` is what
    differs between their contexts, ``messages`` what else happened, such as one of dxgkrnl.
    ``mode`` is the stream's.
    """
    first = ordered(changed)
    updated = {cause.kind for cause in first}
    explained = tuple(_explanation(before, after, mode))
    updated |= {cause.kind for cause in explained}
    others = map(_renamed, (*messages, *_measured((before, after))))
    unnamed = (cause for cause in others if cause.kind not in updated)
    causes = ordered((*explained, *first, *unnamed))
    return causes or (Cause(NOTHING, detail="nothing that gpud records changed"),)


def ordered(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Put what explains the figures first, then changes of driver and machine.

    What else was measured keeps its order.
    """
    ranks = {kind: rank for rank, kind in enumerate(OF_CHANGES.values())}

    def rank(cause: Cause) -> int:
        explains = cause.kind == COMPILER or cause.detail == SAME_WORK_OF_A_CYCLE
        return -1 if explains else ranks.get(cause.kind, len(ranks))

    return tuple(sorted(map(_renamed, causes), key=rank))


def _renamed(cause: Cause) -> Cause:
    """Name a change as a cause; of kernels only the numbers, where these differ."""
    kind, old, new = OF_CHANGES.get(cause.kind, cause.kind), cause.old, cause.new
    if kind == KERNEL and old and new:
        numbers = old.partition("-")[0], new.partition("-")[0]
        old, new = numbers if numbers[0] != numbers[1] else (old, new)
    return Cause(kind, old, new, cause.detail)


def _measured(sides: Sides) -> Iterator[Cause]:
    """Yield what the conditions show, of the GPU right after each run: before it it may sleep."""
    if min(map(len, sides)) < FEWEST:
        return
    yield from _lower(sides, POWER_LIMIT, "after.power_limit_watts", "{:.0f} W")
    yield from _link(sides)
    yield from _throttled(sides)
    yield from _lower(sides, SM_CLOCK, "after.clock_sm_hertz", "{:.0f} MHz", 1e6)
    yield from _lower(sides, MEMORY_CLOCK, "after.clock_memory_hertz", "{:.0f} MHz", 1e6)
    if _medians(_values(sides, "after.ac", bool)) == [1, 0]:
        yield Cause(BATTERY, "mains", "battery")
    shares = [[share for run in side if (share := _free(run)) is not None] for side in sides]
    free = _medians(_enough(shares))
    if free and free[1] < FULL <= free[0]:
        yield Cause(MEMORY, f"{free[0]:.0%}", f"{free[1]:.0%}")
    for name, kind in TEXTS.items():
        usual = [_usual(_values([side], name, str)) for side in sides]
        if None not in usual and usual[0] != usual[1]:
            yield Cause(kind, *usual)
    load = _medians(_values(sides, "load_1m", int, float))
    if load and load[1] >= max(load[0] + LOAD, 2 * load[0]):
        yield Cause(CPU_LOAD, f"{load[0]:.1f}", f"{load[1]:.1f}")


def _lower(sides: Sides, kind: str, name: str, form: str, scale: float = 1.0) -> Iterator[Cause]:
    medians = _medians(_values(sides, name, int, float))
    if medians and medians[1] < LOWER * medians[0]:
        yield Cause(kind, *(form.format(value / scale) for value in medians))


def _link(sides: Sides) -> Iterator[Cause]:
    generations, widths = (
        [round(quantile(sorted(side), PEAK)) for side in _values(sides, name, int, float)]
        for name in ("after.pcie_generation", "after.pcie_width")
    )
    if generations and widths and (generations[1] < generations[0] or widths[1] < widths[0]):
        ends = zip(generations, widths, strict=True)
        yield Cause(PCIE, *(f"gen {generation} x{width}" for generation, width in ends))


def _throttled(sides: Sides) -> Iterator[Cause]:
    """Name the reasons that hold the clocks down more often than before, and the heat."""
    texts = _values(sides, "after.throttle_reasons", str)
    if not texts:
        return
    old, new = (
        {reason: sum(reason in text.split(",") for text in side) / len(side) for reason in SLOWED}
        for side in texts
    )
    risen = sorted(reason for reason in SLOWED if new[reason] >= old[reason] + RAISED)
    if risen:
        usual = sorted(reason for reason in SLOWED if old[reason] >= RAISED)
        heat = _medians(_values(sides, "after.temperature_celsius", int, float))
        hotter = heat and heat[1] > heat[0]
        detail = f"{heat[0]:.0f} -> {heat[1]:.0f} degrees C" if hotter else None
        before = ", ".join(usual) or BY_NOTHING
        yield Cause(THROTTLE, before, f"by {', '.join(risen)}", detail)


def _free(run: Mapping[str, Condition]) -> float | None:
    """Return the share of GPU memory that was free before a run."""
    free, used = (run.get(f"before.memory_{part}_bytes") for part in ("free", "used"))
    if isinstance(free, (int, float)) and isinstance(used, (int, float)) and free + used > 0:
        return free / (free + used)
    return None


def _usual(values: list[list[Any]]) -> str | None:
    """Return the text that more than half of the runs name."""
    [(text, count)] = Counter(values[0]).most_common(1) if values else [("", 0)]
    return text if values and text and 2 * count > len(values[0]) else None


def _values(sides: Sequence[Runs], name: str, *types: type) -> list[list[Any]]:
    """Return a condition's values on both sides; empty where either has too few."""
    return _enough(
        [[value for run in side if type(value := run.get(name)) in types] for side in sides]
    )


def _enough(values: list[list[Any]]) -> list[list[Any]]:
    return values if all(len(side) >= FEWEST for side in values) else []


def _medians(values: list[list[Any]]) -> list[float]:
    return [float(median(side)) for side in values]


class Parts(NamedTuple):
    """Logarithms of what became of the clock and of the work of a cycle, and both clocks in Hz."""

    clock: float
    cycle: float
    hertz: tuple[float, float]


def _explanation(before: Runs, after: Runs, mode: str) -> Iterator[Cause]:
    """Yield the cause of most of a slowdown: the clock, or the driver's compiler; or none.

    ``before`` and ``after`` are the conditions of the runs on either side of it, ``mode`` is what
    has slowed.
    """
    parts = _parts(before, after, mode)
    if parts is None or parts.clock + parts.cycle > math.log(SLOWER):
        return
    if parts.clock <= MOST * (parts.clock + parts.cycle):
        old, new = (f"{hertz / 1e6:.0f} MHz" for hertz in parts.hertz)
        yield Cause(SM_CLOCK, old, new, SAME_WORK_OF_A_CYCLE)
        return
    pinned = _parts(before, after, PINNED)
    if pinned is not None and pinned.cycle <= max(MOST * parts.cycle, math.log(SLOWER)):
        return  # the GPU itself does less in a cycle
    detail = None if pinned is None else "pinned code does as much in a cycle as before"
    code, other = _code(before, mode), _code(after, mode)
    if code is not None and other is not None and code != other:
        old, new = _different(code, other)
        yield Cause(COMPILER, old, new, detail)
    elif detail is not None:
        yield Cause(COMPILER, detail=f"the driver's compiler makes slower code: {detail}")


def _parts(before: Runs, after: Runs, mode: str) -> Parts | None:
    """Return what became of a kernel's clock and cycle; None where either side has too few."""
    medians = []
    for name in ("sm_clock_hertz", "work_per_cycle"):
        for side in (before, after):
            values = [
                float(value)
                for run in side
                if isinstance(value := _condition(run, name, mode), int | float) and value > 0
            ]
            if len(values) < FEWEST:
                return None
            medians.append(median(values))
    clock_before, clock_after, cycle_before, cycle_after = medians
    return Parts(
        math.log(clock_after / clock_before),
        math.log(cycle_after / cycle_before),
        (clock_before, clock_after),
    )


def _condition(run: Mapping[str, Condition], name: str, mode: str) -> Condition:
    """Return a condition of a mode's kernel: its own where a probe has several, else the run's."""
    if mode == PINNED:
        return run.get(f"{PINNED}.{name}")
    return run.get(f"{name}.{mode}", run.get(name))


def _code(side: Runs, mode: str) -> str | None:
    """Return the machine code that more than half of at least five runs describe alike."""
    described = (_condition(run, "code", mode) for run in side)
    codes = Counter(code for code in described if isinstance(code, str))
    if codes.total() < FEWEST:
        return None
    [(code, count)] = codes.most_common(1)
    return code if 2 * count > codes.total() else None


def _different(old: str, new: str) -> tuple[str, str]:
    """Keep the parts of two descriptions that differ: "128 registers", "120 registers"."""
    pairs = list(zip(old.split(", "), new.split(", "), strict=False))
    different = [(before, after) for before, after in pairs if before != after] or [(old, new)]
    return ", ".join(pair[0] for pair in different), ", ".join(pair[1] for pair in different)
