"""What CUDA knows of the GPUs, as the probes' children bring it home: nothing is asked here.

Source: the inventory, and of the free memory the last good run on a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent.state.snapshot import fresh, holds_s
from gpud.core.fields import plausible
from gpud.core.sample import Reading
from gpud.core.telemetry import LEVELS, Answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.agent.state.snapshot import ProbeState, Snapshot
    from gpud.agent.telemetry.source import Context
    from gpud.core.sample import Device, Inventory

NAME = "cuda"
LEVEL = LEVELS.index(NAME)

FREE = "memory_free_bytes"


def create(context: Context) -> Cuda:
    """Make the source."""
    return Cuda(context)


class Cuda:
    """Reads the snapshot, and speaks up when there is something new in it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._holds_s = holds_s(context.settings.schedule.large_interval_s)
        self._said: Answer | None = None

    async def collect(self, wanted: frozenset[str]) -> Answer | None:  # noqa: ARG002  # costs nothing
        """Give each GPU as CUDA listed it, or why it could not; None when nothing is new."""
        snapshot, now = self._context.read(), self._context.now()
        inventory, taken_mono_s = snapshot.inventory, snapshot.inventory_mono_s
        if inventory is None or taken_mono_s is None:
            return None
        taken_s = now.wall_s - (now.mono_s - taken_mono_s)
        if self._said is not None and self._said.taken_mono_s == taken_mono_s:
            taken_s = self._said.taken_s  # a clock that was set since did not move that moment
        said = self._answer(snapshot, inventory, taken_s, taken_mono_s, now.mono_s)
        if said == self._said:
            return None
        self._said = said
        return said

    async def close(self) -> None:
        """Nothing was started."""

    def _answer(
        self,
        snapshot: Snapshot,
        inventory: Inventory,
        taken_s: float,
        taken_mono_s: float,
        now_s: float,
    ) -> Answer:
        if inventory.failure is not None:
            failure = inventory.failure
            return Answer(
                NAME,
                LEVEL,
                taken_s,
                taken_mono_s,
                reason=failure.reason,
                detail=failure.detail,
                fix=failure.advice,
            )
        readings = [
            Reading(None, "cuda_version", plausible("cuda_version", inventory.cuda_version), NAME)
        ]
        for device in inventory.devices:
            readings += self._of(snapshot, device, now_s)
        return Answer(NAME, LEVEL, taken_s, taken_mono_s, tuple(readings), holds_s=self._holds_s)

    def _of(self, snapshot: Snapshot, device: Device, now_s: float) -> Iterator[Reading]:
        facts = {
            "name": device.name,
            "uuid": device.uuid,
            "pci_bus_id": device.pci_bus_id,
            "compute_capability": device.compute_capability,
            "memory_total_bytes": device.memory_total_bytes,
        }
        for field, value in facts.items():
            yield Reading(device.index, field, plausible(field, value), NAME)
        free = self._free(snapshot, device, now_s)
        if free is not None:
            yield Reading(device.index, FREE, plausible(FREE, free), NAME)

    def _free(self, snapshot: Snapshot, device: Device, now_s: float) -> object:
        """Give what the newest good run found free, while that may pass for the present."""
        known = snapshot.gpus.get(device.uuid)
        runs: list[ProbeState] = [
            state
            for key, state in snapshot.probes.items()
            if known is not None and key.gpu == known.number and state.samples
        ]
        newest = max(runs, key=lambda state: state.finished_mono_s or 0.0, default=None)
        if newest is None or newest.report is None or newest.finished_mono_s is None:
            return None
        age_s = now_s - newest.finished_mono_s
        small_s = self._context.settings.schedule.small_interval_s
        return newest.report.conditions.get(FREE) if fresh(age_s, small_s) else None
