"""Age of this machine, and when GPU work may begin in a WSL2 that has just started."""

from __future__ import annotations

import math
import time
from pathlib import Path

from gpud import regular_file


def boot_rest_s(grace_s: float, sysroot: str) -> float:
    """Give the seconds until GPU work may begin in a WSL2 with this ``/proc/uptime``.

    Right after its start WSL2's GPU is not ready, and a CUDA call may hang or spoil it for the life
    of the virtual machine. Where the file says nothing, CLOCK_BOOTTIME does, which is that of this
    machine: below another ``sysroot`` an age that is not known holds nothing back.
    """
    uptime = regular_file.text(Path(sysroot, "proc/uptime"))
    try:
        age_s = float((uptime or "").split()[0])
    except (IndexError, ValueError):
        age_s = -1.0
    if not 0 <= age_s < math.inf:
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) if sysroot == "/" else math.inf
    return max(grace_s - age_s, 0.0)
