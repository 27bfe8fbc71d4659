"""The GPUs that are expected, and the meaning of none, or one less.

A GPU that was there and is gone is a failure, after a restart too, for the history remembers it. A
machine that never had one and shows no trace of one has nothing to fail. A driver that gives no
list at all says nothing about which GPUs there are. Pure: what was seen comes in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gpud.agent.state.facts import GPUS, uuids
from gpud.core import advice
from gpud.core.advice import Platform, Situation
from gpud.core.health import Health, Level
from gpud.core.sample import Reason
from gpud.document.machine import Expected
from gpud.units import utc

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.sample import Condition, Failure, Inventory

DXG: Final = "dxg"
CUDA: Final = "cuda"
GPU_SEEN, GPU_FORGOTTEN = "gpu_seen", "gpu_forgotten"
"""Events beside the changes: a GPU is expected from the one on, and until the other."""

NAMED: Final = 4
"""GPUs that are gone and named one by one."""

NONE_OFFERED: Final = {
    Platform.CONTAINER: (
        "this container was given no GPU",
        advice.words(Situation.CONTAINER_BLIND, Platform.CONTAINER),
    ),
    Platform.WSL1: ("WSL 1 offers no GPU", "from Windows: wsl --set-version DISTRIBUTION 2"),
    Platform.WSL2: (
        "Windows offers no GPU to this machine",
        (
            "for an NVIDIA GPU: install its driver in Windows, wsl --update, then wsl --shutdown; "
            "gpuSupport=false in .wslconfig switches it off too"
        ),
    ),
    Platform.LINUX: ("this machine has no NVIDIA GPU", None),
}
"""Words and the way to a GPU, where a machine has none."""

_NO_DRIVER: Final = frozenset({Reason.LIBRARY_MISSING, Reason.NO_DEVICE})
"""What CUDA says where there is no GPU. Every other failure comes from a driver that is there."""


_NVML_KNOWS: Final = frozenset(
    {"blocked_by_the_operating_system", "driver_mismatch", "driver_not_loaded", "gpu_is_lost"}
)
"""Reasons of NVML that are CUDA's too when it finds no device."""


def remembered(events: Iterable[tuple[float, str, Mapping[str, Condition]]]) -> dict[str, Expected]:
    """Tell from all events of the history, oldest first, which GPUs to expect, by UUID.

    Shapes: (Unix time, kind, body) of ``gpu_seen``, ``gpu_forgotten`` and the changes of ``gpus``.
    """
    expected: dict[str, Expected] = {}
    for at_s, kind, body in events:
        uuid, listed = body.get("uuid"), body.get("new")
        if kind == GPU_SEEN and isinstance(uuid, str):
            capability = str(body.get("compute_capability") or "")
            expected[uuid] = Expected(str(body.get("name") or ""), compute_capability=capability)
        elif kind == GPU_FORGOTTEN and isinstance(uuid, str):
            expected.pop(uuid, None)
        elif kind == GPUS and isinstance(listed, str):
            expected = _listed(expected, uuids(listed), at_s)
    return expected


def expected(snapshot: Snapshot, now_s: float) -> Mapping[str, Expected]:
    """Return the GPUs to expect: those that CUDA lists, and those that it listed before as gone."""
    before, inventory = snapshot.changes.expected, snapshot.measure.inventory
    if inventory is None or not _all_listed(snapshot, inventory):
        return before
    listed = {
        device.uuid: Expected(device.name, compute_capability=device.compute_capability)
        for device in inventory.devices
    }
    return _listed({**before, **listed}, listed, now_s)


def _all_listed(snapshot: Snapshot, inventory: Inventory) -> bool:
    """Return whether it is known which GPUs there are, also where no GPU needs a driver."""
    no_library = _reason(inventory) is Reason.LIBRARY_MISSING
    return answered(inventory) or (no_library and _exposed(snapshot) == "no")


def answered(inventory: Inventory) -> bool:
    """Say whether the driver gave a list: that it offers no GPU is one."""
    return _reason(inventory) in {None, Reason.NO_DEVICE}


def misses_a_gpu(snapshot: Snapshot) -> bool:
    """Say whether a GPU that was here is missed."""
    return any(gpu.gone_s is not None for gpu in snapshot.changes.expected.values())


def nothing_expected(snapshot: Snapshot) -> Health | None:
    """Return the health of a machine without a GPU to expect; None where one is, or may be."""
    if snapshot.machine.library_configured:
        return None  # whoever names a driver's library expects it to work
    exposed = _exposed(snapshot)
    if exposed == "disabled":
        return Health(
            Level.OK,
            "disabled",
            "[gpu] enabled=false in wsl.conf switches the GPU off",
            "if that is not wanted, remove the line, then from Windows: wsl --shutdown",
        )
    reason = None if snapshot.measure.inventory is None else _reason(snapshot.measure.inventory)
    shown = any(not gpu.cuda for gpu in snapshot.gpus.values())  # by NVML, and never by CUDA
    if snapshot.changes.expected or shown or reason not in {None, *_NO_DRIVER}:
        return None
    platform = advice.of(snapshot.machine.platform)
    if exposed == "no":
        return Health(Level.OK, "no_gpu", *NONE_OFFERED[platform])
    if (exposed, platform, reason) == ("yes", Platform.WSL2, Reason.LIBRARY_MISSING):
        return Health(
            Level.OK,
            "no_gpu",
            "Windows offers a GPU, and no NVIDIA driver for WSL",
            "for an NVIDIA GPU: install its driver in Windows, then wsl --shutdown",
        )
    return None


def cuda(snapshot: Snapshot, nothing: Health | None, devices: Health | None) -> Health | None:
    """Return the health of ``cuda`` by what CUDA last said; ``devices`` is that of the GPUs."""
    inventory = snapshot.measure.inventory
    if inventory is None:
        return None
    failure = inventory.failure
    if failure is None and not inventory.refused:
        return Health(Level.OK)
    if failure is None:  # the others work
        words = "; ".join(each.detail for each in inventory.refused)
        first = inventory.refused[0]
        detail = f"a GPU that CUDA counts cannot be described: {words}"
        return Health(Level.DEGRADED, first.reason, detail, first.advice)
    if nothing is not None:
        return nothing
    fix = _fix_of_others(snapshot, failure) or _lost_fix(devices, failure) or failure.advice
    return Health(Level.FAILED, failure.reason, failure.detail, fix)


def devices(snapshot: Snapshot, nothing: Health | None) -> Health | None:
    """Return the health of ``devices``: whether each GPU that was here still is."""
    inventory, before = snapshot.measure.inventory, snapshot.health.get("devices")
    if inventory is None:
        return before
    if nothing is not None and not inventory.devices:
        return nothing
    if not _all_listed(snapshot, inventory):
        return before
    expected = snapshot.changes.expected
    shown = shown_by_others(snapshot) if inventory.failure is not None else frozenset()
    gone = {
        uuid: gpu for uuid, gpu in expected.items() if gpu.gone_s is not None and uuid not in shown
    }
    if not gone:
        return Health(Level.OK) if inventory.devices or before is not None else None
    words = [_named(snapshot, uuid, gpu) for uuid, gpu in gone.items()]
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    detail = f"CUDA no longer offers {', '.join(words[:NAMED])}{more}"
    fix = _vanished(advice.of(snapshot.machine.platform), tuple(gone))
    return Health(Level.FAILED, "gpu_vanished", detail, fix)


def _fix_of_others(snapshot: Snapshot, failure: Failure) -> str | None:
    """Give the fix where others know why CUDA finds no device: CUDA itself can only guess.

    In WSL2 a GPU that others see while CUDA does not is there, behind a driver that was replaced.
    """
    if failure.reason is not Reason.NO_DEVICE:
        return None
    answer, platform = snapshot.telemetry.answers.get("nvml"), advice.of(snapshot.machine.platform)
    if answer is not None and answer.reason in _NVML_KNOWS:
        return answer.fix
    if platform is Platform.WSL2 and shown_by_others(snapshot):
        return advice.words(Situation.MISMATCH, platform)
    return None


def _lost_fix(devices: Health | None, failure: Failure) -> str | None:
    """Give the fix for a GPU that was here: CUDA itself cannot tell that there ever was one."""
    if devices is None or failure.reason is not Reason.NO_DEVICE:
        return None
    return devices.fix if devices.reason == "gpu_vanished" else None


def _vanished(platform: Platform, gone: tuple[str, ...]) -> str:
    """Say what to do about GPUs that are gone; one is named, so that the words can be copied."""
    words = advice.words(Situation.VANISHED, platform)
    if len(gone) == 1 and gone[0].replace("-", "").isalnum():
        return words.replace(" UUID`", f" {gone[0]}`")
    return words


def _listed(
    expected: Mapping[str, Expected], present: Collection[str], at_s: float
) -> dict[str, Expected]:
    return {
        uuid: replace(
            gpu, gone_s=None if uuid in present else at_s if gpu.gone_s is None else gpu.gone_s
        )
        for uuid, gpu in expected.items()
    }


def _reason(inventory: Inventory) -> Reason | None:
    return None if inventory.failure is None else inventory.failure.reason


def _exposed(snapshot: Snapshot) -> str | float | None:
    """Return whether the machine offers a GPU, as it was seen last: "yes", "no" or "disabled"."""
    answer = snapshot.telemetry.answers.get(DXG)
    readings = () if answer is None else answer.readings
    return next((reading.value for reading in readings if reading.field == "exposed"), None)


def shown_by_others(snapshot: Snapshot) -> frozenset[str]:
    """Name the GPUs that NVML or nvidia-smi sees: with no list of CUDA's, those are not gone.

    Answers that were too old when CUDA was asked do not count.
    """
    look_s = snapshot.measure.inventory_mono_s or 0.0
    return frozenset(
        reading.value
        for answer in snapshot.telemetry.answers.values()
        if answer.source != CUDA and answer.holds(look_s)
        for reading in answer.readings
        if reading.field == "uuid" and type(reading.value) is str
    )


def _named(snapshot: Snapshot, uuid: str, gpu: Expected) -> str:
    listed = snapshot.gpus.get(uuid)
    number = "" if listed is None else f" {listed.number}"
    return f"GPU{number} ({gpu.name}, {uuid}) since {utc(gpu.gone_s or 0.0)}"
