"""A machine that never had a GPU, told from one whose GPU is missing: for ``gpud probe``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

import gpud
from gpud.agent.history import queries, reader
from gpud.agent.measure.clocks import now
from gpud.agent.state.presence import Nothing, nothing_expected, remembered
from gpud.agent.state.snapshot import ChangesState, MachineState, MeasureState, Snapshot
from gpud.agent.telemetry.answers import Telemetry
from gpud.agent.telemetry.collection import SourceContext
from gpud.agent.telemetry.sources import dxg
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.agent.state.snapshot import Expected
    from gpud.core.sample import Inventory
    from gpud.core.settings import Settings


async def reason(
    settings: Settings, platform: Mapping[str, str], inventory: Inventory
) -> Nothing | None:
    """Return why there is no GPU to expect; None where one is expected, or nobody can tell."""
    try:
        expected = await asyncio.to_thread(_expected, Path(settings.state_dir))
    except StoreError:
        return None
    snapshot = Snapshot(
        MachineState(
            gpud.__version__,
            now().wall_s,
            platform=platform,
            library_configured=bool(settings.cuda.library or settings.nvml.library),
        ),
        measure=MeasureState(inventory=inventory),
        changes=ChangesState(expected=expected),
    )
    source = dxg.create(
        SourceContext(
            settings,
            now,
            read=lambda: snapshot,
            spawned=lambda: None,
            started=lambda _: None,
            own=Path(settings.run_dir, "agent"),
        )
    )
    answer = await source.collect(frozenset())
    await source.close()
    return nothing_expected(replace(snapshot, telemetry=Telemetry({dxg.NAME: answer})))


def _expected(directory: Path) -> Mapping[str, Expected]:
    """Read the GPUs that were here; none where there is no history. Errors: ``StoreError``."""
    try:
        events = reader.read(directory, queries.gpu_events)
    except StoreError as error:
        if error.reason != "no_history":
            raise
        return {}
    return remembered((entry.at_s, entry.kind, entry.body) for entry in events)
