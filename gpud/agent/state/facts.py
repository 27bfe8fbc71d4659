"""Facts of driver and machine: compared for changes, and stored with each run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.regression import changes
from gpud.agent.regression.changes import Fact
from gpud.agent.state import presence
from gpud.agent.telemetry import answers
from gpud.core import telemetry

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.sample import Condition, Reading

TOLD: Final = (
    changes.DRIVER_VERSION,
    changes.NVML_VERSION,
    changes.CUDA_VERSION,
    changes.DRIVER_FOLDER,
)
"""Kinds that are telemetry fields of the machine."""

READ: Final = (changes.KERNEL, changes.WSL_VERSION, changes.WINDOWS_BUILD)
"""Kinds that cannot change while the virtual machine runs."""

BESIDE_A_RUN: Final = (*TOLD, *READ)
"""What is stored with the figures of a run, under these names."""

CUDA_LISTS: Final = len(telemetry.LEVELS)
"""Above every other source: the GPUs that CUDA lists are those that work can be done on."""


def facts(snapshot: Snapshot, now_mono_s: float, boot_id: str) -> dict[str, Fact]:
    """Give what telemetry, CUDA and the kernel say now, by kind; what nobody says is left out."""
    readings = answers.current(snapshot.telemetry, now_mono_s)
    found = {
        reading.field: _fact(snapshot, reading, str(reading.value))
        for reading in readings
        if reading.gpu is None and reading.field in TOLD and _is_text(reading)
    }
    known = {kind: snapshot.machine.platform.get(kind) for kind in READ} | {
        changes.BOOT_ID: boot_id
    }
    found |= {kind: Fact(text) for kind, text in known.items() if text}
    gpus = _gpus(snapshot, [r for r in readings if r.field == "uuid" and _is_text(r)])
    return found if gpus is None else {**found, changes.GPUS: gpus}


def beside_a_run(snapshot: Snapshot, now_mono_s: float) -> dict[str, Condition]:
    """Give what is to be stored with a run that ended now."""
    known = facts(snapshot, now_mono_s, "")
    return {kind: known[kind].text for kind in BESIDE_A_RUN if kind in known}


def _gpus(snapshot: Snapshot, told: list[Reading]) -> Fact | None:
    """Name the GPUs that CUDA lists; where it could not, those that another source shows.

    That CUDA finds no device says nothing of a GPU that others do see: a driver that was replaced
    under a running machine says the same.
    """
    inventory = snapshot.measure.inventory
    if inventory is None or snapshot.measure.inventory_mono_s is None:
        return None
    told = [reading for reading in told if reading.source != presence.CUDA]  # its earlier word
    if inventory.failure is None or (presence.answered(inventory) and not told):
        uuids = sorted(device.uuid for device in inventory.devices)
        return Fact(",".join(uuids), CUDA_LISTS, snapshot.measure.inventory_mono_s)
    if not told:
        return None
    best = max(told, key=lambda reading: snapshot.telemetry.answers[reading.source].level)
    shown = sorted(str(reading.value) for reading in told if reading.source == best.source)
    return _fact(snapshot, best, ",".join(shown))


def _fact(snapshot: Snapshot, reading: Reading, text: str) -> Fact:
    answer = snapshot.telemetry.answers[reading.source]
    return Fact(text, answer.level, answer.taken_mono_s)


def _is_text(reading: Reading) -> bool:
    return type(reading.value) is str  # a reason is a str too, and no fact
