"""The state of all alerts: updated from alarms and health, published, kept in the history.

Each alert has one life: it begins, its words change, it is acknowledged, it ends. Lives are rows of
the table ``alerts``, from which a start goes on; what the alerts rest on (incidents, functions) is
in ``states``. Nothing is lost by a kill in between: a replay adds again what the history lacks.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec
import structlog
from msgspec import structs

from gpud.agent.alerts import causes, functions, wording
from gpud.agent.alerts.functions import Components, Functions, SavedFunctions
from gpud.agent.alerts.message import RANK
from gpud.agent.alerts.slowdowns import AlarmFinding, Incident, Slowdowns
from gpud.agent.history import queries, records
from gpud.agent.history.queries import Sides
from gpud.agent.history.records import SavedState, encoded
from gpud.agent.regression.detector import ChangeKind
from gpud.agent.state.status import alert_report
from gpud.agent.ticks import to_tick_s
from gpud.core import advice, report
from gpud.core.alerts import (
    DRIVER_REGRESSION,
    FUNCTION_LOST,
    SLOWDOWN,
    UNWELL,
    Alert,
    Cause,
)
from gpud.core.errors import StoreError
from gpud.core.health import Level
from gpud.document.alerts import AlertReport

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from gpud.agent.history.store import History
    from gpud.agent.regression.detector import StreamStanding
    from gpud.agent.regression.evaluation import StreamAlarm
    from gpud.agent.state.board import Board
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.advice import Platform
    from gpud.core.clock import Instant
    from gpud.core.streams import StreamKey

UNCHANGED_S: Final = 5.0
"""How often functions and health are looked at while nothing changes."""
RETRY_S: Final = 5.0
"""How soon a history that could not be read or written is tried again."""
REFRESH_S: Final = 60.0
"""How often the words of an alert may change that is the same otherwise: some have a count."""
SHOWN_ENDED_S: Final = 24 * 3600.0
MOST_ENDED: Final = 32
"""Alerts that ended which are published: the latest, of a day."""
MOST_ROWS: Final = 1000
"""Alerts that one request gets; one more shows that there are more."""
COMPARED: Final = 60
"""Runs on either side of a change: an hour's, or what the alarm rests on if that is more."""
OF_INCIDENTS: Final = frozenset({DRIVER_REGRESSION, SLOWDOWN})
LEDGER, FUNCTIONS = "ledger", "functions"
"""Names of the rows in ``states``."""

T = TypeVar("T")

log = structlog.get_logger()


class SavedIncidents(msgspec.Struct):
    """The row of incidents. ``gpus`` names GPUs by UUID: "GPU 0 (NVIDIA T400)"."""

    incidents: list[Incident] = msgspec.field(name="cases", default_factory=list)
    gpus: dict[str, str] = {}
    version: Literal[1] = 1


class AlertState:
    """The one owner of what fires, in this order.

    Regression calls ``add`` (alarms), ``observe`` (streams) and ``acknowledge``, then ``update``,
    which finds causes and words the alerts. At each tick ``run`` calls ``step``, which looks at the
    health of components and functions, and ``settle``, which publishes and writes what changed.
    """

    def __init__(self, history: History, *, board: Board, now: Callable[[], Instant]) -> None:
        self._history = history
        self._board = board
        self._now = now
        self._slowdowns = Slowdowns()
        self._functions = Functions()
        self._components = Components()
        self._alerts: dict[str, Alert] = {}  # by fingerprint: what fires, and what ended last
        self._unwritten: dict[tuple[str, float], Alert] = {}
        self._gpus: dict[str, str] = {}
        self._waiting: list[StreamAlarm] = []  # alarms whose causes are not looked up yet
        self._loaded = self._replaying = False
        self._lock = asyncio.Lock()
        self._started_s = now().mono_s
        self._shown: tuple[Alert, ...] | None = None
        self._worded: object = None  # what the alerts of incidents were last made of
        self._written: tuple[object, ...] = (0,)  # what ``states`` were last made of
        self._retry_at_s = 0.0

    @property
    def streams(self) -> frozenset[StreamKey]:
        """The streams on which something rests that fires."""
        return self._slowdowns.streams

    def add(self, alarms: Iterable[StreamAlarm]) -> None:
        """Take in alarms; ``update`` evaluates them."""
        self._waiting += alarms

    async def update(self) -> None:
        """Find the causes of new alarms, raise or end alerts, publish and write them.

        Errors: ``StoreError``; what could not be written is published all the same.
        """
        if not self._waiting:
            return
        while self._waiting:
            raised = self._waiting[0]
            finding = await _finding(raised, self._history, self._board.read())
            self._slowdowns.add(finding, raised.alarm.at_s)
            self._waiting.remove(raised)
        await self.publish_and_write()

    def observe(self, stream: StreamKey, standing: StreamStanding, at_s: float) -> None:
        """Take in the state of a stream after a sample."""
        self._slowdowns.observe(stream, standing, at_s)

    def forget(self, stream: StreamKey, at_s: float) -> None:
        """End what rests on a stream that was accepted, reset or removed."""
        self._slowdowns.forget(stream, at_s)

    def acknowledge(self, fingerprint: str, at_s: float) -> None:
        """Note that a person has seen an alert; the first time counts."""
        self._word_incidents()
        alert = self._alerts.get(fingerprint)
        if alert is not None and alert.firing and alert.acknowledged_s is None:
            self._set(structs.replace(alert, acknowledged_s=at_s))

    def sync(
        self,
        names: Collection[str],
        alerts: Iterable[Alert],
        now_s: float,
        keep: Collection[str] = (),
    ) -> None:
        """Make ``alerts`` those of ``names`` that fire; others end unless ``keep`` has a label."""
        current = {alert.fingerprint: alert for alert in alerts}
        for fingerprint, alert in current.items():
            before = self._alerts.get(fingerprint)
            same = before is not None and (before.firing or before.starts_s == alert.starts_s)
            latest = _continued(before, alert) if before is not None and same else alert
            if latest != before:
                self._set(latest)
        for fingerprint, alert in [*self._alerts.items()]:
            over = alert.firing and alert.name in names and fingerprint not in current
            if over and set(keep).isdisjoint(alert.labels.values()):
                self._set(
                    structs.replace(alert, ends_s=max(now_s, alert.starts_s), updated_s=now_s)
                )

    @contextlib.contextmanager
    def replaying(self) -> Iterator[None]:
        """Publish nothing meanwhile: what a replay raises, it may end as well."""
        self._replaying = True
        try:
            yield
        finally:
            self._replaying = False

    async def load(self) -> None:
        """Read what an earlier run of the agent wrote, once. Errors: ``StoreError``."""
        async with self._lock:
            if self._loaded:
                return
            since_s = self._now().wall_s - SHOWN_ENDED_S
            alerts, past, worked = await self._history.read(_read, since_s)
            self._slowdowns.incidents = past.incidents
            self._functions.resume(worked)
            self._gpus = past.gpus | self._gpus
            # What fires goes on as it was; what ended does not hide what fires again.
            earlier = {
                alert.fingerprint: alert
                for alert in alerts
                if alert.firing or alert.fingerprint not in self._alerts
            }
            self._alerts |= earlier
            unwritten = self._unwritten.items()
            self._unwritten = {key: alert for key, alert in unwritten if key[0] not in earlier}
            self._loaded = True

    async def run(self) -> None:
        """Look at functions and health, publish and write, at each tick until cancelled.

        While nothing has changed, only time can begin or end something: looks are further apart.
        """
        looked_at, due_s = None, 0.0
        while True:
            now_s = self._now().mono_s
            if self._board.read() is not looked_at or now_s >= due_s:
                self.step()
                looked_at, due_s = self._board.read(), now_s + UNCHANGED_S
                await self._keep()
            await asyncio.sleep(to_tick_s())

    async def _keep(self) -> None:
        """Read what an earlier run wrote, publish and write; after an error, not again at once."""
        if self._now().mono_s < self._retry_at_s:
            return
        try:
            await self.load()
            await self.publish_and_write()
        except StoreError:  # the runs report it, which cannot be written either
            self._retry_at_s = self._now().mono_s + RETRY_S

    async def publish_and_write(self) -> None:
        """Publish what changed and write it. Errors: ``StoreError``; it is written later then."""
        self._publish()
        async with self._lock:
            if self._loaded:
                await asyncio.shield(self._write())

    async def close(self) -> None:
        """Write what is not written yet, if that is possible."""
        with contextlib.suppress(StoreError):
            await self.publish_and_write()

    def step(self) -> None:
        """Look at functions and health as they are now."""
        snapshot, now = self._board.read(), self._now()
        self._gpus |= {
            uuid: f"GPU {gpu.number} ({gpu.name})" if gpu.name else f"GPU {gpu.number}"
            for uuid, gpu in snapshot.gpus.items()
        }
        self._functions.update(snapshot, now)
        lost = self._functions.lost
        platform = self._platform
        alerts = [wording.lost(loss, self._gpus, platform) for loss in lost.values()]
        self.sync({FUNCTION_LOST}, alerts, now.wall_s)
        self._check_components(snapshot, now)
        self._publish()

    def _check_components(self, snapshot: Snapshot, now: Instant) -> None:
        """Raise the alerts of components. Those of an earlier run go on until it is known."""
        health, lost = snapshot.health, {subject.kind for subject in self._functions.lost}
        if (gpu := health.get("gpu")) is not None and gpu.level is not Level.OK:
            lost.add(functions.HUNG_GPU)
        pending = self._functions.pending
        self._components.update(health, now.mono_s, lost=lost, pending=pending)
        reported = sorted(self._components.reported)
        alerts = [wording.unwell(name, health[name], now.wall_s) for name in reported]
        undecided = set(self._components.failed)
        if now.mono_s - self._started_s < functions.PATIENCE_S:
            named = {alert.labels.get("component", "") for alert in self._alerts.values()}
            undecided |= named - health.keys()
        self.sync({UNWELL}, alerts, now.wall_s, undecided - functions.covered(lost))

    @property
    def _platform(self) -> Platform:
        return advice.of(self._board.read().machine.platform)

    def _set(self, alert: Alert) -> None:
        self._alerts[alert.fingerprint] = alert
        self._unwritten[alert.fingerprint, alert.starts_s] = alert

    def _word_incidents(self) -> None:
        """Write the alerts of incidents anew where they, or the names of GPUs, changed."""
        platform, slowdowns = self._platform, self._slowdowns
        basis = (slowdowns.revision, tuple(self._gpus.items()), platform, self._loaded)
        if basis == self._worded:
            return
        self._worded = basis
        alerts = [
            wording.slowdown(i, self._gpus, platform, machine=slowdowns.machine_slowed(i))
            for i in slowdowns.incidents
            if i.name
        ]
        self.sync(OF_INCIDENTS, alerts, self._now().wall_s)
        slowdowns.drop_ended()

    def _publish(self) -> None:
        """Publish what fires and what ended within a day, if there are others than before."""
        self._word_incidents()
        now_s = self._now().wall_s
        recent_s = now_s - SHOWN_ENDED_S
        ended = [a for a in self._alerts.values() if a.ends_s is not None and a.ends_s > recent_s]
        ended = sorted(ended, key=lambda alert: alert.ends_s or 0.0)[-MOST_ENDED:]
        firing = [alert for alert in self._alerts.values() if alert.firing]
        self._alerts = {alert.fingerprint: alert for alert in (*firing, *ended)}
        shown = tuple(sorted(self._alerts.values(), key=_order))
        complete = self._loaded or shown or self._shown is not None  # none at all is news too
        if complete and shown != self._shown and not self._replaying:
            self._shown = shown
            before = self._board.read().alerts
            alerts = structs.replace(before, alerts=shown, published_s=now_s)
            self._board.publish(alerts=alerts)

    async def _write(self) -> None:
        """Write changed alerts and the state they were derived from."""
        slowdowns, file = self._slowdowns, self._history.opened
        worked = self._functions.saved()
        basis = (file, slowdowns.revision, tuple(self._gpus.items()), worked)
        if self._written[0] not in {0, file}:  # it may be a new file
            self._unwritten = {(a.fingerprint, a.starts_s): a for a in self._alerts.values()}
        if not self._unwritten and basis == self._written:
            return
        alerts = dict(self._unwritten)
        incidents = SavedIncidents(slowdowns.incidents, self._gpus)
        now_s = self._now().wall_s
        states = [
            SavedState(name, 0, now_s, encoded(body))
            for name, body in ((LEDGER, incidents), (FUNCTIONS, worked))
        ]

        def write(transaction: sqlite3.Connection) -> None:
            put(transaction, alerts.values())
            records.write_states(transaction, states)

        await self._history.write(write)
        self._written = basis
        left = self._unwritten.items()
        self._unwritten = {name: a for name, a in left if a is not alerts.get(name)}


def put(transaction: sqlite3.Connection, alerts: Iterable[Alert]) -> None:
    """Write alerts, each in place of what was written of it before; the caller commits."""
    reports = map(alert_report, alerts)
    rows = [(a.fingerprint, a.starts_s, a.updated_s, a.ends_s, encoded(a)) for a in reports]
    transaction.executemany(
        "INSERT OR REPLACE INTO alerts (fingerprint, starts_s, updated_s, ends_s, body)"
        " VALUES (?, ?, ?, ?, ?)",
        rows,
    )


def within(
    connection: sqlite3.Connection, since_s: float, limit: int = MOST_ROWS
) -> list[AlertReport]:
    """Return what fired at any time since then, the latest beginning first."""
    condition = "ends_s IS NULL OR ends_s >= ? ORDER BY starts_s DESC, fingerprint LIMIT ?"
    return list(_rows(connection, condition, (since_s, min(limit, MOST_ROWS + 1)), AlertReport))


def _rows(
    connection: sqlite3.Connection, condition: str, values: Sequence[float], kind: type[T]
) -> Iterator[T]:
    select = f"SELECT CAST(body AS BLOB) FROM alerts WHERE {condition}"  # noqa: S608  # ours
    for (body,) in connection.execute(select, values):
        with contextlib.suppress(msgspec.MsgspecError):
            yield msgspec.json.decode(body, type=kind)


def _read(
    connection: sqlite3.Connection, since_s: float
) -> tuple[list[Alert], SavedIncidents, SavedFunctions]:
    """Read what was written, of each alert the latest last."""
    firing = _rows(connection, "ends_s IS NULL", (), Alert)
    recent = "ends_s >= ? ORDER BY ends_s DESC LIMIT ?"
    alerts = [*firing, *_rows(connection, recent, (since_s, MOST_ENDED), Alert)]
    return (
        sorted(alerts, key=lambda alert: (alert.firing, alert.starts_s)),
        saved_state(connection, LEDGER, SavedIncidents),
        saved_state(connection, FUNCTIONS, SavedFunctions),
    )


def saved_state(connection: sqlite3.Connection, name: str, kind: type[T]) -> T:
    """Read a row of ``states``; one that is absent or damaged is empty."""
    row = queries.state(connection, name)
    try:
        return kind() if row is None else msgspec.json.decode(row.body, type=kind)
    except msgspec.MsgspecError as error:
        log.warning("state_set_aside", name=name, why=str(error))
        return kind()


def _continued(before: Alert, alert: Alert) -> Alert:
    """Return an alert that goes on; new words of a condition wait until the last are a minute old.

    The words of an incident change with its evidence only.
    """
    acknowledged_s = before.acknowledged_s or alert.acknowledged_s
    alert = structs.replace(alert, starts_s=before.starts_s, acknowledged_s=acknowledged_s)
    same = structs.replace(alert, updated_s=before.updated_s)
    if same == before:
        return before
    early = not alert.evidence and abs(alert.updated_s - before.updated_s) < REFRESH_S
    words = structs.replace(
        same, summary=before.summary, description=before.description, fix=before.fix
    )
    return before if early and words == before else alert


def _order(alert: Alert) -> tuple[bool, bool, int, float]:
    """Put the gravest first that fires and that nobody has acknowledged."""
    acknowledged = alert.acknowledged_s is not None
    return not alert.firing, acknowledged, -RANK[alert.severity], -alert.starts_s


async def _finding(raised: StreamAlarm, history: History, snapshot: Snapshot) -> AlarmFinding:
    """Return an alarm with its likely causes; an improvement needs none."""
    alarm, sides = raised.alarm, Sides()
    likely: tuple[Cause, ...] = ()
    if alarm.worse:
        most, slow = max(COMPARED, alarm.samples), alarm.kind is ChangeKind.SLOW_STATE
        with contextlib.suppress(StoreError):  # the runs report it; the versions are enough
            sides = await history.read(
                queries.conditions_around, raised.key, alarm.since_s, most, slow=slow
            )
        messages, mode = _messages(raised, snapshot), raised.key.mode
        likely = causes.likely(sides.before, sides.after, raised.changed, messages, mode=mode)
    return AlarmFinding(raised.key, raised.unit, alarm, raised.judged, raised.changed, likely)


def _messages(raised: StreamAlarm, snapshot: Snapshot) -> Iterator[Cause]:
    """Yield what the kernel log says of the GPU's channel since shortly before the change."""
    alarm, root = raised.alarm, snapshot.root.report
    message = None if root is None or root.kernel_log is None else root.kernel_log.last
    if raised.key.gpu is None or message is None or message.at_s is None:
        return
    if alarm.since_s - report.RECENT_S <= message.at_s <= alarm.at_s:
        yield Cause(causes.DXG, detail=f"the channel to Windows: {message.words}")
