"""The SM clock of timed batches, by the multiprocessor itself: no NVML is asked.

The first thread of each large kernel adds up its cycles and nanoseconds (``instructions.cuh``).
What was added between two readings is the clock at which the launches between them ran. The timer's
tick is taken from its readings, which are whole ticks all of them.
"""

from __future__ import annotations

import math
import struct
from operator import sub, truediv

from gpud.core.stats import median

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

    from gpud.child.cuda_gpu import Gpu
    from gpud.child.device import Kernel
    from gpud.child.modules import Stamps
    from gpud.core.sample import Condition

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
