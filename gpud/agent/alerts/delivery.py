"""The delivery of alerts: at each tick each sink gets what is due to it.

While one message is on its way to a sink no other waits behind it, so after an outage a sink gets
the present state. What the sinks were sent is kept in the history: a restart repeats nothing.
Intervals are measured by the monotonic clock, so a wall clock that is set repeats nothing either.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog
from msgspec import structs

from gpud.agent.alerts.message import RANK, Message, worst_first
from gpud.agent.alerts.sink import attempt
from gpud.agent.alerts.state import saved_state
from gpud.agent.history import records
from gpud.agent.history.records import SavedState, encoded
from gpud.agent.ticks import TICK_S, to_tick_s
from gpud.core.alerts import SINK_FAILING, Alert, Severity, SinkState
from gpud.core.clock import Backoff
from gpud.core.errors import StoreError
from gpud.core.health import Health, Level
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpud.agent.alerts.sink import Sink, Sinks
    from gpud.agent.alerts.state import AlertState
    from gpud.agent.history.store import History
    from gpud.agent.state.board import Board
    from gpud.core.clock import Instant
    from gpud.core.errors import DeliveryError
    from gpud.core.sections import AlertSettings

RETRY: Final = Backoff(first_s=5.0, longest_s=600.0)
FAILING_AFTER: Final = 3
"""After so many failures in a row the other sinks report a sink."""
ENDED_SHOWN_S: Final = 3600.0
"""How long an alert that ended stays in a sink that shows a state."""
ROW: Final = "delivery"
"""Name of the row in ``states``: by sink, under "told", what it was sent."""

log = structlog.get_logger()


class SentAlert(Alert, frozen=True, kw_only=True):
    """An alert as it was sent, without evidence."""

    at_s: float  # Unix time
    at_mono_s: float = 0.0


SavedOutboxes: TypeAlias = dict[str, dict[str, list[SentAlert]]]


class Outbox:
    """What one sink was sent, and what is due to it: grouping, repetition, ends. Pure."""

    def __init__(self, group_wait_s: float, repeat_interval_s: float) -> None:
        self.sent: dict[str, SentAlert] = {}  # by fingerprint
        self.waiting_since_s: float | None = None  # since when there is news
        self._group_wait_s = group_wait_s
        self._repeat_interval_s = repeat_interval_s

    def due(self, alerts: Iterable[Alert], now: Instant, *, quiet: bool) -> Message | None:
        """Return the message that is due now.

        ``alerts`` is everything that fires and what ended lately. While ``quiet`` nothing new is
        sent, nothing is repeated, and an alert that is missing is not taken to be over.
        """
        latest = {alert.fingerprint: alert for alert in alerts}
        over = self._over(latest, now.wall_s, quiet=quiet)
        fresh, repeated = ([], []) if quiet else self._firing(latest, now)
        if not (fresh or over):
            self.waiting_since_s = None
        elif self.waiting_since_s is None:
            self.waiting_since_s = now.mono_s
        since_s = self.waiting_since_s
        if not repeated and (since_s is None or now.mono_s < since_s + self._group_wait_s):
            return None
        firing = (*fresh, *repeated)
        acknowledged = {name for name, alert in latest.items() if alert.acknowledged_s is not None}
        standing: dict[str, Alert] = {
            name: sent for name, sent in self.sent.items() if name not in {*over, *acknowledged}
        }
        standing |= {alert.fingerprint: alert for alert in firing}
        return Message(*map(worst_first, (firing, over.values(), standing.values())))

    def delivered(self, message: Message, now: Instant) -> None:
        """Remember what the sink has."""
        self.waiting_since_s = None
        for alert in message.resolved:
            del self.sent[alert.fingerprint]
        for alert in message.firing:
            self.sent[alert.fingerprint] = _sent(alert, now)

    def restore(self, past: Iterable[SentAlert], now: Instant) -> None:
        """Go on with what an earlier agent sent.

        The monotonic clock is another one after a boot, so ages are taken from the wall clock: a
        time in the future counts as now, and what was sent long ago is repeated once.
        """
        for alert in past:
            age_s = min(max(now.wall_s - alert.at_s, 0.0), self._repeat_interval_s)
            self.sent[alert.fingerprint] = structs.replace(alert, at_mono_s=now.mono_s - age_s)

    def _firing(self, latest: dict[str, Alert], now: Instant) -> tuple[list[Alert], list[Alert]]:
        """Return the alerts that are new or graver than before, and those to repeat."""
        fresh, repeated = [], []
        for name, alert in latest.items():
            previous = self.sent.get(name)
            if not alert.firing or alert.acknowledged_s is not None:
                continue
            if previous is None or RANK[alert.severity] > RANK[previous.severity]:
                fresh.append(alert)
            elif now.mono_s - previous.at_mono_s >= self._repeat_interval_s:
                repeated.append(alert)
        return fresh, repeated

    def _over(self, latest: dict[str, Alert], now_s: float, *, quiet: bool) -> dict[str, Alert]:
        """Return the alerts that were sent and fire no more; one that is missing ends now."""
        over: dict[str, Alert] = {}
        for name, previous in self.sent.items():
            alert = latest.get(name)
            if alert is None and not quiet:
                over[name] = structs.replace(previous, ends_s=now_s)
            elif alert is not None and not alert.firing:
                over[name] = alert
        return over


def state_to_show(alerts: Iterable[Alert], now_s: float, quiet_s: tuple[float, float]) -> Message:
    """Return what fires, unacknowledged, and what ended within the last hour.

    What has been so within the quiet time only, from its beginning to its end, is not shown.
    """
    standing, ended = [], []
    for alert in alerts:
        ends_s = now_s if alert.ends_s is None else alert.ends_s
        if quiet_s[0] <= alert.starts_s and ends_s < quiet_s[1]:
            continue
        if not alert.firing and now_s - ends_s < ENDED_SHOWN_S:
            ended.append(alert)
        elif alert.firing and alert.acknowledged_s is None:
            standing.append(alert)
    return Message((), worst_first(ended), worst_first(standing))


@dataclass(slots=True)
class Channel:
    """One sink, what it was sent and how it does. Times are of the monotonic clock."""

    sink: Sink
    outbox: Outbox
    state: SinkState = field(default_factory=SinkState)
    shown: list[list[str]] | None = None  # of a sink that shows a state: fingerprints
    busy: bool = False  # a task sends to it
    failures: int = 0  # in a row
    failing_since_s: float = 0.0  # Unix time
    retry_at_s: float = 0.0
    proven: bool = False  # in this run it delivered, or had nothing to deliver

    def due(
        self, alerts: Iterable[Alert], now: Instant, quiet_s: tuple[float, float]
    ) -> Message | None:
        """Return what is due; ``quiet_s`` is the latest quiet time, in Unix time."""
        about_others = [
            alert
            for alert in alerts
            if alert.name != SINK_FAILING or alert.labels["sink"] != self.sink.name
        ]
        if not self.sink.shows:
            return self.outbox.due(about_others, now, quiet=now.wall_s < quiet_s[1])
        message = state_to_show(about_others, now.wall_s, quiet_s)
        return None if self.shown == _names(message) else message

    def well(self) -> None:
        """Note that it delivers, or that nothing waits for it."""
        self.failures, self.proven = 0, True

    def failing(self, now: Instant) -> Alert | None:
        """Return the alert that this sink fails, None while it may pass."""
        if self.failures < FAILING_AFTER:
            return None
        return Alert(
            name=SINK_FAILING,
            severity=Severity.WARNING,
            labels={"sink": self.sink.name},
            summary=f"alerts do not arrive through {self.sink.name}",
            description=self.state.detail or "",
            starts_s=self.failing_since_s,
            updated_s=now.wall_s,
            fix=self.state.fix,
        )


class Delivery:
    """Sends the published alerts to every sink; a sink that hangs or fails delays no other."""

    def __init__(  # noqa: PLR0913  # the parts it joins, each passed by name
        self,
        sinks: Sinks,
        settings: AlertSettings,
        *,
        board: Board,
        alerts: AlertState,
        history: History,
        now: Callable[[], Instant],
        retry: Backoff = RETRY,
        tick_s: float = TICK_S,
    ) -> None:
        self._refused = sinks.refused
        self._warm_up_s = settings.warm_up_s
        self._board = board
        self._alerts = alerts
        self._history = history
        self._now = now
        self._retry = retry
        self._tick_s = tick_s
        waits_s = settings.group_wait_s, settings.repeat_interval_s
        self._channels = tuple(Channel(sink, Outbox(*waits_s)) for sink in sinks.usable)
        self._unsaved = False
        self._started_s = now().mono_s

    async def run(self) -> None:
        """Deliver until cancelled."""
        for channel in self._channels:
            self._publish(channel, channel.state)
        self._publish_health()
        await self._load()
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._tick(tasks)
                    await asyncio.sleep(to_tick_s(self._tick_s))
        finally:
            if self._unsaved:
                await self._save()

    def _tick(self, tasks: asyncio.TaskGroup) -> None:
        snapshot, now = self._board.read(), self._now()
        if snapshot.alerts.published_s is None:
            return
        # Quiet for a while after a start or a pause of the machine.
        since_s = max(self._started_s, snapshot.machine.resumed_mono_s or 0.0)
        quiet_from_s = since_s + now.wall_s - now.mono_s
        quiet_s = quiet_from_s, quiet_from_s + self._warm_up_s
        for channel in self._channels:
            if channel.busy or now.mono_s < channel.retry_at_s:
                continue
            message = channel.due(snapshot.alerts.alerts, now, quiet_s)
            if message is not None:
                channel.busy = True
                tasks.create_task(self._send(channel, message))
            elif channel.sink.shows or (
                now.wall_s >= quiet_s[1] and channel.outbox.waiting_since_s is None
            ):
                channel.well()
        # The alerts of sinks of an earlier run go on until it is known.
        failing = [alert for c in self._channels if (alert := c.failing(now)) is not None]
        unproven = [channel.sink.name for channel in self._channels if not channel.proven]
        self._alerts.sync({SINK_FAILING}, failing, now.wall_s, unproven)
        if self._unsaved:
            self._unsaved = False
            tasks.create_task(self._save())

    async def _send(self, channel: Channel, message: Message) -> None:
        try:
            error = await attempt(channel.sink, message)
            if error is None:
                self._delivered(channel, message)
            else:
                self._failed(channel, error)
        finally:
            channel.busy = False

    def _delivered(self, channel: Channel, message: Message) -> None:
        now, count = self._now(), len(message.firing) + len(message.resolved)
        if channel.sink.shows:
            channel.shown, count = _names(message), len(message.standing) + len(message.resolved)
        else:
            channel.outbox.delivered(message, now)
            self._unsaved = True
        if count:
            log.info("alerts_delivered", sink=channel.sink.name, alerts=count)
        channel.well()
        sent, failed = channel.state.sent + bool(count), channel.state.failed
        self._publish(channel, SinkState(sent, failed, last_success_s=now.wall_s))

    def _failed(self, channel: Channel, error: DeliveryError) -> None:
        now = self._now()
        channel.failing_since_s = channel.failing_since_s if channel.failures else now.wall_s
        channel.failures += 1
        delay_s = self._retry.delay_s(channel.failures + 1, random.random())  # noqa: S311
        channel.retry_at_s = now.mono_s + delay_s
        name, detail = channel.sink.name, escaped(str(error))
        fix = None if error.fix is None else escaped(error.fix)
        log.warning("alerts_not_delivered", sink=name, reason=error.reason, detail=detail, fix=fix)
        failed = channel.state.failed + 1
        state = structs.replace(
            channel.state, failed=failed, reason=error.reason, detail=detail, fix=fix
        )
        self._publish(channel, state)

    def _publish(self, channel: Channel, state: SinkState) -> None:
        channel.state = state
        before = self._board.read().alerts
        sinks = {**before.sinks, channel.sink.name: state}
        self._board.publish(alerts=structs.replace(before, sinks=sinks))
        self._publish_health()

    def _publish_health(self) -> None:
        broken = {c.sink.name: c.state for c in self._channels if c.state.reason is not None}
        details = [f"{name}: {state.detail}" for name, state in broken.items()]
        details += [f"{name}: {why}" for name, why in sorted(self._refused.items())]
        fixes = {name: state.fix for name, state in broken.items() if state.fix}
        words = [f"{name}: {fix}" if len(broken) > 1 else fix for name, fix in fixes.items()]
        reason = next((state.reason for state in broken.values()), "refused")
        level, detail = Level.DEGRADED if details else Level.OK, "; ".join(details) or None
        health = Health(level, reason if details else None, detail, "; ".join(words) or None)
        self._board.set_health("alerts", health)

    async def _load(self) -> None:
        """Read what the sinks were sent before; without a history what fires is sent once more."""
        try:
            past = await self._history.read(saved_state, ROW, SavedOutboxes)
        except StoreError as error:
            log.warning("deliveries_forgotten", reason=error.reason, detail=str(error))
            return
        for channel in self._channels:
            if not channel.sink.shows:
                sent = past.get(channel.sink.name, {}).get("told", [])
                channel.outbox.restore(sent, self._now())

    async def _save(self) -> None:
        """Write what the sinks were sent, beside the deliveries: a slow disk delays none."""
        self._unsaved = False
        sent = {c.sink.name: {"told": [*c.outbox.sent.values()]} for c in self._channels}
        state = SavedState(ROW, 0, self._now().wall_s, encoded(sent))
        try:
            await asyncio.shield(self._history.write(records.write_states, [state]))
        except StoreError as error:
            log.warning("deliveries_not_kept", reason=error.reason, detail=str(error))


def _names(message: Message) -> list[list[str]]:
    """Name the alerts of a message of a sink that shows a state."""
    return [[a.fingerprint for a in part] for part in (message.standing, message.resolved)]


def _sent(alert: Alert, now: Instant) -> SentAlert:
    parts = {name: getattr(alert, name) for name in Alert.__struct_fields__}
    brief = parts | {"evidence": (), "causes": ()}
    return SentAlert(**brief, at_s=now.wall_s, at_mono_s=now.mono_s)
