"""The part that the SM clock, and the part that the driver's compiler has in a slowdown.

A kernel's figure is its clock times the work of a cycle, both measured by the kernel itself. The
one moves with power and heat, the other with the machine code, or with the GPU. A kernel that is
pinned machine code tells the two apart. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gpud.agent.regression import causes as kinds
from gpud.core.alerts import Cause
from gpud.core.stats import median

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpud.core.sample import Condition

    Runs: TypeAlias = Sequence[Mapping[str, Condition]]

FEWEST: Final = 5
"""Runs on either side: the median of fewer means nothing."""
SLOWER: Final = 0.98
"""Less of a slowdown is not explained; pinned code that lost more has slowed as well."""
PINNED: Final = "pinned"
"""The mode whose machine code no driver compiles."""
MOST: Final = 0.5
"""Share of a slowdown from which on its cause is named."""


class Parts(NamedTuple):
    """Logarithms of what became of the clock and of the work of a cycle, and both clocks in Hz."""

    clock: float
    cycle: float
    hertz: tuple[float, float]


def explanation(before: Runs, after: Runs, mode: str) -> Iterator[Cause]:
    """Yield the cause of most of a slowdown: the clock, or the driver's compiler; or none.

    ``before`` and ``after`` are the conditions of the runs on either side of it, ``mode`` is what
    has slowed.
    """
    parts = _parts(before, after, mode)
    if parts is None or parts.clock + parts.cycle > math.log(SLOWER):
        return
    if parts.clock <= MOST * (parts.clock + parts.cycle):
        old, new = (f"{hertz / 1e6:.0f} MHz" for hertz in parts.hertz)
        yield Cause(kinds.SM_CLOCK, old, new, kinds.SAME_WORK_OF_A_CYCLE)
        return
    pinned = _parts(before, after, PINNED)
    if pinned is not None and pinned.cycle <= max(MOST * parts.cycle, math.log(SLOWER)):
        return  # the GPU itself does less in a cycle
    detail = None if pinned is None else "pinned code does as much in a cycle as before"
    code, other = _code(before, mode), _code(after, mode)
    if code is not None and other is not None and code != other:
        old, new = _different(code, other)
        yield Cause(kinds.COMPILER, old, new, detail)
    elif detail is not None:
        yield Cause(kinds.COMPILER, detail=f"the driver's compiler makes slower code: {detail}")


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
