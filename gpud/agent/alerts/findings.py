"""The way from an alarm to a finding: what else changed at that moment."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gpud.agent.alerts import causes
from gpud.agent.alerts.slowdowns import Finding
from gpud.agent.history import queries
from gpud.agent.history.queries import Sides
from gpud.agent.regression.causes import DXG
from gpud.agent.regression.detector import ChangeKind
from gpud.agent.regression.detector.model import SLACK_S
from gpud.core import dxg
from gpud.core.alerts import Cause
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.agent.history.store import History
    from gpud.agent.regression.evaluation import Evaluator, StreamAlarm
    from gpud.agent.state.snapshot import Snapshot

COMPARED: Final = 60
"""Runs on either side of a change: an hour's, or what the alarm rests on if that is more."""


async def finding(
    decided: StreamAlarm, evaluator: Evaluator, history: History, snapshot: Snapshot
) -> Finding:
    """Return an alarm with its likely causes; an improvement needs none."""
    alarm = decided.alarm
    changed = tuple(Cause(one.kind, one.old, one.new) for one in decided.differences)
    likely: tuple[Cause, ...] = ()
    if alarm.worse:
        sides = await _sides(decided, history)
        likely = causes.likely(
            sides.before,
            sides.after,
            changed=changed,
            beside=_messages(decided, snapshot),
            cpu_slower=_cpu_slower(decided, evaluator),
        )
    return Finding(decided.key, decided.unit, alarm, decided.standing.judged, changed, likely)


async def _sides(decided: StreamAlarm, history: History) -> Sides:
    alarm = decided.alarm
    most, slow = max(COMPARED, alarm.samples), alarm.kind is ChangeKind.SLOW_STATE
    with suppress(StoreError):  # the runs report it; the versions are known all the same
        return await history.read(
            queries.conditions_around, decided.key, alarm.since_s, most, slow=slow
        )
    return Sides()


def _messages(decided: StreamAlarm, snapshot: Snapshot) -> Iterator[Cause]:
    """Yield what the kernel log says of the GPU's channel since shortly before the change."""
    alarm, root = decided.alarm, snapshot.root.report
    message = None if root is None or root.kernel_log is None else root.kernel_log.last
    if decided.key.gpu is None or message is None:
        return
    if alarm.since_s - dxg.RECENT_S <= message.at_s <= alarm.at_s:
        yield Cause(DXG, detail=f"the channel to Windows: {message.words}")


def _cpu_slower(decided: StreamAlarm, evaluator: Evaluator) -> bool | None:
    """Return whether the CPU's streams slowed at about the same time; None if there are none."""
    if decided.key.gpu is None or not any(key.gpu is None for key in evaluator.streams):
        return None
    return any(
        key.gpu is None and abs(alarm.since_s - decided.alarm.since_s) <= SLACK_S
        for key, alarm in evaluator.alarms_of_others(decided.key)
    )
