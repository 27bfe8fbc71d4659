"""Clocks of the GPU while runs go on: one nvidia-smi for all of them, asked every 100 ms.

The figures of a run are the highest of its samples: most of a run is its start, when the GPU idles.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from . import machine
from .processes import ENDS_S, wsl

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELDS = {
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "celsius": "temperature.gpu",
    "watts": "power.draw",
    "memory_mib": "memory.used",
}
INTERVAL_MS = 100
FIRST_S = 30.0
"""So long may nvidia-smi take to its first line: it wakes up a GPU that rests."""

Reading = dict[str, float]


class Clocks:
    """What nvidia-smi has printed, by the moment it came; empty where it does not answer."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, Reading]] = []
        self.begun = threading.Event()  # the first line has come, or none will

    def between(self, first_s: float, last_s: float) -> Reading:
        """Give the highest value of each field in a stretch of the monotonic clock."""
        samples = [sample for at_s, sample in self._samples if first_s <= at_s <= last_s]
        return {
            name: max(sample[name] for sample in samples if name in sample)
            for name in FIELDS
            if any(name in sample for sample in samples)
        }

    def read(self, terminal: int) -> None:
        """Keep every line until there are no more."""
        with (
            open(terminal, encoding="ascii", errors="replace") as lines,
            contextlib.suppress(OSError),  # EIO: the other end is closed
        ):
            for line in lines:
                self._samples.append((time.monotonic(), values(line)))
                self.begun.set()
        self.begun.set()


def values(line: str) -> Reading:
    """Read one line of nvidia-smi; what the driver does not support is absent."""
    found = {}
    for name, text in zip(FIELDS, line.split(","), strict=False):
        with contextlib.suppress(ValueError):
            found[name] = float(text)
    return found


@contextlib.contextmanager
def followed(uuid: str) -> Iterator[Clocks]:
    """Ask nvidia-smi until the end of the block, which begins when it has answered.

    Not in WSL2, where nvidia-smi in a loop has broken the GPU: the kernels read their own clock.
    """
    clocks, smi = Clocks(), machine.nvidia_smi()
    if smi is None or wsl():
        yield clocks
        return
    ours, its = os.openpty()  # into a pipe it might keep its lines until there are many
    command = [smi, f"--id={uuid}", f"--query-gpu={','.join(FIELDS.values())}"]
    command += ["--format=csv,noheader,nounits", f"--loop-ms={INTERVAL_MS}"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=its, stderr=its, start_new_session=True
    )
    os.close(its)
    thread = threading.Thread(target=clocks.read, args=(ours,), daemon=True)
    thread.start()
    try:
        clocks.begun.wait(FIRST_S)
        yield clocks
    finally:
        process.terminate()  # it does no work on the GPU
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_S)
            thread.join()
