"""Numbers of GPUs: assigned once, valid as long as the agent lives, never given to another GPU.

CUDA's and NVML's own indices move up when a GPU disappears, and a series named after one of them
would go on with the figures of another card. The number here is CUDA's index when the GPU was first
seen, in PCI bus order; a newcomer takes one that nobody has had.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.core.sample import Device, Reading


MIG = "MIG-"
"""How the UUID of an instance begins: CUDA tells that, and NVML tells that of the whole card."""


MOST_GPUS = 64
"""More than any machine has had; a driver that gives new UUIDs all the time shall not grow us."""


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """A GPU that was seen at least once. ``cuda`` is False while only NVML has shown it."""

    number: int
    name: str
    pci_bus_id: str
    cuda: bool


def with_devices(gpus: Mapping[str, KnownGpu], devices: Sequence[Device]) -> dict[str, KnownGpu]:
    """Add what CUDA lists, by UUID.

    A MIG instance has a UUID of its own; the first one takes the number NVML's GPU in the same slot
    has, so that one card keeps one number.
    """
    after = dict(gpus)
    for device in devices:
        before = after.get(device.uuid)
        if before is None and (taken := _only_nvml_has(after, device.pci_bus_id)):
            before = after.pop(taken)
        number = _free(after, device.index) if before is None else before.number
        after[device.uuid] = KnownGpu(number, device.name, device.pci_bus_id, cuda=True)
    present = {device.uuid for device in devices}
    gone = [uuid for uuid in after if uuid not in present]
    for uuid in gone[: max(len(after) - MOST_GPUS, 0)]:  # the oldest first
        del after[uuid]
    return after


def with_uuid(gpus: Mapping[str, KnownGpu], uuid: str) -> dict[str, KnownGpu]:
    """Add a GPU of which nothing but the UUID is known, such as one that a run was asked for."""
    return {uuid: KnownGpu(_free(gpus, 0), "", "", cuda=True), **gpus}


def with_readings(
    gpus: Mapping[str, KnownGpu], readings: Sequence[Reading]
) -> tuple[dict[str, KnownGpu], tuple[Reading, ...]]:
    """Give the readings their GPU's number in place of the source's index, and add GPUs it shows.

    A GPU is recognised by its UUID, else by its slot where one of the two UUIDs is not known or is
    that of a MIG instance; one that tells neither keeps its index. What claims a number that
    another has told better, or first, is nobody's, and left out.
    """
    after = dict(gpus)
    indices = dict.fromkeys(r.gpu for r in readings if r.gpu is not None)
    identities = {index: _identity(readings, index) for index in indices}
    numbers: dict[int, int] = {}
    # Those with a UUID first: who tells less does not get their number.
    for index, identity in sorted(identities.items(), key=lambda item: "uuid" not in item[1]):
        uuid, bus = identity.get("uuid"), identity.get("pci_bus_id", "")
        match = after.get(uuid) if uuid is not None else None
        match = match or next(
            (
                gpu
                for other, gpu in after.items()
                if (uuid is None or other.startswith(MIG)) and same_slot(gpu.pci_bus_id, bus)
            ),
            None,
        )
        if match is None and uuid is not None:
            match = KnownGpu(_free(after, index), identity.get("name", ""), bus, cuda=False)
            after[uuid] = match
        number = index if match is None else match.number
        if number not in numbers.values():
            numbers[index] = number
    present = {identity.get("uuid") for identity in identities.values()}
    gone = [uuid for uuid, gpu in after.items() if uuid not in present and not gpu.cuda]
    for uuid in gone[: max(len(after) - MOST_GPUS, 0)]:  # the oldest first
        del after[uuid]
    return after, tuple(
        r if r.gpu is None else replace(r, gpu=numbers[r.gpu])
        for r in readings
        if r.gpu is None or r.gpu in numbers
    )


def _identity(readings: Sequence[Reading], index: int) -> dict[str, str]:
    """Give the texts that a GPU tells of itself; a reason is none."""
    return {r.field: r.value for r in readings if r.gpu == index and type(r.value) is str}


def same_slot(left: str, right: str) -> bool:
    """Compare PCI addresses: CUDA writes a domain of four digits, NVML one of eight."""
    return bool(left and right) and _slot(left) == _slot(right)


def _slot(bus_id: str) -> str:
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"


def _only_nvml_has(gpus: Mapping[str, KnownGpu], bus_id: str) -> str | None:
    for uuid, gpu in gpus.items():
        if not gpu.cuda and same_slot(gpu.pci_bus_id, bus_id):
            return uuid
    return None


def _free(gpus: Mapping[str, KnownGpu], preferred: int) -> int:
    """Give a number that nobody has had, also of those that are no longer known."""
    return max(preferred, *(gpu.number + 1 for gpu in gpus.values()), 0)
