"""The decision what to send to one sink now: grouping, repetition, and what it was sent before.

Pure. Intervals are measured by the monotonic clock, so a wall clock that is set repeats nothing.
What a sink was sent is saved: a restart repeats nothing either.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Final

import msgspec

from gpud.agent.alerts.message import RANK, Message, worst_first
from gpud.core.alerts import Alert

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpud.core.clock import Instant

ENDED_SHOWN_S: Final = 3600.0
"""How long an alert that ended stays in a sink that shows a state."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The intervals of one sink. ``shows``: it displays a state and is not sent messages."""

    group_wait_s: float
    repeat_interval_s: float
    shows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent(Alert):
    """An alert as it was sent, without evidence. ``delivered`` is False if the sink refused it."""

    at_s: float  # Unix time
    at_mono_s: float = 0.0
    delivered: bool = True


@dataclass(frozen=True, slots=True)
class Memory:
    """What one sink was sent, by fingerprint."""

    sent: Mapping[str, Sent] = field(default_factory=dict)
    ended: Mapping[str, Sent] = field(default_factory=dict)
    waiting_since_s: float | None = None  # by the monotonic clock: since when there is news
    shown: tuple[frozenset[str], frozenset[str]] | None = None  # fingerprints: standing, ended

    @property
    def undelivered(self) -> bool:
        """Whether the sink lacks something that it should have."""
        return self.waiting_since_s is not None or not all(s.delivered for s in self.sent.values())


class Saved(msgspec.Struct, frozen=True):
    """The part of a memory that outlives the agent, as the history has it."""

    sent: tuple[Sent, ...] = msgspec.field(name="told")
    ended: tuple[Sent, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A message that is due now, None for none, and the memory once the sink has it."""

    message: Message | None
    after: Memory


def step(
    policy: Policy, alerts: Iterable[Alert], memory: Memory, now: Instant, *, quiet: bool
) -> Step:
    """Decide what is due.

    ``alerts`` is everything that fires and what ended lately. While ``quiet`` nothing new is sent,
    nothing is repeated, and an alert that is missing is not taken to be over.
    """
    latest = _latest(alerts)
    fresh, repeated = ([], []) if quiet else _firing(policy, latest, memory, now)
    over = _over(latest, memory, now, quiet=quiet)
    resolved = [alert for name, alert in over.items() if memory.sent[name].delivered]
    sent = {name: one for name, one in memory.sent.items() if name not in over or one.delivered}
    ended = {
        name: one
        for name, one in memory.ended.items()
        if name not in sent and now.mono_s - one.at_mono_s < ENDED_SHOWN_S
    }
    since_s = None
    if fresh or resolved:
        since_s = now.mono_s if memory.waiting_since_s is None else memory.waiting_since_s
    firing = (*fresh, *repeated)
    if repeated or (since_s is not None and now.mono_s >= since_s + policy.group_wait_s):
        since_s = None
        for alert in resolved:
            del sent[alert.fingerprint]
            ended[alert.fingerprint] = _sent(alert, now)
        for alert in firing:
            sent[alert.fingerprint] = _sent(alert, now)
            ended.pop(alert.fingerprint, None)
    else:
        firing, resolved = (), []
    standing = {name: one for name, one in sent.items() if _stands(one, latest.get(name))}
    shown = (frozenset(standing), frozenset(ended)) if policy.shows else None
    after = Memory(sent, ended, since_s, shown)
    if not (firing or resolved or shown != memory.shown):
        return Step(None, after)
    parts = (firing, resolved, standing.values(), ended.values())
    return Step(Message(*map(worst_first, parts)), after)


def refused(due: Step, before: Memory) -> Memory:
    """Return the memory of a sink that refused a message for good: it is repeated later only."""
    if due.message is None:
        return due.after
    sent = dict(due.after.sent)
    for alert in due.message.firing:
        previous = before.sent.get(alert.fingerprint)
        had_it = previous is not None and previous.delivered
        sent[alert.fingerprint] = replace(sent[alert.fingerprint], delivered=had_it)
    return replace(due.after, sent=sent)


def saved(memory: Memory) -> Saved:
    """Return what must outlive the agent."""
    return Saved(tuple(memory.sent.values()), tuple(memory.ended.values()))


def restored(past: Saved, now: Instant, repeat_interval_s: float) -> Memory:
    """Build the memory that an earlier agent saved.

    The monotonic clock is another one after a boot, so ages are taken from the wall clock: a time
    in the future counts as now, and what was sent long ago is repeated once.
    """

    def aged(alerts: Iterable[Sent], longest_s: float) -> dict[str, Sent]:
        ages = ((one, min(max(now.wall_s - one.at_s, 0.0), longest_s)) for one in alerts)
        return {one.fingerprint: replace(one, at_mono_s=now.mono_s - age) for one, age in ages}

    return Memory(aged(past.sent, repeat_interval_s), aged(past.ended, ENDED_SHOWN_S))


def _latest(alerts: Iterable[Alert]) -> dict[str, Alert]:
    """Return one alert for each fingerprint: the one that fires, else the one that began last."""
    in_order = sorted(alerts, key=lambda alert: (alert.firing, alert.starts_s))
    return {alert.fingerprint: alert for alert in in_order}


def _firing(
    policy: Policy, latest: Mapping[str, Alert], memory: Memory, now: Instant
) -> tuple[list[Alert], list[Alert]]:
    """Return the alerts that are new to the sink or graver than before, and those to repeat."""
    fresh, repeated = [], []
    for name, alert in latest.items():
        if not alert.firing or alert.acknowledged_s is not None:
            continue
        previous = memory.sent.get(name)
        if previous is None or RANK[alert.severity] > RANK[previous.severity]:
            fresh.append(alert)
        elif policy.shows and previous.delivered:
            continue  # it is displayed already
        elif now.mono_s - previous.at_mono_s >= policy.repeat_interval_s:
            repeated.append(alert)
    return fresh, repeated


def _over(
    latest: Mapping[str, Alert], memory: Memory, now: Instant, *, quiet: bool
) -> dict[str, Alert]:
    """Return the alerts of the memory that fire no more; one that is missing ends now."""
    over: dict[str, Alert] = {}
    for name, previous in memory.sent.items():
        alert = latest.get(name)
        if alert is None and not quiet:
            over[name] = replace(previous, ends_s=now.wall_s)
        elif alert is not None and not alert.firing:
            over[name] = alert
    return over


def _stands(sent: Sent, current: Alert | None) -> bool:
    return sent.delivered and (current is None or current.acknowledged_s is None)


def _sent(alert: Alert, now: Instant) -> Sent:
    parts = {item.name: getattr(alert, item.name) for item in fields(Alert)}
    brief = parts | {"evidence": (), "causes": ()}
    return Sent(**brief, at_s=now.wall_s, at_mono_s=now.mono_s)
