"""The CPU as a device: it times calls, and uses neither time nor memory of a GPU."""

from __future__ import annotations

import os
import time
from functools import cached_property

from gpud.core.errors import ProbeError
from gpud.core.sample import Failure, Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpud.child.device import Call
    from gpud.core.sample import Condition, Job

BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


class Cpu:
    """What a CPU probe runs on: numpy and a clock. ``device`` is None: it is no GPU."""

    def __init__(self) -> None:
        self.device = None
        self.busy_s = 0.0
        self.vram_peak_bytes = self.pinned_peak_bytes = 0
        self.release_errors: dict[str, str] = {}

    @cached_property
    def numpy(self) -> Any:  # noqa: ANN401  # the module
        """numpy, loaded by the first probe that asks. Errors: ``ProbeError``.

        Its BLAS reads how many threads to use when it is loaded. One core is a reference that does
        not depend on what else runs, and it leaves the other cores to the person.
        """
        os.environ.update(dict.fromkeys(BLAS_THREADS, "1"))
        return load_numpy()

    def leave_free(self, job: Job) -> None:
        """Do nothing: the CPU's probes take no GPU memory."""

    def timed(self, call: Call, repeats: int = 1) -> float:
        """Time ``repeats`` calls. Units: seconds of wall time, monotonic."""
        begun = time.perf_counter()
        for _ in range(repeats):
            call.real()
        return time.perf_counter() - begun

    def conditions(self) -> dict[str, Condition]:
        """Give what makes this CPU's figures what they are: the cores this process may use too."""
        cores: dict[str, Condition] = {"cpu_count": len(os.sched_getaffinity(0))}
        used = vars(self).get("numpy")
        return cores if used is None else {"numpy": used.__version__, **cores}


def load_numpy() -> Any:  # noqa: ANN401  # the module
    """Import numpy, which most probes do without. ``Errors: ProbeError`` where it is broken."""
    try:
        import numpy as np
    except ImportError as error:  # a distribution's Python replaced under the environment
        raise ProbeError(
            Failure(
                Reason.DEPENDENCY_MISSING,
                f"numpy does not load: {error}",
                advice="deploy/run sets the environment up again",
            )
        ) from error
    return np
