"""The interface of a telemetry source, and the context it is created with.

Each public module in ``gpud.agent.telemetry.sources`` is a source: it defines ``NAME``, its
``LEVEL`` (``gpud.core.telemetry.LEVELS``) and ``create(context)``, and ``STARTS_A_PROGRAM = True``
where it does: such a source is asked after all others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from gpud.core.telemetry import LEVELS, Answer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.errors import TelemetryError
    from gpud.core.sample import Reading
    from gpud.core.settings import Settings

OFFERS = ("NAME", "LEVEL", "create")


@dataclass(frozen=True, slots=True)
class Context:
    """What every source may use. ``own`` is the agent's own directory, gone with the boot."""

    settings: Settings
    now: Callable[[], Instant]
    read: Callable[[], Snapshot]
    spawned: Callable[[], None]  # to be called for each helper process
    started: Callable[[str], None]  # to be called with the source's name for each program
    own: Path
    on_battery: Callable[[], bool] = lambda: False

    def answer(
        self,
        source: str,
        begun: Instant,
        readings: tuple[Reading, ...] | TelemetryError,
        *,
        holds_s: float,
    ) -> Answer:
        """Return the answer of a source that was asked at ``begun``: readings, or why none."""
        answer = Answer(
            source,
            LEVELS.index(source),
            begun.wall_s,
            begun.mono_s,
            holds_s=holds_s,
            duration_s=self.now().mono_s - begun.mono_s,
        )
        if isinstance(readings, tuple):
            return replace(answer, readings=readings)
        return replace(answer, reason=readings.reason, detail=str(readings), fix=readings.fix)


class Source(Protocol):
    """One place that numbers come from."""

    async def collect(self, missing: frozenset[str]) -> Answer | None:
        """Return the present readings, or why there are none; None when there is nothing new.

        ``missing`` are the fields that no better source gives now: what costs something to ask is
        asked for those alone. Never raises a ``TelemetryError`` and has a deadline of its own.
        """

    async def close(self) -> None:
        """End what was started."""


@runtime_checkable
class Looking(Protocol):
    """A source that can be asked at any moment, not only when a collection is due."""

    async def look(self, patience_s: float) -> tuple[Reading, ...]:
        """Return readings from now on, not older ones. ``Errors: TelemetryError``, ``slow`` too."""
