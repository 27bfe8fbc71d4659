"""The second GPU of a run that copies between two, and whether this machine has such runs. Pure.

The GPUs form a ring: the peer of each is the next one that CUDA lists, so that every link has runs.
In WSL2 several GPUs in one process are a known cause of crashes (microsoft/WSL#7852), GPU contexts
are few, and there is no access from one GPU to another's memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.core.wsl import is_wsl2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.core.sample import Device


def absence(devices: Sequence[Device], facts: Mapping[str, str]) -> str | None:
    """Return why nothing is copied between GPUs; None where it is.

    ``facts``: as ``MachineState.platform`` has them.
    """
    if is_wsl2(facts.get("kernel", "")):
        return "not on WSL2"
    return None if len(devices) > 1 else "there is no second GPU"


def peer_of(device: Device, devices: Sequence[Device]) -> Device:
    """Return the next GPU of several."""
    uuids = [each.uuid for each in devices]
    return devices[(uuids.index(device.uuid) + 1) % len(devices)]
