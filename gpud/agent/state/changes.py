"""Changes of driver and machine: their facts, compared after each answer and stored by a task.

A change that was published and not yet written when gpud is killed is detected again by the next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
from msgspec.structs import replace

from gpud.agent.history import queries, records
from gpud.agent.history.queries import MOST_EVENTS, Window
from gpud.agent.history.records import Entry
from gpud.agent.history.store import WAITING_LIMIT
from gpud.agent.regression import changes
from gpud.agent.regression.changes import (
    KINDS,
    Fact,
    FactsSoFar,
    MachineChange,
    changed,
    joined,
    real,
    recalled,
)
from gpud.agent.state import presence
from gpud.agent.state.presence import GPU_FORGOTTEN, GPU_SEEN, remembered
from gpud.agent.state.snapshot import ChangesState
from gpud.agent.state.telemetry import with_answer
from gpud.agent.telemetry import answers
from gpud.core import telemetry
from gpud.core.errors import StoreError
from gpud.core.health import Health, Level
from gpud.show.document import Expected

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence

    from gpud.agent.history.store import History
    from gpud.agent.state.board import Board
    from gpud.agent.state.snapshot import Snapshot
    from gpud.agent.telemetry.answers import Answer
    from gpud.core.clock import Instant
    from gpud.core.sample import Condition, Reading

MOST_CHANGES: Final = 16
AGAIN_S: Final = 5.0
"""How soon a history that could not be read or written is tried again, and a lost GPU looked up."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Past:
    """What the history tells of earlier lives: the last word on each kind, the GPUs, what changed.

    Shapes: ``changes`` are the latest, newest last.
    """

    last: Mapping[str, MachineChange]
    expected: Mapping[str, Expected]
    changes: tuple[MachineChange, ...]


class ChangeDetection:
    """Compares driver and machine after each answer. ``run`` reads and writes the history.

    While the history cannot be read, nobody knows what an earlier life saw: changes wait, and what
    was a first sight until then may turn out to be a change.
    """

    def __init__(
        self,
        history: History,
        board: Board,
        now: Callable[[], Instant],
        boot_id: str,
    ) -> None:
        self._history = history
        self._board = board
        self._now = now
        self._boot_id = boot_id
        self._facts = FactsSoFar()
        self._early: list[MachineChange] = []  # seen before the history was read
        self._noted: frozenset[str] | None = None  # GPUs the history knows; None: not read yet
        self._waiting: deque[Entry] = deque()
        self._stirred = asyncio.Event()
        self._troubled = False
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """How many events are in memory only."""
        return len(self._waiting) + len(self._early)

    def answered(self, answer: Answer) -> None:
        """Publish the answer of a telemetry source, then what it changed."""
        gpus, telemetry = with_answer(self._board.read(), answer)
        self._board.publish(gpus=gpus, telemetry=telemetry)
        self.compare()

    async def forget(self, gpus: Mapping[str, Expected], uid: int) -> None:
        """Expect these GPUs no longer, until they are seen again. Errors: ``StoreError``."""
        now_s = self._now().wall_s
        entries = [
            Entry(now_s, GPU_FORGOTTEN, {"uuid": uuid, "name": gpu.name, "uid": uid})
            for uuid, gpu in gpus.items()
        ]
        await self._history.write(records.write_events, entries)
        self._expect(await self._history.read(_expected))

    async def run(self) -> None:
        """Keep what changes, and learn what is expected; never ends."""
        while True:
            await self.settle()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._stirred.wait(), AGAIN_S if self._unfinished() else None
                )
            self._stirred.clear()

    def compare(self) -> None:
        """Compare driver and machine with what they were; publish and store what changed."""
        snapshot, now = self._board.read(), self._now()
        facts_now = facts(snapshot, now.mono_s, self._boot_id)
        self._facts, changes = changed(self._facts, facts_now, now.wall_s, self._boot_id)
        self._tell(real(changes))
        if self._noted is None:
            self._early += changes
            del self._early[:-WAITING_LIMIT]
        else:
            self._enqueue([_entry(change) for change in changes])
            self._note_gpus(snapshot, now.wall_s)
        if self._unfinished():
            self._stirred.set()

    def _tell(self, changes: Sequence[MachineChange]) -> None:
        if not changes:
            return
        for change in changes:
            log.info("changed", kind=change.kind, old=change.old, new=change.new)
        self._board.publish(changes=with_changes(self._board.read().changes, changes))

    def _note_gpus(self, snapshot: Snapshot, now_s: float) -> None:
        """Let the history know of each GPU once, with its name."""
        noted = self._noted or frozenset()
        present = (
            {}
            if snapshot.measure.inventory is None
            else {device.uuid: device.name for device in snapshot.measure.inventory.devices}
        )
        news = {uuid: name for uuid, name in present.items() if uuid not in noted}
        self._noted = noted | news.keys()
        self._enqueue(
            [Entry(now_s, GPU_SEEN, {"uuid": uuid, "name": name}) for uuid, name in news.items()]
        )

    def _enqueue(self, entries: Sequence[Entry]) -> None:
        self._waiting.extend(entries)
        while len(self._waiting) > WAITING_LIMIT:
            self._waiting.popleft()
            self.dropped += 1

    def _unfinished(self) -> bool:
        """Say whether there is something to read or to write."""
        return bool(self._waiting) or self._noted is None

    async def settle(self) -> None:
        """Read what was not read yet and write what waits, if that is possible now."""
        try:
            if self._noted is None:
                self._begin(await self._history.read(_past))
            if self._waiting and (refused := await asyncio.shield(self._write_waiting())):
                raise refused
        except StoreError as error:
            self._troubled = True
            self._say(error)
        else:
            if self._troubled:
                self._troubled = False
                self._board.set_health("store", Health(Level.OK))

    async def _write_waiting(self) -> StoreError | None:
        """Write what waits, or say why it waits on. A cancelled caller does not stop it."""
        batch = tuple(self._waiting)
        self._waiting.clear()
        try:
            await self._history.write(records.write_events, batch)
        except StoreError as error:
            self._waiting.extendleft(reversed(batch))
            return error
        return None

    def _begin(self, past: _Past) -> None:
        """Continue what the history ends with."""
        now_s = self._now().wall_s
        published = real(self._early)
        continued = joined(self._early, past.last)
        self._facts = FactsSoFar(
            {**recalled(past.last).held, **self._facts.held}, self._facts.latest
        )
        self._early = []
        self._noted = frozenset(past.expected)
        changes = self._board.read().changes
        latest = (*real(past.changes), *changes.latest)[-MOST_CHANGES:]
        changes = replace(changes, expected=past.expected, latest=latest)
        self._board.publish(changes=changes)
        moments = {(change.kind, change.new, change.at_s) for change in published}
        self._tell([c for c in real(continued) if (c.kind, c.new, c.at_s) not in moments])
        self._enqueue([_entry(change) for change in continued])
        self._note_gpus(self._board.read(), now_s)

    def _expect(self, expected: Mapping[str, Expected]) -> None:
        """Publish which GPUs are expected now; one that is there is expected again."""
        if self._noted is not None and self._noted - expected.keys():
            self._noted = frozenset(expected)
            changes = replace(self._board.read().changes, expected=expected)
            self._board.publish(changes=changes)
            self._note_gpus(self._board.read(), self._now().wall_s)

    def _say(self, error: StoreError) -> None:
        lost = f", {self.dropped} were dropped" if self.dropped else ""
        detail = f"{error}; {self.waiting} events wait in memory{lost}"
        self._board.set_health("store", Health(Level.FAILED, error.reason, detail, error.fix))


def with_changes(state: ChangesState, changes: Sequence[MachineChange]) -> ChangesState:
    """Keep the latest changes and count them by kind; ``changes`` holds no first sight."""
    counts = dict(state.counts)
    for change in changes:
        counts[change.kind] = counts.get(change.kind, 0) + 1
    latest = (*state.latest, *changes)[-MOST_CHANGES:]
    return replace(state, latest=latest, counts=counts)


def _past(connection: sqlite3.Connection) -> _Past:
    last = {kind: _change(entry) for kind, entry in queries.last_changes(connection).items()}
    changes = queries.events(connection, Window(kinds=KINDS, limit=MOST_EVENTS))
    latest = [_change(entry) for entry in changes]
    return _Past(last, _expected(connection), tuple(reversed(real(latest)[:MOST_CHANGES])))


def _expected(connection: sqlite3.Connection) -> dict[str, Expected]:
    events = queries.gpu_events(connection)
    return remembered((entry.at_s, entry.kind, entry.body) for entry in events)


def _entry(change: MachineChange) -> Entry:
    body = {
        "old": change.old,
        "new": change.new,
        "boot_id": change.boot_id,
        "level": change.level,
    }
    return Entry(change.at_s, change.kind, body)


def _change(entry: Entry) -> MachineChange:
    old, level = entry.body.get("old"), entry.body.get("level")
    return MachineChange(
        entry.kind,
        None if old is None else str(old),
        str(entry.body.get("new") or ""),
        entry.at_s,
        str(entry.body.get("boot_id") or ""),
        level if isinstance(level, int) else 0,
    )


FACT_FIELDS: Final = (
    changes.DRIVER_VERSION,
    changes.NVML_VERSION,
    changes.CUDA_VERSION,
    changes.DRIVER_FOLDER,
)
"""Kinds that are telemetry fields of the machine."""

READ: Final = (changes.KERNEL, changes.WSL_VERSION, changes.WINDOWS_BUILD)
"""Kinds that cannot change while the virtual machine runs."""

FACTS_OF_A_RUN: Final = (*FACT_FIELDS, *READ)
"""What is stored with the figures of a run, under these names."""

CUDA_LISTS: Final = len(telemetry.LEVELS)
"""Above every other source: the GPUs that CUDA lists are those that work can be done on."""


def facts(snapshot: Snapshot, now_mono_s: float, boot_id: str) -> dict[str, Fact]:
    """Give what telemetry, CUDA and the kernel say now, by kind; what nobody says is left out."""
    readings = answers.current(snapshot.telemetry, now_mono_s)
    facts_now = {
        reading.field: _fact(snapshot, reading, str(reading.value))
        for reading in readings
        if reading.gpu is None and reading.field in FACT_FIELDS and _is_text(reading)
    }
    texts = {kind: snapshot.machine.platform.get(kind) for kind in READ} | {
        changes.BOOT_ID: boot_id
    }
    facts_now |= {kind: Fact(text) for kind, text in texts.items() if text}
    gpus = _gpus(snapshot, [r for r in readings if r.field == "uuid" and _is_text(r)])
    return facts_now if gpus is None else {**facts_now, changes.GPUS: gpus}


def run_conditions(snapshot: Snapshot, now_mono_s: float) -> dict[str, Condition]:
    """Give what is to be stored with a run that ended now."""
    current = facts(snapshot, now_mono_s, "")
    return {kind: current[kind].text for kind in FACTS_OF_A_RUN if kind in current}


def _gpus(snapshot: Snapshot, readings: list[Reading]) -> Fact | None:
    """Name the GPUs that CUDA lists; where it could not, those that another source shows.

    That CUDA finds no device says nothing of a GPU that others do see: a driver that was replaced
    under a running machine says the same.
    """
    inventory = snapshot.measure.inventory
    if inventory is None or snapshot.measure.inventory_mono_s is None:
        return None
    readings = [
        reading for reading in readings if reading.source != presence.CUDA
    ]  # its earlier word
    if inventory.failure is None or (presence.answered(inventory) and not readings):
        uuids = sorted(device.uuid for device in inventory.devices)
        return Fact(",".join(uuids), CUDA_LISTS, snapshot.measure.inventory_mono_s)
    if not readings:
        return None
    best = max(readings, key=lambda reading: snapshot.telemetry.answers[reading.source].level)
    shown = sorted(str(reading.value) for reading in readings if reading.source == best.source)
    return _fact(snapshot, best, ",".join(shown))


def _fact(snapshot: Snapshot, reading: Reading, text: str) -> Fact:
    answer = snapshot.telemetry.answers[reading.source]
    return Fact(text, answer.level, answer.taken_mono_s)


def _is_text(reading: Reading) -> bool:
    return type(reading.value) is str  # a reason is a str too, and no fact
