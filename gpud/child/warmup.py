"""Warm-up by load: an idle GPU runs at a few hundred MHz, and no clock says when it is awake.

The n-body kernel is repeated until three runs in a row agree within 2 %. A pilot sizes it, so that
a run is long beside what a launch costs and short beside what a person notices. A GPU that is warm
already costs three runs; one that does not settle in time says so and is measured as it is.

Clocks that wait at a low step before they rise agree with themselves as well. So where the kernel
reads the clock itself, the load goes on while that rises; and once in a context also while it is
far below the highest there is, for a while: some laptops never go further.

The multiprocessor itself says what its clock is, no NVML is asked: the first thread of each large
kernel adds up its cycles and nanoseconds (``instructions.cuh``). What was added between two
readings is the clock at which the launches between them ran. The timer's tick is taken from its
readings, which are whole ticks all of them.
"""

from __future__ import annotations

import math
import struct
import time
from operator import sub, truediv

from gpud.child.device import BLOCK, plausible
from gpud.core.record import Record
from gpud.core.stats import median

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Final

    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Call, Kernel
    from gpud.child.modules import Stamps
    from gpud.child.progress import Budget
    from gpud.core.sample import Condition

RUN_S, MOST_GPU_S = 0.0005, 0.003
"""Of a small probe, one run and all of them."""
LONGEST_S = 1.0
RISING, LOW = 1.01, 0.75
"""Over three runs; and as a share of the highest clock."""
LOW_CLOCK_S = 0.1
"""GPU time in a context that a low clock gets to rise."""
WAKES_S = 0.1
"""A warm-up that may use less cannot wake a GPU, and does not wait for it."""
BODY = 16  # bytes of a float4
MOST_BODIES = 1 << 18
SHARE = 4  # of free memory: a quarter at most
UNIT_FLOAT = 0x3F800000  # 1.0f: which bodies, is all the same to the clocks
EPS2 = 0.01
LEAST_HZ, MOST_HZ = 5e7, 5e9
"""What an SM clock can be: idle GPUs go down to some 100 MHz, none is above 3.5 GHz."""
WITHIN: Final = 0.005
"""Share of a batch that the timer's tick may hide."""
NS_PER_S: Final = 1e9


class SmClock:
    """The clock of one kernel's launches, batch by batch. ``absent``: why there is none."""

    def __init__(self, gpu: Gpu, kernel: Kernel) -> None:
        """Read where the sums stand. Errors: ``ProbeError``."""
        self._gpu, self._kernel, self._tick_ns = gpu, kernel, 0
        self.absent: str | None = None
        self._stamps = gpu.modules.stamps(kernel)
        if self._stamps is None:
            self.absent = f"the driver gives no access to the clocks that {kernel.name} reads"
        else:
            self._last = self._read(self._stamps)

    def hertz(self, launches: int) -> float | None:
        """Return the clock of the ``launches`` since the last reading; None: ``absent`` says why.

        Units: Hz. Errors: ``ProbeError``.
        """
        if self._stamps is None:
            return None
        before, self._last = self._last, self._read(self._stamps)
        cycles, ns, stamped, _ = map(sub, self._last, before)
        moments = self._last[3] - before[3] if before[3] else 0
        self._tick_ns = math.gcd(self._tick_ns, ns, moments)
        hertz = cycles / ns * NS_PER_S if ns > 0 else 0.0
        if stamped != launches:
            self.absent = f"{stamped} launches have read their clocks, and not {launches}"
        elif not LEAST_HZ <= hertz <= MOST_HZ:
            self.absent = f"{cycles} cycles in {ns} ns are no clock of a GPU"
        self._span = launches, ns
        return None if self.absent else hertz

    def conditions(
        self, clocks: Sequence[float | None], rates: Sequence[float]
    ) -> dict[str, Condition]:
        """Give the clock of timed batches and the work of a cycle, or why there is none.

        And the machine code, which the driver's compiler makes.
        """
        code = {"code": self._gpu.modules.code(self._kernel)}
        if self.absent is None:
            launches, ns = self._span
            if self._tick_ns * math.sqrt(launches) > WITHIN * ns:
                self.absent = (
                    f"the GPU's timer ticks every {self._tick_ns} ns: too seldom for {launches} "
                    f"launches, whose first blocks take {ns} ns"
                )
        hertz = [clock for clock in clocks if clock is not None]
        if self.absent is not None:
            return {"sm_clock_absent": self.absent, **code}
        return {
            "sm_clock_hertz": median(hertz),
            "sm_clock_min_hertz": min(hertz),
            "sm_clock_max_hertz": max(hertz),
            "work_per_cycle": median(list(map(truediv, rates, hertz))),
            **code,
        }

    def _read(self, stamps: Stamps) -> tuple[int, int, int, int]:
        """Return cycles, nanoseconds and launches so far, and the moment the last one ended."""
        *ends, launches, moment = struct.unpack("<4Q", self._gpu.download(stamps.ends))
        begins = struct.unpack("<2Q", self._gpu.download(stamps.begins))
        cycles, ns = ((end - begin) % 2**64 for end, begin in zip(ends, begins, strict=True))
        return cycles, ns, launches, moment


class Warmth(Record):
    """How a warm-up ended. ``settled``: the last three runs agreed."""

    settled: bool
    gpu_s: float  # device time it took, the pilot included
    runs: int

    @property
    def conditions(self) -> dict[str, Condition]:
        """How it ended, beside the figures of a run."""
        return {"settled": self.settled, "warm_up_runs": self.runs}


def warm(
    gpu: Gpu, budget: Budget, *, run_s: float = RUN_S, most_gpu_s: float = MOST_GPU_S
) -> Warmth:
    """Load the GPU until it runs evenly, for a second of wall time at most.

    ``run_s`` is what one run shall take and ``most_gpu_s`` what all may: no run is started that
    would exceed it, as far as the one before can tell.
    Errors: ``ProbeError``.
    """
    load, used_s = sized(gpu, run_s)
    taken: list[float] = []
    waking = Waking(gpu, load.call) if most_gpu_s >= WAKES_S else None

    def run() -> float:
        taken_s = load.timed()
        if waking:
            waking.read(1)
        return taken_s

    calm = settle(run, budget, most_gpu_s - used_s, taken, first_s=run_s, waking=waking)
    load.close()
    return Warmth(calm, used_s + sum(taken), len(taken))


def settled(values: Sequence[float], *, runs: int = 3, within: float = 0.02) -> bool:
    """Say whether the last ``runs`` values agree within a relative spread: the clocks are up."""
    recent = values[-runs:]
    return len(recent) == runs and min(recent) > 0 and max(recent) / min(recent) <= 1 + within


def settle(  # noqa: PLR0913  # the last two have one use each
    run: Callable[[], float],
    budget: Budget,
    most_gpu_s: float,
    taken: list[float],
    *,
    first_s: float = 0.0,
    waking: Waking | None = None,
) -> bool:
    """Repeat ``run`` until three in a row agree within 2 %, a second of wall time at most.

    And until ``waking``, to which ``run`` adds, says that the clocks are up.

    ``taken`` gets the seconds of each; no run is begun that would bring them above ``most_gpu_s``,
    as far as the one before can tell, or ``first_s`` for the first.
    The result says whether they agreed. Errors: ``ProbeError``.
    """
    until = time.monotonic() + LONGEST_S
    while time.monotonic() < until:
        if settled(taken) and not (waking and waking.goes_on(taken[-1])):
            break
        if sum(taken) + (taken[-1] if taken else first_s) > most_gpu_s:
            break
        taken.append(run())
        budget.check()
    return settled(taken)


class Waking:
    """The SM clocks of a warm-up, and whether they still have to rise."""

    def __init__(self, gpu: Gpu, call: Call) -> None:
        """Errors: ``ProbeError``."""
        self._gpu = gpu
        self.clock = SmClock(gpu, call.kernel) if call.kernel else None
        self._peak = gpu.peak_hertz() if self.clock else None
        self.hertz: list[float | None] = []

    def read(self, launches: int) -> None:
        """Note the clock of a run of so many launches. Errors: ``ProbeError``."""
        self.hertz.append(self.clock.hertz(launches) if self.clock else None)

    def conditions(self, rates: Sequence[float]) -> dict[str, Condition]:
        """Give the clocks of the last batches, of these rates, and the machine code they ran."""
        if self.clock is None:
            return {}
        return self.clock.conditions(self.hertz[-len(rates) :], rates)

    def goes_on(self, run_s: float) -> bool:
        """Say whether the clock rises, or is low and may rise yet, after one more agreeing run."""
        recent = [hertz for hertz in self.hertz[-3:] if hertz is not None]
        if len(recent) < 3:  # noqa: PLR2004  # as many as have to agree
            return False
        if recent[-1] > RISING * recent[0]:
            return True
        if self._peak is None or recent[-1] >= LOW * self._peak:
            return False
        context = self._gpu.context
        context.low_clock_s += run_s
        return context.low_clock_s < LOW_CLOCK_S


def sized(gpu: Gpu, seconds: float) -> tuple[Load, float]:
    """Make a load of about ``seconds``, less where memory is short; and say what that has taken.

    Errors: ``ProbeError``.
    """
    step = BLOCK * gpu.sm_count
    pilot = Load(gpu, step)
    first_s, pilot_s = pilot.timed(), pilot.timed()  # the first one after idle wakes the GPU up too
    pilot.close()
    if seconds < pilot_s:  # fewer blocks than multiprocessors: the time is that of a single one
        n = max(BLOCK, int(step * seconds / pilot_s) // BLOCK * BLOCK)
    else:
        room = min(MOST_BODIES, gpu.memory()[0] // SHARE // (2 * BODY))
        n = step * max(1, min(int(math.sqrt(seconds / pilot_s)), room // step))
    return Load(gpu, n), first_s + pilot_s


class Load:
    """Work of known size that means nothing: forces of ``n`` bodies, all in one place."""

    def __init__(self, gpu: Gpu, n: int) -> None:
        """Take the memory. ``n`` is a multiple of 256; work grows with its square."""
        self._gpu, self._n = gpu, n
        self.seconds = 0.0  # what it took last time
        self._buffers = [gpu.alloc(n * BODY) for _ in range(2)]
        pos, acc = self._buffers
        gpu.fill(pos, UNIT_FLOAT)
        kernel = gpu.kernel("gpud_nbody")
        self.call: Call = gpu.launch(kernel, (n // BLOCK, 1), (BLOCK, 1), pos, acc, n, EPS2)

    def timed(self) -> float:
        """Run it once. Units: seconds of device time. Errors: ``ProbeError``, also for none."""
        self.seconds = plausible(self._gpu.timed(self.call), "the warm-up")
        return self.seconds

    def doubled(self) -> Load:
        """Make a load of twice as many bodies, which is four times the work."""
        return Load(self._gpu, 2 * self._n)

    def close(self) -> None:
        """Give the memory back."""
        for buffer in self._buffers:
            self._gpu.free(buffer)
