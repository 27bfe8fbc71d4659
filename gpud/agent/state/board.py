"""The one place that holds the current snapshot: events in, a finished value out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from gpud.core.health import Health, Level

if TYPE_CHECKING:
    from gpud.agent.state.events import Event
    from gpud.agent.state.snapshot import Snapshot

log = structlog.get_logger()


class Board:
    """Swaps in each new snapshot with one assignment and logs every change of health once.

    ``changed`` is set after each event.
    """

    def __init__(self, first: Snapshot) -> None:
        self._snapshot = first
        self.changed = asyncio.Event()

    def read(self) -> Snapshot:
        """Give the current snapshot, finished and frozen."""
        return self._snapshot

    def post(self, event: Event) -> None:
        """Apply ``event`` and publish the result."""
        before, self._snapshot = self._snapshot, event.apply(self._snapshot)
        for component, health in self._snapshot.health.items():
            _log(component, before.health.get(component), health)
        self.changed.set()


def _log(component: str, before: Health | None, after: Health) -> None:
    if before is not None and (before.level, before.reason) == (after.level, after.reason):
        return
    if after.level is Level.OK:
        if before is not None:
            log.info("health_restored", component=component)
        return
    write = log.error if after.level is Level.FAILED else log.warning
    write(
        "health_changed",
        component=component,
        level=after.level.name.lower(),
        reason=str(after.reason),
        detail=after.detail,
        fix=after.fix,
    )
