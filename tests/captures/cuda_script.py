"""A recorded inventory of CUDA -> the script of a stand-in library that offers the same GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.core.sample import Reason
from tests.captures.nvml_script import CannotReplay

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.sample import Device, Inventory


def script(cuda: Inventory, uuids: Mapping[str, str]) -> str | None:
    """Give the script, None where there was no library.

    ``uuids`` are those of whole GPUs by slot, "0000:01:00.0": an instance has one of its own.
    Errors: ``CannotReplay`` for a failure other than a missing library or a refused call.
    """
    failure = cuda.failure
    if failure is not None:
        if failure.reason is Reason.LIBRARY_MISSING:
            return None
        if failure.function is None or not failure.code:
            raise CannotReplay(f"CUDA: {failure.detail}")
        return f"fail {failure.function} {failure.code}\n"
    if cuda.cuda_version is None:
        raise CannotReplay("CUDA without a version")
    major, _, minor = cuda.cuda_version.partition(".")
    lines = [f"driver_version {int(major) * 1000 + int(minor) * 10}"]
    lines.append(f"devices {len(cuda.devices)}")
    for device in cuda.devices:
        lines += [f"device.{device.index}.{key} {value}" for key, value in _keys(device, uuids)]
    return "\n".join([*lines, ""])


def _keys(device: Device, uuids: Mapping[str, str]) -> list[tuple[str, object]]:
    major, _, minor = device.compute_capability.partition(".")
    keys: list[tuple[str, object]] = [
        ("pci_bus_id", device.pci_bus_id),
        ("cc_major", major),
        ("cc_minor", minor),
        ("sm_count", device.sm_count),
        ("l2_bytes", device.l2_bytes),
        ("total_mem", device.memory_total_bytes),
        ("free_mem", device.memory_total_bytes * 7 // 8),  # an inventory makes no context
    ]
    whole = device.uuid.removeprefix("GPU-")
    name = device.name
    if device.mig is not None:
        keys += [("mig", device.mig), ("mig_uuid", device.uuid.removeprefix("MIG-"))]
        whole = uuids.get(device.pci_bus_id, "").removeprefix("GPU-")
        name = name.removesuffix(f" MIG {device.mig}")
        if not whole:
            raise CannotReplay(f"{device.uuid} on a GPU without a UUID")
    if device.mps:
        keys.append(("mps", 1))
    return [("name", name), ("uuid", whole), *keys]
