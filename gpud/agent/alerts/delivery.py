"""The delivery of alerts: every second each sink gets what is due to it.

While one message is on its way to a sink no other waits behind it, so after an outage a sink gets
the present state. What the sinks were sent is kept in the history.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from gpud.agent.alerts import outbox
from gpud.agent.alerts.message import inert
from gpud.agent.alerts.outbox import Memory, Policy, Saved, Step
from gpud.agent.alerts.sink import TIMEOUT_S, attempt
from gpud.agent.history import queries, writes
from gpud.agent.history.records import State
from gpud.core.alerts import SINK_FAILING, Alert, Severity, SinkState
from gpud.core.clock import Backoff
from gpud.core.errors import StoreError
from gpud.core.health import Health, Level
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from gpud.agent.alerts.sink import Sink, Sinks
    from gpud.agent.alerts.state import AlertState
    from gpud.agent.history.store import History
    from gpud.agent.state.board import Board
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.errors import DeliveryError
    from gpud.core.sections import AlertSettings

TICK_S: Final = 1.0
RETRY: Final = Backoff(first_s=5.0, longest_s=600.0)
CHECK_AGAIN_S: Final = 60.0
"""How often a sink that cannot deliver is checked again: a file may be mended."""
FAILING_AFTER: Final = 3
FAILING_AFTER_S: Final = 600.0
"""After so many failures in a row, or after so long, the other sinks report a sink."""
ROW: Final = "delivery"
"""Name of the row in ``states``."""

log = structlog.get_logger()


@dataclass(slots=True)
class Channel:
    """One sink, what it was sent and how it does. Times are of the monotonic clock."""

    sink: Sink
    policy: Policy
    memory: Memory = field(default_factory=Memory)
    state: SinkState = field(default_factory=SinkState)
    busy: bool = False  # a task checks it or sends to it
    failures: int = 0  # in a row
    failing_since: Instant | None = None
    retry_at_s: float = 0.0
    check_at_s: float | None = 0.0  # None: it can deliver
    proven: bool = False  # in this run it delivered, or had nothing to deliver

    def failing(self, now: Instant) -> Alert | None:
        """Return the alert that this sink fails, None while it may pass."""
        since = self.failing_since
        if since is None or (
            self.failures < FAILING_AFTER and now.mono_s - since.mono_s < FAILING_AFTER_S
        ):
            return None
        return Alert(
            name=SINK_FAILING,
            severity=Severity.WARNING,
            labels={"sink": self.sink.name},
            summary=f"alerts do not arrive through {self.sink.name}",
            description=self.state.detail or "",
            starts_s=since.wall_s,
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
        timeout_s: float = TIMEOUT_S,
        tick_s: float = TICK_S,
    ) -> None:
        self._refused = sinks.refused
        self._settings = settings
        self._board = board
        self._alerts = alerts
        self._history = history
        self._now = now
        self._retry = retry
        self._timeout_s = timeout_s
        self._tick_s = tick_s
        wait_s, repeat_s = settings.group_wait_s, settings.repeat_interval_s
        self._channels = tuple(
            Channel(sink, Policy(wait_s, repeat_s, sink.shows)) for sink in sinks.usable
        )
        self._published: tuple[Alert, ...] = ()
        self._inert: tuple[Alert, ...] = ()
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
                    await asyncio.sleep(self._tick_s)
        finally:
            if self._unsaved:
                await self._save()

    def _tick(self, tasks: asyncio.TaskGroup) -> None:
        snapshot, now = self._board.read(), self._now()
        quiet = self._quiet(snapshot, now)
        if snapshot.alerts.alerts is not self._published:
            self._published, self._inert = (
                snapshot.alerts.alerts,
                tuple(map(inert, snapshot.alerts.alerts)),
            )
        for channel in self._channels:
            work = None if channel.busy else self._due(channel, snapshot, now, quiet=quiet)
            if work is not None:
                channel.busy = True
                tasks.create_task(self._finish(channel, work))
        if snapshot.alerts.published_s is not None:
            self._report_failing(now)
        if self._unsaved:
            self._unsaved = False
            tasks.create_task(self._save())

    def _due(
        self, channel: Channel, snapshot: Snapshot, now: Instant, *, quiet: bool
    ) -> Coroutine[Any, Any, None] | None:
        """Return what there is to do with a sink now."""
        if channel.check_at_s is not None and now.mono_s >= channel.check_at_s:
            return self._check(channel)
        if snapshot.alerts.published_s is None or now.mono_s < channel.retry_at_s:
            return None
        name = channel.sink.name
        alerts = [
            one for one in self._inert if one.name != SINK_FAILING or one.labels["sink"] != name
        ]
        step = outbox.step(channel.policy, alerts, channel.memory, now, quiet=quiet)
        if step.message is not None:
            return self._send(channel, step)
        channel.memory = step.after
        if not channel.memory.undelivered and not quiet:
            channel.failures, channel.failing_since, channel.proven = 0, None, True
        return None

    async def _finish(self, channel: Channel, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            channel.busy = False

    async def _check(self, channel: Channel) -> None:
        """Find out before the first alert that a sink cannot deliver; it is no failure yet."""
        error = await attempt(channel.sink, channel.sink.ready(), self._timeout_s)
        if error is not None:
            channel.check_at_s = self._now().mono_s + CHECK_AGAIN_S
            self._publish(channel, _with(channel.state, error))
            return
        channel.check_at_s = None
        if channel.state.reason is not None and not channel.failures:
            self._publish(channel, replace(channel.state, reason=None, detail=None, fix=None))

    async def _send(self, channel: Channel, due: Step) -> None:
        assert due.message is not None  # noqa: S101  # for the type checker
        work = channel.sink.send(due.message)
        error = await attempt(channel.sink, work, self._timeout_s)
        if error is not None:
            self._failed(channel, due, error)
            return
        count = len(due.message.firing) + len(due.message.resolved)  # 0: it only shows less
        if count:
            log.info("alerts_delivered", sink=channel.sink.name, alerts=count)
        channel.memory, self._unsaved = due.after, True
        channel.failures, channel.failing_since, channel.check_at_s = 0, None, None
        channel.proven = True
        sent = channel.state.sent + bool(count)
        now_s = self._now().wall_s
        self._publish(channel, SinkState(sent, channel.state.failed, last_success_s=now_s))

    def _failed(self, channel: Channel, due: Step, error: DeliveryError) -> None:
        now = self._now()
        channel.failures += 1
        channel.failing_since = channel.failing_since or now
        if error.again:
            delay_s = self._retry.delay_s(channel.failures + 1, random.random())  # noqa: S311
            channel.retry_at_s = now.mono_s + delay_s
        else:
            channel.memory, self._unsaved = outbox.refused(due, channel.memory), True
        name, detail = channel.sink.name, str(error)
        log.warning(
            "alerts_not_delivered", sink=name, reason=error.reason, detail=detail, fix=error.fix
        )
        state = replace(channel.state, failed=channel.state.failed + 1)
        self._publish(channel, _with(state, error))

    def _report_failing(self, now: Instant) -> None:
        """Raise the alerts of sinks that fail. Those of an earlier run go on until it is known."""
        failing = [alert for one in self._channels if (alert := one.failing(now)) is not None]
        unsure = [one.sink.name for one in self._channels if not one.proven]
        self._alerts.sync(SINK_FAILING, failing, now.wall_s, keep=unsure)

    def _quiet(self, snapshot: Snapshot, now: Instant) -> bool:
        """Return whether the agent started, or the machine resumed, a short while ago."""
        since_s = max(self._started_s, snapshot.machine.resumed_mono_s or 0.0)
        return now.mono_s < since_s + self._settings.warm_up_s

    def _publish(self, channel: Channel, state: SinkState) -> None:
        channel.state = state
        before = self._board.read().alerts
        sinks = {**before.sinks, channel.sink.name: state}
        self._board.publish(alerts=msgspec.structs.replace(before, sinks=sinks))
        self._publish_health()

    def _publish_health(self) -> None:
        broken = {c.sink.name: c.state for c in self._channels if c.state.reason is not None}
        details = [f"{name}: {state.detail}" for name, state in broken.items()]
        details += [f"{name}: {why}" for name, why in sorted(self._refused.items())]
        fixes = {name: state.fix for name, state in broken.items() if state.fix}
        words = [f"{name}: {fix}" if len(broken) > 1 else fix for name, fix in fixes.items()]
        reason = next((state.reason for state in broken.values()), "refused")
        self._board.set_health(
            "alerts",
            Health(
                Level.DEGRADED if details else Level.OK,
                reason if details else None,
                "; ".join(details) or None,
                "; ".join(words) or None,
            ),
        )

    async def _load(self) -> None:
        """Read what the sinks were sent before; a history that is not readable has until alerts."""
        state = None
        while True:
            try:
                state = await self._history.read(queries.state, ROW)
                break
            except StoreError as error:
                if not self._quiet(self._board.read(), self._now()):
                    log.warning("deliveries_forgotten", reason=error.reason, detail=str(error))
                    return
            await asyncio.sleep(self._tick_s)
        try:
            past = msgspec.json.decode(state.body if state else b"{}", type=dict[str, Saved])
        except msgspec.MsgspecError as error:
            log.warning("deliveries_forgotten", reason="damaged", detail=str(error))
            return
        now = self._now()
        for channel in self._channels:
            if channel.sink.name in past:
                saved = past[channel.sink.name]
                channel.memory = outbox.restored(saved, now, channel.policy.repeat_interval_s)

    async def _save(self) -> None:
        """Write what the sinks were sent, beside the deliveries: a slow disk delays none."""
        self._unsaved = False
        sent = {one.sink.name: outbox.saved(one.memory) for one in self._channels}
        body = msgspec.json.encode(sent).decode()
        state = State(ROW, 0, self._now().wall_s, body)
        try:
            await asyncio.shield(self._history.write(writes.states, [state]))
        except StoreError as error:
            log.warning("deliveries_not_kept", reason=error.reason, detail=str(error))


def _with(state: SinkState, error: DeliveryError) -> SinkState:
    fix = None if error.fix is None else escaped(error.fix)
    return replace(state, reason=error.reason, detail=escaped(str(error)), fix=fix)
