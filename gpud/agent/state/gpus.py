"""Numbers of the GPUs: given once, kept as long as the agent lives, never given to another.

CUDA's and NVML's own indices move up when a GPU disappears, and a series named after one of them
would go on with the figures of another card. The number here is CUDA's index when the GPU was first
listed, in PCI bus order; a newcomer takes a number that no GPU has had.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpud.document.machine import ListedGpu

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.core.sample import Device, Reading


def with_devices(gpus: Mapping[str, ListedGpu], devices: Sequence[Device]) -> dict[str, ListedGpu]:
    """Add what CUDA lists, by UUID."""
    after = dict(gpus)
    for device in devices:
        before = after.get(device.uuid)
        number = _free(after, device.index) if before is None else before.number
        after[device.uuid] = ListedGpu(number, device.name, device.pci_bus_id, cuda=True)
    return after


def with_readings(
    gpus: Mapping[str, ListedGpu], readings: Sequence[Reading]
) -> tuple[Mapping[str, ListedGpu], tuple[Reading, ...]]:
    """Replace the source's index in readings by the GPU's number, and add GPUs they show.

    A GPU is recognised by its UUID, where that is missing by its slot; a GPU with neither keeps its
    index. Where two claim one number, the one with a UUID gets it, or the first; the readings of
    the other are dropped.
    """
    after = dict(gpus)
    identities: dict[int, dict[str, str]] = {r.gpu: {} for r in readings if r.gpu is not None}
    for reading in readings:
        if reading.gpu is not None and type(reading.value) is str:
            identities[reading.gpu][reading.field] = reading.value
    numbers: dict[int, int] = {}
    for index, texts in sorted(identities.items(), key=lambda item: "uuid" not in item[1]):
        uuid, slot = texts.get("uuid"), texts.get("pci_bus_id", "")
        if uuid is None:
            in_slot = (gpu for gpu in after.values() if same_slot(gpu.pci_bus_id, slot))
            gpu = next(in_slot, None)
        elif (gpu := after.get(uuid)) is None:
            gpu = ListedGpu(_free(after, index), texts.get("name", ""), slot, cuda=False)
            after[uuid] = gpu
        number = index if gpu is None else gpu.number
        if number not in numbers.values():
            numbers[index] = number
    same = after == gpus  # then it stays the same object, and so does what is made of it
    return gpus if same else after, tuple(
        r if r.gpu is None or r.gpu == numbers[r.gpu] else replace(r, gpu=numbers[r.gpu])
        for r in readings
        if r.gpu is None or r.gpu in numbers
    )


def same_slot(left: str, right: str) -> bool:
    """Compare PCI addresses: CUDA writes a domain of four digits, NVML one of eight."""
    return bool(left and right) and _slot(left) == _slot(right)


def _slot(bus_id: str) -> str:
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"


def _free(gpus: Mapping[str, ListedGpu], wish: int) -> int:
    """Return a number that no GPU has had."""
    return max(wish, *(gpu.number + 1 for gpu in gpus.values()), 0)
