"""Changes of driver and machine: their facts, compared after each answer and stored by a task.

They are shown and start no alert: runs do, by the versions stored with them. A change that was
published and not yet written when gpud is killed is detected again by the next.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import structlog
from msgspec.structs import asdict, replace

from gpud.agent.history import queries, records
from gpud.agent.history.queries import MOST_EVENTS, Window
from gpud.agent.history.records import Entry
from gpud.agent.state import presence
from gpud.agent.state.facts import (
    BOOT_ID,
    GPUS,
    KINDS,
    Fact,
    FactsSoFar,
    changed,
    real,
    recalled,
    versions,
)
from gpud.agent.state.presence import GPU_FORGOTTEN, GPU_SEEN
from gpud.agent.state.snapshot import ChangesState
from gpud.agent.state.telemetry import with_answer
from gpud.core import telemetry
from gpud.core.errors import StoreError
from gpud.document.machine import ChangeReport, Expected

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence

    from gpud.agent.history.store import History
    from gpud.agent.state.board import Board
    from gpud.agent.state.snapshot import Snapshot
    from gpud.agent.telemetry.answers import Answer
    from gpud.core.clock import Instant
    from gpud.core.sample import Condition

MOST_CHANGES: Final = 16
AGAIN_S: Final = 5.0
"""How soon a history that could not be read is tried again."""

log = structlog.get_logger()


class ChangeDetection:
    """Compares driver and machine after each answer with what they were, in earlier lives too.

    ``run`` reads the history and writes to it. Until it has been read there is nothing to compare
    with, and a change waits.
    """

    def __init__(
        self, history: History, board: Board, now: Callable[[], Instant], boot_id: str
    ) -> None:
        self._history = history
        self._board = board
        self._now = now
        self._boot_id = boot_id
        self._facts: FactsSoFar | None = None  # until the history has been read
        self._noted: frozenset[str] = frozenset()  # GPUs that the history has
        self._queued = asyncio.Event()

    def answered(self, answer: Answer) -> None:
        """Publish the answer of a telemetry source, then what it changed."""
        gpus, telemetry = with_answer(self._board.read(), answer)
        self._board.publish(gpus=gpus, telemetry=telemetry)
        self.compare()

    async def forget(self, gpus: Mapping[str, Expected], uid: int) -> None:
        """Expect these GPUs no longer, until they are listed again. Errors: ``StoreError``."""
        now_s = self._now().wall_s
        entries = [
            Entry(now_s, GPU_FORGOTTEN, {"uuid": uuid, "name": gpu.name, "uid": uid})
            for uuid, gpu in gpus.items()
        ]
        await self._history.write(records.write_events, entries)
        expected = await self._history.read(queries.expected_gpus)
        self._noted = _noted(expected)
        self._board.publish(changes=replace(self._board.read().changes, expected=expected))
        self.compare()

    async def run(self) -> None:
        """Read the history, then write what changes; never ends."""
        while self._facts is None:
            try:
                await self.begin()
            except StoreError:  # reported by the runs that cannot be written either
                await asyncio.sleep(AGAIN_S)
        while True:
            await self._queued.wait()
            self._queued.clear()
            with contextlib.suppress(StoreError):  # likewise; written with the next run
                await self._history.append()

    async def begin(self) -> None:
        """Continue what the history ends with. Errors: ``StoreError``."""
        last, latest, expected = await self._history.read(_past)
        self._facts, self._noted = recalled(last), _noted(expected)
        changes = replace(self._board.read().changes, expected=expected, latest=latest)
        self._board.publish(changes=changes)
        self.compare()

    def compare(self) -> None:
        """Compare driver and machine with what they were; publish and store what changed."""
        if self._facts is None:
            return
        snapshot, now = self._board.read(), self._now()
        facts_now = facts(snapshot, now.mono_s, self._boot_id)
        self._facts, changes = changed(self._facts, facts_now, now.wall_s, self._boot_id)
        if shown := real(changes):
            for change in shown:
                log.info("changed", kind=change.kind, old=change.old, new=change.new)
            self._board.publish(changes=with_changes(snapshot.changes, shown))
        entries = [_entry(change) for change in changes]
        inventory = snapshot.measure.inventory
        for device in () if inventory is None else inventory.devices:
            if device.uuid not in self._noted:
                self._noted |= {device.uuid}
                names = ("uuid", "name", "compute_capability")
                body: dict[str, Condition] = {name: getattr(device, name) for name in names}
                entries.append(Entry(now.wall_s, GPU_SEEN, body))
        if entries:
            self._history.enqueue(*entries)
            self._queued.set()


def with_changes(state: ChangesState, changes: Sequence[ChangeReport]) -> ChangesState:
    """Keep the latest changes and count them by kind; ``changes`` holds no first sight."""
    counts = dict(state.counts)
    for change in changes:
        counts[change.kind] = counts.get(change.kind, 0) + 1
    latest = (*state.latest, *changes)[-MOST_CHANGES:]
    return replace(state, latest=latest, counts=counts)


def _past(
    connection: sqlite3.Connection,
) -> tuple[dict[str, ChangeReport], tuple[ChangeReport, ...], dict[str, Expected]]:
    """Return the last change of each fact, the latest changes and the GPUs of earlier lives."""
    last = {kind: _change(entry) for kind, entry in queries.last_changes(connection).items()}
    changes = map(_change, queries.events(connection, Window(kinds=KINDS, limit=MOST_EVENTS)))
    return last, tuple(reversed(real(changes)[:MOST_CHANGES])), queries.expected_gpus(connection)


def _noted(expected: Mapping[str, Expected]) -> frozenset[str]:
    """Return the GPUs of which the history has all; an older gpud noted less."""
    return frozenset(uuid for uuid, gpu in expected.items() if gpu.compute_capability)


def _entry(change: ChangeReport) -> Entry:
    body = asdict(change)
    return Entry(body.pop("at_s"), body.pop("kind"), body)


def _change(entry: Entry) -> ChangeReport:
    old, level = entry.body.get("old"), entry.body.get("level")
    return ChangeReport(
        entry.kind,
        None if old is None else str(old),
        str(entry.body.get("new") or ""),
        entry.at_s,
        str(entry.body.get("boot_id") or ""),
        level if isinstance(level, int) else 0,
    )


CUDA_LISTS: Final = len(telemetry.LEVELS)
"""Above every source of telemetry: the GPUs that CUDA lists are those that work can be done on."""


def facts(snapshot: Snapshot, now_mono_s: float, boot_id: str) -> dict[str, Fact]:
    """Give what telemetry, CUDA and the kernel say now, by kind; what nobody says is left out."""
    facts_now = versions(snapshot, now_mono_s)
    if boot_id:
        facts_now[BOOT_ID] = Fact(boot_id)
    inventory, look = snapshot.measure.inventory, snapshot.measure.inventory_mono_s
    if inventory is None or not presence.answered(inventory):
        return facts_now
    # No device says nothing of a GPU that others do see: so speaks a driver that was replaced.
    if inventory.failure is None or not presence.shown_by_others(snapshot):
        uuids = sorted(device.uuid for device in inventory.devices)
        facts_now[GPUS] = Fact(",".join(uuids), CUDA_LISTS, look)
    return facts_now
