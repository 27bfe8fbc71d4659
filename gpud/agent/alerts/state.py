"""The state of all alerts: updated from alarms and conditions, published, kept in the history.

Nothing is lost by a kill in between: a replay adds again what the history does not have yet.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import structlog

from gpud.agent.alerts import components, findings, functions, rows, wording
from gpud.agent.alerts.components import Components
from gpud.agent.alerts.conditions import Conditions
from gpud.agent.alerts.functions import Functions
from gpud.agent.alerts.message import RANK
from gpud.agent.alerts.slowdowns import Incident, Slowdowns, Suspect
from gpud.agent.history import queries, writes
from gpud.agent.history.records import State, encoded
from gpud.core import advice
from gpud.core.advice import Platform
from gpud.core.alerts import FUNCTION_LOST, UNWELL, Alert
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable, Iterator

    from gpud.agent.history.store import History
    from gpud.agent.regression.detector import StreamStanding
    from gpud.agent.regression.evaluation import Evaluator, StreamAlarm
    from gpud.agent.state.board import Board
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.stream_key import StreamKey

TICK_S: Final = 1.0
RETRY_S: Final = 5.0
"""How soon a history that could not be read or written is tried again."""
RENEW_S: Final = 60.0
"""How often it is checked whether what ended has been shown for long enough."""
SHOWN_ENDED_S: Final = 24 * 3600.0
LEDGER, FUNCTIONS = "ledger", "functions"
"""Names of the rows in ``states``."""

log = structlog.get_logger()


class Saved(msgspec.Struct):
    """The row of everything but functions. ``gpus`` names GPUs by UUID: "GPU 0 (NVIDIA T400)"."""

    incidents: list[Incident] = msgspec.field(name="cases", default_factory=list)
    conditions: list[Alert] = msgspec.field(name="plain", default_factory=list)
    suspects: list[Suspect] = []
    gpus: dict[str, str] = {}
    platform: Platform = Platform.WSL2
    version: Literal[1] = 1


class AlertState:
    """The one owner of what fires. ``run`` is its task; the detector's side calls the rest."""

    def __init__(self, history: History, *, board: Board, now: Callable[[], Instant]) -> None:
        self._history = history
        self._board = board
        self._now = now
        self._slowdowns = Slowdowns()
        self._conditions = Conditions()
        self._functions = Functions()
        self._components = Components()
        self._gpus: dict[str, str] = {}
        self._platform = Platform.WSL2
        self._waiting: list[StreamAlarm] = []  # alarms whose causes are not looked up yet
        self._loaded = False
        self._loading, self._writing = asyncio.Lock(), asyncio.Lock()
        self._replaying = False
        self._started_s = now().mono_s
        self._shown: tuple[Alert, ...] = ()
        self._shown_of: object = None
        self._shown_s = 0.0
        self._written: dict[tuple[str, float], Alert] = {}
        self._written_of: object = None
        self._written_to = 0
        self._retry_at_s = 0.0

    @property
    def streams(self) -> frozenset[StreamKey]:
        """The streams on which something rests that fires."""
        return self._slowdowns.streams

    def add(self, alarms: Iterable[StreamAlarm]) -> None:
        """Take in alarms; ``update`` evaluates them."""
        self._waiting += alarms

    async def update(self, evaluator: Evaluator) -> None:
        """Find the causes of new alarms, raise or end alerts, publish and write them.

        Errors: ``StoreError``; what could not be written is published all the same.
        """
        if not self._waiting:
            return
        while self._waiting:
            decided = self._waiting[0]
            snapshot = self._board.read()
            finding = await findings.finding(decided, evaluator, self._history, snapshot)
            self._slowdowns.add(finding, decided.alarm.at_s)
            self._waiting.remove(decided)
        await self.settle()

    def observe(self, stream: StreamKey, standing: StreamStanding, at_s: float) -> None:
        """Take in the state of a stream after a sample."""
        self._slowdowns.observe(stream, standing, at_s)

    def forget(self, stream: StreamKey, at_s: float) -> None:
        """End what rests on a stream that was accepted, reset or removed."""
        self._slowdowns.forget(stream, at_s)

    def acknowledge(self, fingerprint: str, at_s: float) -> None:
        """Note that a person has seen an alert."""
        self._slowdowns.acknowledge(fingerprint, at_s)
        self._conditions.acknowledge(fingerprint, at_s)

    def sync(
        self, name: str, alerts: Iterable[Alert], now_s: float, *, keep: Collection[str] = ()
    ) -> None:
        """Make these the alerts of a name that fire; others end unless ``keep`` has a label."""
        self._conditions.sync(name, alerts, now_s, keep)

    @contextlib.contextmanager
    def replaying(self) -> Iterator[None]:
        """Publish nothing meanwhile: what a replay raises, it may end as well."""
        self._replaying = True
        try:
            yield
        finally:
            self._replaying = False

    async def load(self) -> None:
        """Read what an earlier run of the agent knew, once. Errors: ``StoreError``."""
        async with self._loading:
            if self._loaded:
                return
            past, worked = await self._history.read(_read)
            self._slowdowns.resume(past.incidents, past.suspects)
            self._conditions.resume(past.conditions)
            self._functions.resume(worked)
            self._gpus = past.gpus | self._gpus
            now_s = self._now().wall_s
            firing = {(a.fingerprint, a.starts_s) for a in self._every() if a.firing}
            await self._history.write(rows.end_others, firing, now_s)
            self._loaded = True

    async def run(self) -> None:
        """Look at functions and health, publish and write, every second until cancelled."""
        while True:
            self.step()
            if self._now().mono_s >= self._retry_at_s:
                try:
                    await self.load()
                    await self.settle()
                except StoreError:  # the runs report it, which cannot be written either
                    self._retry_at_s = self._now().mono_s + RETRY_S
            await asyncio.sleep(TICK_S)

    async def settle(self) -> None:
        """Publish what changed and write it. Errors: ``StoreError``; it is written later then."""
        self._publish()
        async with self._writing:
            if self._loaded:
                await asyncio.shield(self._write())

    async def close(self) -> None:
        """Write what is known, if that is possible."""
        with contextlib.suppress(StoreError):
            await self.settle()

    def step(self) -> None:
        """Look at functions and health as they are now."""
        snapshot, now = self._board.read(), self._now()
        self._gpus |= {
            uuid: f"GPU {gpu.number} ({gpu.name})" if gpu.name else f"GPU {gpu.number}"
            for uuid, gpu in snapshot.gpus.items()
        }
        self._platform = advice.of(snapshot.machine.platform)
        before = self._functions.lost
        self._functions.update(snapshot, now)
        lost = self._functions.lost
        for event, losses in (
            ("function_lost", [one for subject, one in lost.items() if subject not in before]),
            ("function_back", [one for subject, one in before.items() if subject not in lost]),
        ):
            for one in losses:
                log.warning(event, subject=list(one.subject), old=one.old, new=one.new)
        alerts = [wording.lost(one, self._gpus, self._platform) for one in lost.values()]
        self._conditions.sync(FUNCTION_LOST, alerts, now.wall_s)
        self._check_components(snapshot, now)
        self._publish()

    def _check_components(self, snapshot: Snapshot, now: Instant) -> None:
        """Raise the alerts of components. Those of an earlier run go on until it is known."""
        health, lost = snapshot.health, {subject.kind for subject in self._functions.lost}
        self._components.update(health, now, lost=lost, pending=self._functions.pending)
        alerts = [
            wording.unwell(name, health[name], now.wall_s) for name in self._components.reported
        ]
        firing = {one.labels.get("component", "") for one in self._conditions.alerts if one.firing}
        early = now.mono_s - self._started_s < components.PATIENCE_S
        unsure = [
            name
            for name in firing - components.covered(lost)
            if name in self._components.failed or (early and name not in health)
        ]
        self._conditions.sync(UNWELL, alerts, now.wall_s, unsure)

    @property
    def _revision(self) -> object:
        changes = self._slowdowns.revision, self._conditions.revision
        return changes, tuple(self._gpus.items()), self._platform

    def _publish(self) -> None:
        """Publish the alerts, if there are others than before."""
        now, revision = self._now(), self._revision
        current = self._shown_of == revision and now.mono_s - self._shown_s < RENEW_S
        if self._replaying or current:
            return
        self._shown_of, self._shown_s = revision, now.mono_s
        shown = _latest(self._every(), now.wall_s)
        unknown = self._board.read().alerts.published_s is None
        if shown != self._shown or (self._loaded and unknown):  # that there are none is news too
            self._shown = shown
            before = self._board.read().alerts
            alerts = msgspec.structs.replace(before, alerts=shown, published_s=now.wall_s)
            self._board.publish(alerts=alerts)

    def _every(self) -> list[Alert]:
        """Return every alert, whenever it ended."""
        incidents = self._slowdowns.incidents
        alerts = [wording.slowdown(one, self._gpus, self._platform) for one in incidents]
        return alerts + self._conditions.alerts

    async def _write(self) -> None:
        """Write changed alerts and the state they were derived from."""
        functions_, file = self._functions.saved(), self._history.opened
        if file != self._written_to:  # it may be a new file
            self._written, self._written_of = {}, None
        state = (self._revision, functions_)
        if self._written_of == state:
            return
        every = {(one.fingerprint, one.starts_s): one for one in self._every()}
        changed = [one for name, one in every.items() if self._written.get(name) != one]
        saved = Saved(
            self._slowdowns.incidents,
            self._conditions.alerts,
            self._slowdowns.suspects,
            self._gpus,
            self._platform,
        )
        now_s = self._now().wall_s
        states = [
            State(name, 0, now_s, encoded(body))
            for name, body in ((LEDGER, saved), (FUNCTIONS, functions_))
        ]

        def write(transaction: sqlite3.Connection) -> None:
            rows.put(transaction, changed)
            writes.states(transaction, states)

        await self._history.write(write)
        self._written, self._written_of, self._written_to = every, state, file


def _latest(alerts: Iterable[Alert], now_s: float) -> tuple[Alert, ...]:
    """Return what fires and what ended within a day, the gravest first, each fingerprint once."""
    shown = [one for one in alerts if one.ends_s is None or one.ends_s > now_s - SHOWN_ENDED_S]
    latest = {
        one.fingerprint: one for one in sorted(shown, key=lambda one: (one.firing, one.starts_s))
    }

    def order(one: Alert) -> tuple[bool, bool, int, float]:
        acknowledged = one.acknowledged_s is not None
        return not one.firing, acknowledged, -RANK[one.severity], -one.starts_s

    return tuple(sorted(latest.values(), key=order))


def _read(connection: sqlite3.Connection) -> tuple[Saved, functions.Saved]:
    """Read what was written; a damaged row is begun anew."""
    past, worked = Saved(), functions.Saved([], [])
    for name in (LEDGER, FUNCTIONS):
        row = queries.state(connection, name)
        if row is None:
            continue
        try:
            if name == LEDGER:
                past = msgspec.json.decode(row.body, type=Saved)
            else:
                worked = msgspec.json.decode(row.body, type=functions.Saved)
        except msgspec.MsgspecError as error:
            log.warning("state_set_aside", name=name, why=str(error))
    return past, worked
