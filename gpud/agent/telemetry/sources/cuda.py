"""CUDA's list of the GPUs, as the probes' children bring it home: nothing is asked here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpud.agent.state.snapshot import holds_s
from gpud.agent.telemetry.answers import Answer
from gpud.agent.telemetry.fields import plausible
from gpud.core.sample import Reading
from gpud.core.telemetry import LEVELS

if TYPE_CHECKING:
    from gpud.agent.telemetry.collection import SourceContext

NAME = "cuda"
FACTS = ("name", "uuid", "pci_bus_id", "compute_capability", "memory_total_bytes")
"""Fields that a ``Device`` has under the same name."""


def create(context: SourceContext) -> Cuda:
    """Create the source."""
    return Cuda(context)


class Cuda:
    """Reads the list on the board, and answers once for each."""

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self._taken_mono_s: float | None = None  # of the last list

    async def collect(self) -> Answer | None:
        """Return each GPU as CUDA listed it, or why it could not; None when nothing is new."""
        measure, now = self._context.board.read().measure, self._context.now()
        inventory, taken_mono_s = measure.inventory, measure.inventory_mono_s
        if inventory is None or taken_mono_s is None or taken_mono_s == self._taken_mono_s:
            return None
        self._taken_mono_s = taken_mono_s
        taken_s = now.wall_s - (now.mono_s - taken_mono_s)
        answer = Answer(NAME, LEVELS.index(NAME), taken_s, taken_mono_s)
        if (failure := inventory.failure) is not None:
            return replace(answer, reason=failure.reason, detail=failure.detail, fix=failure.advice)
        values: list[tuple[int | None, str, object]]
        values = [(None, "cuda_version", inventory.cuda_version)]
        if inventory.driver_folder is not None:
            values.append((None, "driver_folder", inventory.driver_folder))
        values += [
            (d.index, field, getattr(d, field)) for d in inventory.devices for field in FACTS
        ]
        readings = (Reading(gpu, f, plausible(f, value), NAME) for gpu, f, value in values)
        interval_s = self._context.board.read().pace.beat.run_s(None)
        return replace(answer, readings=tuple(readings), holds_s=holds_s(interval_s))
