"""CUDA's list of the GPUs, as the probes' children bring it home: nothing is asked here.

Source: the inventory, and of the free memory the last good run on a GPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpud.agent.state.snapshot import fresh, holds_s
from gpud.agent.telemetry.answers import Answer
from gpud.agent.telemetry.fields import plausible
from gpud.core.sample import Reading
from gpud.core.telemetry import LEVELS

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot
    from gpud.agent.telemetry.collection import SourceContext
    from gpud.core.sample import Device

NAME = "cuda"
LEVEL = LEVELS.index(NAME)

FREE = "memory_free_bytes"
FACTS = ("name", "uuid", "pci_bus_id", "compute_capability", "memory_total_bytes")
"""Fields that a ``Device`` has under the same name."""


def create(context: SourceContext) -> Cuda:
    """Create the source."""
    return Cuda(context)


class Cuda:
    """Reads the snapshot, and answers when there is something new in it."""

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self._last: Answer | None = None

    async def collect(self, missing: frozenset[str]) -> Answer | None:  # noqa: ARG002  # costs nothing
        """Return each GPU as CUDA listed it, or why it could not; None when nothing is new."""
        snapshot, now = self._context.read(), self._context.now()
        inventory, taken_mono_s = snapshot.measure.inventory, snapshot.measure.inventory_mono_s
        if inventory is None or taken_mono_s is None:
            return None
        answer = Answer(NAME, LEVEL, now.wall_s - (now.mono_s - taken_mono_s), taken_mono_s)
        if (failure := inventory.failure) is not None:
            answer = replace(
                answer, reason=failure.reason, detail=failure.detail, fix=failure.advice
            )
        else:
            values: list[tuple[int | None, str, object]] = [
                (None, "cuda_version", inventory.cuda_version)
            ]
            for device in inventory.devices:
                values += [(device.index, field, getattr(device, field)) for field in FACTS]
                if (free := self._free(snapshot, device, now.mono_s)) is not None:
                    values.append((device.index, FREE, free))
            readings = (Reading(gpu, f, plausible(f, value), NAME) for gpu, f, value in values)
            large_s = self._context.settings.schedule.large_interval_s
            answer = replace(answer, readings=tuple(readings), holds_s=holds_s(large_s))
        # A clock that was set since did not move the moment of the list.
        if self._last is not None and replace(answer, taken_s=self._last.taken_s) == self._last:
            return None
        self._last = answer
        return answer

    async def close(self) -> None:
        """Nothing was started."""

    def _free(self, snapshot: Snapshot, device: Device, now_s: float) -> object:
        """Return the free memory at the newest run; None if that failed or is too long ago."""
        gpu = snapshot.gpus.get(device.uuid)
        runs = [
            state
            for key, state in snapshot.measure.probes.items()
            if gpu is not None and key.gpu == gpu.number and state.samples
        ]
        newest = max(runs, key=lambda state: state.finished_mono_s or 0.0, default=None)
        if newest is None or newest.report is None or newest.finished_mono_s is None:
            return None
        small_s = self._context.settings.schedule.small_interval_s
        is_fresh = fresh(now_s - newest.finished_mono_s, small_s)
        return newest.report.conditions.get(FREE) if is_fresh else None
