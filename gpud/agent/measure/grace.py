"""Grace of a boot: when GPU work may begin in a WSL2 that has just started.

By the age of the virtual machine; longer where the catalogue of known faults names its GPU.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpud import regular_file
from gpud.agent.history import queries, reader
from gpud.agent.state.presence import remembered
from gpud.core import advice, wsl
from gpud.core.clock import Instant
from gpud.core.errors import StoreError
from gpud.known_issues.catalogue import catalogue
from gpud.known_issues.matching import MachineFacts, boot_grace_s
from gpud.show.words import GPU_WORK_BEGINS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.settings import Settings


def gpu_from(settings: Settings, machine: Mapping[str, str], now: Instant) -> Instant | None:
    """Give when GPU work may begin, None for at once; ``machine`` are the facts of this machine.

    Later than the settings say where the catalogue of known faults names this machine's GPU.
    """
    uptime, grace_s = (
        regular_file.text(Path(settings.sysroot, "proc/uptime")),
        settings.gate.boot_grace_s,
    )
    if advice.of(machine) is not advice.Platform.WSL2 or not grace_s:
        return None
    longest_s = max(entry.boot_grace_s for entry in catalogue())
    if grace_s < longest_s and wsl.boot_rest_s(longest_s, uptime):
        grace_s = max(grace_s, _grace_of_gpus_s(settings, machine))
    rest_s = wsl.boot_rest_s(grace_s, uptime)
    return Instant(now.wall_s + rest_s, now.mono_s + rest_s) if rest_s else None


def _grace_of_gpus_s(settings: Settings, machine: Mapping[str, str]) -> float:
    """Return the catalogue's grace for the GPUs that the history expects here: CUDA is not asked.

    Errors: none; a GPU that is not known has none.
    """
    try:
        events = reader.read(Path(settings.state_dir), queries.gpu_events)
    except StoreError:
        return 0.0
    expected = remembered((entry.at_s, entry.kind, entry.body) for entry in events)
    kernel = machine.get("kernel")
    return max(
        (
            boot_grace_s(catalogue(), MachineFacts("wsl2", None, kernel, None, None, capability))
            for capability in {
                gpu.compute_capability for gpu in expected.values() if not gpu.gone_s
            }
            if capability
        ),
        default=0.0,
    )


def begins(at: Instant) -> str:
    """Return the sentence that says when GPU work begins."""
    return GPU_WORK_BEGINS.format(moment=time.strftime("%X", time.localtime(at.wall_s)))
