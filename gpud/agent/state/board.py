"""Board: the one place that holds the current snapshot, and derives what follows from it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypedDict

import structlog
from msgspec.structs import replace

from gpud.agent.state import health
from gpud.core.health import Health, Level

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Unpack

    from gpud.agent.regression.detector import StreamStanding
    from gpud.agent.state.snapshot import (
        AlertsState,
        ChangesState,
        HttpState,
        MachineState,
        MeasureState,
        PaceState,
        RootState,
        Snapshot,
    )
    from gpud.agent.telemetry.answers import Telemetry
    from gpud.core.streams import StreamKey
    from gpud.document.alerts import FaultReport
    from gpud.document.machine import ListedGpu, StoreSize

log = structlog.get_logger()


class States(TypedDict, total=False):
    """New states of one or more subjects, as ``Snapshot`` names them."""

    machine: MachineState
    gpus: Mapping[str, ListedGpu]
    measure: MeasureState
    pace: PaceState
    telemetry: Telemetry
    changes: ChangesState
    root: RootState
    streams: Mapping[StreamKey, StreamStanding]
    alerts: AlertsState
    http: HttpState
    known_faults: tuple[FaultReport, ...]
    store: StoreSize | None
    health: Mapping[str, Health]


class Board:
    """Swaps in each new snapshot with one assignment and logs every change of health once.

    ``changed`` is set by each; who awaits it clears it.
    """

    def __init__(self, first: Snapshot, now_s: Callable[[], float] = time.time) -> None:
        self._snapshot = first
        self._now_s = now_s
        self.changed = asyncio.Event()

    def read(self) -> Snapshot:
        """Return the current snapshot, finished and frozen."""
        return self._snapshot

    def publish(self, **states: Unpack[States]) -> None:
        """Swap in new states of subjects, and derive the health of the components."""
        before, after = self._snapshot, replace(self._snapshot, **states)
        self._snapshot = health.derived(after, before.health, self._now_s())
        for component, now in self._snapshot.health.items():
            _log(component, before.health.get(component), now)
        self.changed.set()

    def count_process(self) -> None:
        """Count a process that the agent started: gpud publishes its own cost."""
        measure = self._snapshot.measure
        self.publish(measure=replace(measure, children=measure.children + 1))

    def replace_root(self, root: RootState) -> None:
        """Swap in a report of root's that is a later one with the same news: nothing follows."""
        self._snapshot = replace(self._snapshot, root=root)

    def set_health(self, component: str, value: Health) -> None:
        """Publish the health of a component that nothing is derived for, where it is news."""
        before = self._snapshot.health.get(component)
        if health.dated(value, before, self._now_s()) != before:
            self.publish(health={**self._snapshot.health, component: value})


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
