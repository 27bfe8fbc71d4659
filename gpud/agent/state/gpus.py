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


MIG = "MIG-"
"""The beginning of the UUID of an instance. CUDA gives that; NVML gives that of the whole card."""


def with_devices(gpus: Mapping[str, ListedGpu], devices: Sequence[Device]) -> dict[str, ListedGpu]:
    """Add what CUDA lists, by UUID.

    A MIG instance has a UUID of its own; the first one takes the number NVML's GPU in the same slot
    has, so that one card keeps one number.
    """
    after = dict(gpus)
    for device in devices:
        before = after.get(device.uuid)
        if before is None:
            in_slot = (
                uuid
                for uuid, gpu in after.items()
                if not gpu.cuda and same_slot(gpu.pci_bus_id, device.pci_bus_id)
            )
            if (shown_by_nvml := next(in_slot, None)) is not None:
                before = after.pop(shown_by_nvml)
        number = _free(after, device.index) if before is None else before.number
        after[device.uuid] = ListedGpu(number, device.name, device.pci_bus_id, cuda=True)
    return after


def with_readings(
    gpus: Mapping[str, ListedGpu], readings: Sequence[Reading]
) -> tuple[Mapping[str, ListedGpu], tuple[Reading, ...]]:
    """Replace the source's index in readings by the GPU's number, and add GPUs they show.

    A GPU is recognised by its UUID, else by its slot where one of the two UUIDs is missing or is
    that of a MIG instance; a GPU with neither keeps its index. Where two claim one number, the one
    with a UUID gets it, or the first; the readings of the other are dropped.
    """
    after = dict(gpus)
    identities: dict[int, dict[str, str]] = {r.gpu: {} for r in readings if r.gpu is not None}
    for reading in readings:
        if reading.gpu is not None and type(reading.value) is str:
            identities[reading.gpu][reading.field] = reading.value
    numbers: dict[int, int] = {}
    for index, texts in sorted(identities.items(), key=lambda item: "uuid" not in item[1]):
        uuid, slot = texts.get("uuid"), texts.get("pci_bus_id", "")
        gpu = after.get(uuid) if uuid is not None else None
        gpu = gpu or _in_slot(after, slot, uuid)
        if gpu is None and uuid is not None:
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


def _in_slot(gpus: Mapping[str, ListedGpu], slot: str, uuid: str | None) -> ListedGpu | None:
    """Return the GPU in a slot, unless both it and the reading have a UUID of a whole card."""
    for other, gpu in gpus.items():
        if (uuid is None or other.startswith(MIG)) and same_slot(gpu.pci_bus_id, slot):
            return gpu
    return None


def same_slot(left: str, right: str) -> bool:
    """Compare PCI addresses: CUDA writes a domain of four digits, NVML one of eight."""
    return bool(left and right) and _slot(left) == _slot(right)


def _slot(bus_id: str) -> str:
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"


def _free(gpus: Mapping[str, ListedGpu], wish: int) -> int:
    """Return a number that no GPU has had."""
    return max(wish, *(gpu.number + 1 for gpu in gpus.values()), 0)
