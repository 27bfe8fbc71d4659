"""What is due to which sink now: pure, with time as a value.

Waits are by the monotonic clock; a wall clock that is set back delays and repeats nothing. What a
sink was told outlives the agent (``saved``, ``restored``): a restart tells nothing twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gpud.core import message as messages
from gpud.core.alerts import SINK_FAILING, Alert, Severity
from gpud.core.clock import Instant
from gpud.core.message import RANK, Message, worst_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ENDED_HOLDS_S: Final = 3600.0
"""For so long what ended is still shown, by a sink that shows and does not send."""
FAILING_AFTER: Final = 3
FAILING_AFTER_S: Final = 600.0
"""So many failures in a row, or so long a row, and the other sinks tell of it."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How one sink is told. ``shows``: it holds a state up, rather than sending messages."""

    group_wait_s: float
    repeat_interval_s: float
    shows: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """An alert as a sink was told it; not ``delivered``: it said no, and is left alone with it."""

    alert: Alert
    at: Instant
    delivered: bool = True


Shown = tuple[tuple[str, ...], tuple[str, ...]]
"""Which alerts, by fingerprint and moment, and which ended ones a showing sink holds up."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What one sink knows, by fingerprint."""

    told: Mapping[str, Told] = field(default_factory=dict)
    ended: Mapping[str, Told] = field(default_factory=dict)
    news_mono_s: float | None = None  # since when something waits to be told
    shown: Shown | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """``message`` is due now, or nothing is; ``after`` is what the sink knows once it has it.

    ``wake_mono_s``: look again then, whatever happens; None: only when something happens.
    """

    message: Message | None
    after: Memory
    wake_mono_s: float | None = None


@dataclass(frozen=True, slots=True)
class _News:
    """Firing alerts that a sink does not know, those that are due again, and those that ended."""

    fresh: tuple[Alert, ...]
    again: tuple[Alert, ...]
    resolved: tuple[Alert, ...]
    forgotten: frozenset[str]  # ended, and never told


def step(
    policy: Policy,
    alerts: Iterable[Alert] | None,
    memory: Memory,
    now: Instant,
    quiet_until_mono_s: float,
) -> Step:
    """Say what is due.

    ``alerts`` is all that fires and what ended lately, None while nobody has said. Until
    ``quiet_until_mono_s`` nothing new is told, nothing again, and what is missing is not over.
    """
    if alerts is None:
        return Step(None, memory)
    quiet = now.mono_s < quiet_until_mono_s
    latest = _latest(alerts)
    news = _news(policy, latest, memory, now, quiet=quiet)
    told = {name: one for name, one in memory.told.items() if name not in news.forgotten}
    ended = {
        name: one
        for name, one in memory.ended.items()
        if name not in told and now.mono_s - one.at.mono_s < ENDED_HOLDS_S
    }
    waits = bool(news.fresh or news.resolved)
    since_s = (now.mono_s if memory.news_mono_s is None else memory.news_mono_s) if waits else None
    ripe = since_s is not None and now.mono_s >= since_s + policy.group_wait_s
    if ripe or news.again:
        for alert in news.resolved:
            del told[alert.fingerprint]
            ended[alert.fingerprint] = Told(alert, now)
        for alert in (*news.fresh, *news.again):
            told[alert.fingerprint] = Told(alert, now)
            ended.pop(alert.fingerprint, None)
        firing, resolved, since_s = (*news.fresh, *news.again), news.resolved, None
    else:
        firing, resolved = (), ()
    standing = {name: one for name, one in told.items() if _stands(one, latest.get(name))}
    after = Memory(told, ended, since_s, _shown(standing, ended) if policy.shows else None)
    if firing or resolved or (policy.shows and after.shown != memory.shown):
        due = Message(
            worst_first(firing),
            worst_first(resolved),
            worst_first(one.alert for one in standing.values()),
            worst_first(one.alert for one in ended.values()),
        )
        return Step(due, after)
    return Step(None, after, _wake(policy, after, quiet_until_mono_s, now))


def refused(due: Step, before: Memory, now: Instant) -> Memory:
    """Give what a sink knows that has said no to a message for good: it is left alone with it."""
    if due.message is None:
        return due.after
    told = dict(due.after.told)
    for alert in due.message.firing:
        known = before.told.get(alert.fingerprint)
        told[alert.fingerprint] = Told(alert, now, known is not None and known.delivered)
    return replace(due.after, told=told)


def owed(memory: Memory) -> bool:
    """Say whether something that it should know has not been delivered to a sink."""
    waits = memory.news_mono_s is not None
    return waits or any(not one.delivered for one in memory.told.values())


def saved(memory: Memory) -> dict[str, Any]:
    """Give as plain JSON data what must outlive the agent."""
    return {
        "told": [_plain(one) for one in memory.told.values()],
        "ended": [_plain(one) for one in memory.ended.values()],
    }


def restored(data: object, now: Instant, repeat_interval_s: float) -> Memory:
    """Read ``saved`` data; what is not of that shape is passed over.

    By the wall clock, for the monotonic one is another after a boot: what was told in the future
    was told now, and what was told long ago is due again once.
    """
    if not isinstance(data, dict):
        return Memory()
    return Memory(
        _read(data.get("told"), now, repeat_interval_s),
        _read(data.get("ended"), now, ENDED_HOLDS_S),
    )


def failing(  # noqa: PLR0913  # each is one fact of the trouble
    sink: str,
    detail: str,
    fix: str | None,
    *,
    failures: int,
    since: Instant,
    now: Instant,
) -> Alert | None:
    """Give the alert that a sink fails; None while that may still be a hiccup."""
    if failures < FAILING_AFTER and now.mono_s - since.mono_s < FAILING_AFTER_S:
        return None
    return Alert(
        name=SINK_FAILING,
        severity=Severity.WARNING,
        labels={"sink": sink},
        summary=f"alerts do not arrive through {sink}",
        description=detail,
        starts_s=since.wall_s,
        updated_s=now.wall_s,
        fix=fix,
    )


def _latest(alerts: Iterable[Alert]) -> dict[str, Alert]:
    """Give one alert for each fingerprint: the one that fires, else the one that began last."""
    found: dict[str, Alert] = {}
    for alert in alerts:
        known = found.get(alert.fingerprint)
        if known is None or (alert.firing, alert.starts_s) > (known.firing, known.starts_s):
            found[alert.fingerprint] = alert
    return found


def _news(
    policy: Policy, latest: Mapping[str, Alert], memory: Memory, now: Instant, *, quiet: bool
) -> _News:
    fresh, again = [], []
    for name, alert in latest.items():
        known = memory.told.get(name)
        if not alert.firing or alert.acknowledged_s is not None or quiet:
            continue
        if known is None or RANK[alert.severity] > RANK[known.alert.severity]:
            fresh.append(alert)
        elif _repeats(policy, known) and now.mono_s - known.at.mono_s >= policy.repeat_interval_s:
            again.append(alert)
    resolved, forgotten = [], set()
    for name, known in memory.told.items():
        alert = latest.get(name) or replace(known.alert, ends_s=now.wall_s)
        if alert.firing or (quiet and name not in latest):
            continue
        if known.delivered:
            resolved.append(alert)
        else:
            forgotten.add(name)
    return _News(tuple(fresh), tuple(again), tuple(resolved), frozenset(forgotten))


def _repeats(policy: Policy, told: Told) -> bool:
    """What is shown stays shown and needs no reminder, unless it was not taken."""
    return not (policy.shows and told.delivered)


def _stands(told: Told, current: Alert | None) -> bool:
    return told.delivered and (current is None or current.acknowledged_s is None)


def _shown(standing: Mapping[str, Told], ended: Mapping[str, Told]) -> Shown:
    return (
        tuple(sorted(f"{name} {one.at.mono_s}" for name, one in standing.items())),
        tuple(sorted(ended)),
    )


def _wake(
    policy: Policy,
    memory: Memory,
    quiet_until_mono_s: float,
    now: Instant,
) -> float | None:
    moments = [quiet_until_mono_s]
    if memory.news_mono_s is not None:
        moments.append(memory.news_mono_s + policy.group_wait_s)
    if policy.shows:
        moments += [one.at.mono_s + ENDED_HOLDS_S for one in memory.ended.values()]
    repeated = (one for one in memory.told.values() if _repeats(policy, one))
    moments += [one.at.mono_s + policy.repeat_interval_s for one in repeated]
    return min((moment for moment in moments if moment > now.mono_s), default=None)


def _plain(told: Told) -> dict[str, Any]:
    alert = told.alert
    return {
        "name": alert.name,
        "severity": alert.severity.value,
        "labels": dict(alert.labels),
        "summary": alert.summary,
        "description": alert.description,
        "starts_s": alert.starts_s,
        "updated_s": alert.updated_s,
        "ends_s": alert.ends_s,
        "at_s": told.at.wall_s,
        "delivered": told.delivered,
    }


def _read(data: object, now: Instant, longest_s: float) -> dict[str, Told]:
    found = {}
    for one in data if isinstance(data, list) else ():
        try:
            alert = messages.inert(
                Alert(
                    name=str(one["name"]),
                    severity=Severity(one["severity"]),
                    labels={str(name): str(value) for name, value in one["labels"].items()},
                    summary=str(one["summary"]),
                    description=str(one["description"]),
                    starts_s=float(one["starts_s"]),
                    updated_s=float(one["updated_s"]),
                    ends_s=None if one["ends_s"] is None else float(one["ends_s"]),
                )
            )
            at_s, delivered = float(one["at_s"]), bool(one["delivered"])
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            continue
        ago_s = min(max(now.wall_s - at_s, 0.0), longest_s)
        if math.isfinite(ago_s + alert.starts_s + alert.updated_s + (alert.ends_s or 0.0)):
            told = Told(alert, Instant(at_s, now.mono_s - ago_s), delivered)
            found[alert.fingerprint] = told
    return found
