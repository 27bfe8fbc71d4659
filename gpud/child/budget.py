"""Time limits of one run, checked between batches together with the life of the parent process."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from gpud.core.errors import GpudError, ProbeError
from gpud.core.sample import Failure, Reason

if TYPE_CHECKING:
    from gpud.child.progress import Progress

TOO_SLOW = "what was measured is busy or much slower than usual; the next run may do better"


class Orphaned(GpudError):  # noqa: N818  # reads as the fact it states
    """The process that asked for this run is gone: end quietly, after synchronising."""


class Budget:
    """The wall time of one run without its start-up, and the GPU time it may use.

    Units: seconds, on the monotonic clock and as the GPU counts them.
    """

    def __init__(
        self, seconds: float, gpu_s: float = 1.0, progress: Progress | None = None
    ) -> None:
        self.seconds = seconds
        self.gpu_s = gpu_s
        self._progress = progress
        self._started = time.monotonic()
        self._parent = os.getppid()

    def spent(self) -> float:
        """Give the seconds since the start, less those of start-up."""
        start_s = 0.0 if self._progress is None else self._progress.start_s
        return time.monotonic() - self._started - start_s

    def check(self) -> None:
        """Say whether to go on; called between batches, never inside a timed region.

        Errors: ``ProbeError`` (budget_exceeded); ``Orphaned`` where the parent has changed.
        """
        if os.getppid() != self._parent:
            raise Orphaned("the process that asked for this run is gone")
        if self.spent() > self.seconds:
            raise ProbeError(
                Failure(
                    Reason.BUDGET_EXCEEDED,
                    f"not finished within {self.seconds:g} s",
                    advice=TOO_SLOW,
                )
            )
