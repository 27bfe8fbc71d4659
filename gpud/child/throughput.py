"""Throughput measurement: pilots size the work, load lifts the clocks, then timed batches.

No call is planned longer than 20 ms. A pilot may have run at boost clocks that the next batch no
longer gets, or at a share of the clocks of an idle GPU; either way a kernel stays below the 50 ms
that a person notices, because the size is chosen again once the clocks are up.

Batches are short and few because gpud runs for ever: seven of 8 ms in a quarter of an hour, of each
of the probes that take part in it, are less than a thousandth of the GPU.
"""

from __future__ import annotations

import math
from functools import partial

from gpud.child.device import Outcome, plausible
from gpud.child.progress import TOO_SLOW
from gpud.child.summary import summarised
from gpud.child.warmup import Waking, settle
from gpud.core.errors import ProbeError
from gpud.core.record import Record
from gpud.core.sample import Failure, Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from gpud.child.cpu import Cpu
    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Call
    from gpud.child.progress import Budget
    from gpud.core.sample import Condition, ProbeSpec

Timed: TypeAlias = "Callable[[int], float]"
"""Do something so many times; seconds for all of them."""

PILOT_S = 1e-3
"""What a pilot lasts at least: half a microsecond of event resolution is nothing beside it."""
CALL_S = 0.02
"""One call, whose size a probe can choose: short beside what a person notices."""
BATCH_S = 0.008
"""Each timed batch of calls: long beside an event's resolution."""
RUNS, LEAST_RUNS = 7, 5
WARM_UPS, LONGER = 3, 2
"""Agreeing batches that a warm-up takes at least, and how much longer than timed ones they are:
clocks that have not begun to rise yet agree with themselves as well.
"""
RESERVE_S = 0.08
"""Of the GPU time of a run: what is left for verification."""
MOST_REPEATS = 10_000
SMALLEST, CACHES = 64 << 20, 4
GROWTH = 16
"""How much longer than the last one a pilot may be planned: the first tells little."""


class TimedBatches(Record):
    """Timed batches of one call. ``rates`` in work per second, 5 to 7 of them.

    ``clock``: the SM clock meanwhile, and the machine code; empty where no kernel was called.
    """

    rates: tuple[float, ...]
    settled: bool
    repeats: int  # calls in a batch
    clock: dict[str, Condition] = {}  # noqa: RUF012  # copied

    def outcome(self, spec: ProbeSpec, conditions: dict[str, Condition]) -> Outcome:
        """Give the outcome of a probe of one mode, with how its figures came about."""
        own = {"settled": self.settled, "runs": len(self.rates), "batch": self.repeats}
        sample = summarised(self.rates, mode=spec.modes[0], unit=spec.unit)
        return Outcome((sample,), (), {**conditions, **own, **self.clock})


def beyond_caches(l2_bytes: int) -> int:
    """Give how much memory no cache holds: four times the L2, and 64 MiB at least."""
    return max(CACHES * l2_bytes, SMALLEST)


def parts(most: int, *, unit: int, least: int) -> list[int]:
    """Give the sizes to choose from, ascending: ``most``, its half, and so on to a 64th.

    Units: bytes, all of them in whole ``unit``s, ``least`` of them at least.
    """
    return sorted({max((most >> halving) // unit, least) * unit for halving in range(7)})


def chosen(
    gpu: Gpu,
    sizes: Sequence[int],
    build: Callable[[int], Call],
    work: Callable[[int], float],
    budget: Budget,
) -> int:
    """Choose the largest of ``sizes`` whose call takes no longer than ``CALL_S``, clocks up.

    ``sizes`` ascends and is not empty; the smallest is chosen where even that takes longer.
    ``work`` says how the time grows from one size to the next. Errors: ``ProbeError``.
    """

    def within(seconds: float, size: int, took_s: float) -> int:
        fits = [other for other in sizes if took_s * work(other) / work(size) <= seconds]
        return max(fits, default=sizes[0])

    size = sizes[0]
    took_s = elapsed(gpu, build(size))
    while took_s < PILOT_S and size < sizes[-1]:
        larger = next(other for other in sizes if other > size)
        size = max(larger, within(min(2 * PILOT_S, GROWTH * took_s), size, took_s))
        took_s = elapsed(gpu, build(size))
        budget.check()
    if within(CALL_S, size, took_s) == sizes[-1]:
        return sizes[-1]  # clocks that are not up yet can only make it quicker
    pilot = build(size)
    warm, waking = [took_s], Waking(gpu, pilot)

    def run() -> float:
        taken_s = elapsed(gpu, pilot)
        waking.read(1)
        return taken_s

    settle(run, budget, _left(gpu, budget) / 4, warm, waking=waking)
    took_s = warm[-1]
    # Little work fills a GPU badly, so that larger sizes take less than it predicts.
    while (fitting := within(CALL_S, size, took_s)) > size:
        size, took_s = fitting, elapsed(gpu, build(fitting))
        budget.check()
    return fitting


def measured(  # noqa: PLR0913  # the last two have one use each
    device: Gpu | Cpu,
    call: Call,
    work: float,
    budget: Budget,
    *,
    share: float = 1.0,
    timed: Timed | None = None,
) -> TimedBatches:
    """Repeat ``call`` in batches between events, after warming up with it.

    Units: ``work`` is what one call does, in the unit of the figure times seconds. ``share`` is the
    part of the GPU time left that this series may use; it ends early, with five batches at least,
    rather than use more. ``timed`` replaces ``device.timed`` of the call.
    Errors: ``ProbeError``; budget_exceeded where not even five batches fit.
    """
    on_gpu = timed is None and call.kernel is not None
    waking = Waking(device, call) if on_gpu else None  # type: ignore[arg-type]  # no ``Cpu``

    def batch(repeats: int) -> float:
        taken_s = device.timed(call, repeats) if timed is None else timed(repeats)
        if waking:
            waking.read(repeats)
        return plausible(taken_s, call.name)

    allowed_s = share * _left(device, budget)
    batch_s = min(BATCH_S, allowed_s / (RUNS + LONGER * WARM_UPS + 2))
    used_s, call_s = _pilot(batch)
    load = _repeats(LONGER * batch_s, call_s)
    # What warming up may use leaves room for all batches if it can, for the fewest in any case.
    most_s = max(allowed_s - used_s - RUNS * batch_s, WARM_UPS * load * call_s)
    warm: list[float] = []
    room_s = _left(device, budget) - LEAST_RUNS * _repeats(batch_s, call_s) * call_s
    calm = settle(partial(batch, load), budget, min(most_s, room_s), warm, waking=waking)
    used_s += sum(warm)
    call_s = warm[-1] / load if warm else call_s
    repeats = _repeats(batch_s, call_s)
    taken: list[float] = []
    while len(taken) < RUNS:
        next_s = taken[-1] if taken else repeats * call_s
        if len(taken) >= LEAST_RUNS and used_s + next_s > allowed_s:
            break
        if max(LEAST_RUNS - len(taken), 1) * next_s > _left(device, budget):
            raise _too_slow(call.name, call_s, budget.gpu_s)
        taken.append(batch(repeats))
        used_s += taken[-1]
        budget.check()
    rates = tuple(repeats * work / seconds for seconds in taken)
    clock = waking.conditions(rates) if waking else {}
    return TimedBatches(rates, calm, repeats, clock)


def _too_slow(name: str, call_s: float, gpu_s: float) -> ProbeError:
    """Say that too little GPU time is left for the fewest batches."""
    detail = f"{name} is too slow to measure within {gpu_s:g} s ({call_s:.2g} s a call)"
    return ProbeError(Failure(Reason.BUDGET_EXCEEDED, detail, advice=TOO_SLOW))


def elapsed(gpu: Gpu, call: Call, repeats: int = 1) -> float:
    """Time a batch. Errors: ``ProbeError`` when the driver says that no time has passed."""
    return plausible(gpu.timed(call, repeats), call.name)


def _pilot(batch: Timed) -> tuple[float, float]:
    """Repeat a call until that takes a millisecond. Seconds: of all that was done, and of one."""
    repeats, took_s = 1, batch(1)
    used_s = took_s
    while took_s < PILOT_S and repeats < MOST_REPEATS:
        predicted = math.ceil(1.5 * PILOT_S * repeats / took_s)
        repeats = min(max(predicted, 2 * repeats), GROWTH * repeats, MOST_REPEATS)
        took_s = batch(repeats)
        used_s += took_s
    return used_s, took_s / repeats


def _repeats(batch_s: float, call_s: float) -> int:
    return max(1, min(int(batch_s / call_s), MOST_REPEATS))


def _left(device: Gpu | Cpu, budget: Budget) -> float:
    """GPU time that measuring may still use. A CPU probe uses none and has all of it."""
    return max(budget.gpu_s - device.busy_s - RESERVE_S, 0.0)
