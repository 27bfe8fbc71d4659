"""Grace of a boot: when GPU work may begin in a WSL2 that has just started.

By the age of the virtual machine; longer where the catalogue of known faults names its GPU, and
where no GPU is known yet: which it is only CUDA could tell, and CUDA is what waits.
"""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpud import regular_file
from gpud.agent.history import queries, reader
from gpud.core import wsl
from gpud.core.clock import Instant
from gpud.core.errors import StoreError
from gpud.known_issues.catalogue import catalogue
from gpud.known_issues.matching import MachineFacts, boot_grace_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.settings import Settings


def gpu_from(settings: Settings, machine: Mapping[str, str], now: Instant) -> Instant | None:
    """Give when GPU work may begin, None for at once; ``machine`` are the facts of this machine.

    Later than the settings say where the catalogue of known faults may be about its GPU.
    """
    grace_s, sysroot = settings.gate.boot_grace_s, settings.sysroot
    if not wsl.is_wsl2(machine.get("kernel", "")) or not grace_s:
        return None
    longest_s = max(entry.boot_grace_s for entry in catalogue())
    if grace_s < longest_s and boot_rest_s(longest_s, sysroot):
        grace_s = max(grace_s, _grace_of_gpus_s(settings, machine))
    rest_s = boot_rest_s(grace_s, sysroot)
    return Instant(now.wall_s + rest_s, now.mono_s + rest_s) if rest_s else None


def _grace_of_gpus_s(settings: Settings, machine: Mapping[str, str]) -> float:
    """Return the catalogue's grace for the GPUs that the history expects here: CUDA is not asked.

    Errors: none; where no GPU is known yet, it may be any.
    """
    expected = {}
    with contextlib.suppress(StoreError):
        expected = reader.read(Path(settings.state_dir), queries.expected_gpus)
    present = {gpu.compute_capability or None for gpu in expected.values() if not gpu.gone_s}
    facts = MachineFacts("wsl2", kernel=machine.get("kernel"))
    return max(
        boot_grace_s(replace(facts, compute_capability=capability))
        for capability in present or {None}
    )


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
