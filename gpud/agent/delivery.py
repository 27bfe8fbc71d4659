"""Tells the sinks what there is to tell: each by a task of its own, each the newest state.

``gpud.core.delivery`` decides what is due to a sink; its task delivers that, and until it has been
delivered nothing queues up behind it: after an outage a sink is told how things are by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from gpud.agent import deliveryrows
from gpud.agent.alerts import registry
from gpud.core import delivery
from gpud.core.alerts import SINK_FAILING, SinkState
from gpud.core.backoff import Backoff
from gpud.core.delivery import Memory, Policy
from gpud.core.errors import DeliveryError, StoreError
from gpud.core.events import Event, HealthSet, SinkTold
from gpud.core.health import Level
from gpud.core.message import inert
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpud.agent.alerts.registry import Found
    from gpud.agent.alerts.sink import Sink
    from gpud.agent.store import History
    from gpud.core.alerts import Alert
    from gpud.core.clock import Instant
    from gpud.core.message import Message
    from gpud.core.sections import Alerts
    from gpud.core.snapshot import Snapshot

RETRY: Final = Backoff(first_s=5.0, longest_s=600.0)
READY_AGAIN_S: Final = 60.0
"""A sink that cannot deliver is looked at again: a terminal may open, a file be mended."""

log = structlog.get_logger()


@dataclass(slots=True)
class _Served:
    """A sink, what it knows and how it does."""

    sink: Sink
    policy: Policy
    memory: Memory = field(default_factory=Memory)
    state: SinkState = field(default_factory=SinkState)
    failures: int = 0  # in a row
    failing_since: Instant | None = None
    unready: bool = False
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class Delivery:
    """Delivers until it is cancelled. ``changed`` is set by whoever makes a new snapshot."""

    def __init__(  # noqa: PLR0913  # the parts it joins, each passed by name
        self,
        there: Found,
        settings: Alerts,
        *,
        changed: asyncio.Event,
        read: Callable[[], Snapshot],
        publish: Callable[[Event], None],
        now: Callable[[], Instant],
        history: History,
        raised: Callable[[Alert], None],
        ended: Callable[[str, float], None],
        retry: Backoff = RETRY,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._refused = there.refused
        self._settings = settings
        self._changed = changed
        self._read = read
        self._publish = publish
        self._now = now
        self._history = history
        self._raised = raised
        self._ended = ended
        self._retry = retry
        self._jitter = jitter
        self._served = tuple(_Served(sink, self._policy(sink)) for sink in there.sinks)
        self._raw: tuple[Alert, ...] = ()
        self._inert: tuple[Alert, ...] = ()
        self._unsaved = asyncio.Event()
        self._kept_to = 0
        self._began_mono_s = now().mono_s

    async def run(self) -> None:
        """Serve every sink. Errors: none; what a sink does wrong is told by the others."""
        self._say_health()
        for one in self._served:
            self._publish(SinkTold(one.sink.name, one.state, self._now().wall_s))
        await self._remember()
        async with asyncio.TaskGroup() as tasks:
            for one in self._served:
                tasks.create_task(self._serve(one))
            tasks.create_task(self._keeping())
            tasks.create_task(self._watching())

    def _policy(self, sink: Sink) -> Policy:
        settings = self._settings
        return Policy(settings.group_wait_s, settings.repeat_interval_s, shows=sink.shows)

    async def _watching(self) -> None:
        """Wake the sinks when what is to be told has changed, which seldom happens."""
        before: object = None
        while True:
            self._changed.clear()
            snapshot = self._read()
            if self._history.opened != self._kept_to:  # what was kept may not be in it
                self._unsaved.set()
            seen = (snapshot.alerts, snapshot.alerts_s is None, snapshot.resumed_mono_s)
            if seen != before:
                before = seen
                self._forget_others(snapshot)
                for one in self._served:
                    one.woken.set()
            await self._changed.wait()

    async def _serve(self, one: _Served) -> None:
        await self._look(one)
        while True:
            one.woken.clear()
            now = self._now()
            due = delivery.step(one.policy, self._alerts_of(one), one.memory, now, self._quiet_s())
            if due.message is None:
                one.memory = due.after
                await self._rest(one, due.wake_mono_s, now)
                continue
            error = await registry.sent(one.sink, due.message, self._settings.timeout_s)
            if error is None:
                one.memory = due.after
                self._succeeded(one, due.message)
            else:
                self._failed(one, error)
                if error.again:
                    await asyncio.sleep(self._retry.delay_s(one.failures + 1, self._jitter()))
                    continue
                one.memory = delivery.refused(due, one.memory, now)
            self._unsaved.set()

    async def _rest(self, one: _Served, wake_mono_s: float | None, now: Instant) -> None:
        """Wait until something may be due to a sink, or something is to be said of it."""
        waits = [] if wake_mono_s is None else [wake_mono_s - now.mono_s]
        if one.unready:
            waits.append(READY_AGAIN_S)
        if not delivery.owed(one.memory) and now.mono_s >= self._quiet_s():
            one.failures, one.failing_since = 0, None
            self._over(one.sink.name, now)
        elif one.failing_since is not None:
            self._trouble(one, now)
            waits.append(one.failing_since.mono_s + delivery.FAILING_AFTER_S - now.mono_s)
        await _woken(one.woken, min((wait_s for wait_s in waits if wait_s > 0), default=None))
        if one.unready:
            await self._look(one)

    def _alerts_of(self, one: _Served) -> tuple[Alert, ...] | None:
        """Give what there is to tell a sink: everything but its own trouble."""
        snapshot = self._read()
        if snapshot.alerts_s is None:
            return None
        if snapshot.alerts is not self._raw:
            self._raw = snapshot.alerts
            self._inert = tuple(map(inert, snapshot.alerts))
        return tuple(alert for alert in self._inert if not _fails(alert, one.sink.name))

    def _quiet_s(self) -> float:
        resumed_s = self._read().resumed_mono_s
        since_s = max(self._began_mono_s, self._began_mono_s if resumed_s is None else resumed_s)
        return since_s + self._settings.warm_up_s

    async def _look(self, one: _Served) -> None:
        """Find out early that a sink cannot deliver; that is no failed delivery yet."""
        error = await registry.looked(one.sink, self._settings.timeout_s)
        if error is not None:
            one.unready = True
            self._tell(one, replace(one.state, **_words(error)))
        elif one.unready:
            one.unready = False
            if one.failures == 0:
                self._tell(one, replace(one.state, reason=None, detail=None, fix=None))

    def _succeeded(self, one: _Served, message: Message) -> None:
        now = self._now()
        told = len(message.firing) + len(message.resolved)  # none where only less is shown
        if told:
            log.info("alerts_delivered", sink=one.sink.name, alerts=told)
        one.failures, one.failing_since, one.unready = 0, None, False
        self._over(one.sink.name, now)
        count = one.state.sent + bool(told)
        self._tell(one, SinkState(count, one.state.failed, last_success_s=now.wall_s))

    def _failed(self, one: _Served, error: DeliveryError) -> None:
        now = self._now()
        one.failures += 1
        one.failing_since = one.failing_since or now
        log.warning(
            "alerts_not_delivered",
            sink=one.sink.name,
            reason=error.reason,
            detail=str(error),
            fix=error.fix,
        )
        state = replace(one.state, failed=one.state.failed + 1, **_words(error))
        self._tell(one, state)
        self._trouble(one, now)

    def _trouble(self, one: _Served, now: Instant) -> None:
        """Raise the alert that a sink fails, once it is no hiccup; the other sinks hear of it."""
        if one.failing_since is None:
            return
        detail, fix = one.state.detail or "", one.state.fix
        failures, since = one.failures, one.failing_since
        alert = delivery.failing(
            one.sink.name, detail, fix, failures=failures, since=since, now=now
        )
        if alert is not None:
            self._raised(alert)

    def _over(self, name: str, now: Instant) -> None:
        """End the alert of a sink that delivers again, or that nothing waits for any more."""
        for alert in self._read().alerts:
            if alert.firing and _fails(alert, name):
                self._ended(alert.fingerprint, now.wall_s)

    def _forget_others(self, snapshot: Snapshot) -> None:
        """End the alerts of sinks that are not configured any more."""
        there = {one.sink.name for one in self._served}
        for alert in snapshot.alerts:
            name = alert.labels.get("sink", "")
            if alert.firing and _fails(alert, name) and name not in there:
                self._ended(alert.fingerprint, self._now().wall_s)

    def _tell(self, one: _Served, state: SinkState) -> None:
        one.state = state
        self._publish(SinkTold(one.sink.name, state, self._now().wall_s))
        self._say_health()

    def _say_health(self) -> None:
        wrong = {one.sink.name: one.state for one in self._served if one.state.reason is not None}
        words = [f"{name}: {state.detail}" for name, state in wrong.items()]
        words += [f"{name}: {why}" for name, why in sorted(self._refused.items())]
        fixes = {name: state.fix for name, state in wrong.items() if state.fix}
        if len(wrong) > 1:
            fixes = {name: f"{name}: {fix}" for name, fix in fixes.items()}
        reason = next((state.reason for state in wrong.values()), "refused")
        self._publish(
            HealthSet(
                "alerts",
                Level.DEGRADED if words else Level.OK,
                self._now().wall_s,
                reason=reason if words else None,
                detail="; ".join(words) or None,
                fix="; ".join(str(fix) for fix in fixes.values()) or None,
            )
        )

    async def _remember(self) -> None:
        """Learn what the sinks were told before this start.

        A history that cannot be read is waited for while nothing new is told anyway: without what
        it knows everything is told again, and what ended meanwhile to nobody.
        """
        failures = 0
        while True:
            try:
                kept = await self._history.ask(lambda store: store.read(deliveryrows.kept))
                break
            except StoreError as error:
                if self._now().mono_s >= self._quiet_s():
                    log.warning("deliveries_forgotten", reason=error.reason, detail=str(error))
                    return
            failures += 1
            await asyncio.sleep(self._retry.delay_s(failures + 1, self._jitter()))
        now, repeat_s = self._now(), self._settings.repeat_interval_s
        for one in self._served:
            one.memory = delivery.restored(kept.get(one.sink.name), now, repeat_s)

    async def _keeping(self) -> None:
        """Write down what was told, beside the deliveries: a slow disk delays none of them."""
        try:
            while True:
                await self._unsaved.wait()
                await self._keep()
        finally:
            if self._unsaved.is_set():
                await self._keep()

    async def _keep(self) -> None:
        self._unsaved.clear()
        told = {one.sink.name: delivery.saved(one.memory) for one in self._served}
        at_s = self._now().wall_s
        try:
            await asyncio.shield(
                self._history.ask(
                    lambda store: store.write(lambda rows: deliveryrows.keep(rows, told, at_s))
                )
            )
        except StoreError as error:
            log.warning("deliveries_not_kept", reason=error.reason, detail=str(error))
        self._kept_to = self._history.opened


def _fails(alert: Alert, sink: str) -> bool:
    return alert.name == SINK_FAILING and alert.labels.get("sink") == sink


def _words(error: DeliveryError) -> dict[str, Any]:
    fix = None if error.fix is None else escaped(error.fix)
    return {"reason": error.reason, "detail": escaped(str(error)), "fix": fix}


async def _woken(event: asyncio.Event, within_s: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await event.wait()
