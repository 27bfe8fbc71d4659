"""Keep dockerd alive, as arithmetic: what was seen and what is remembered give the next action.

``step`` is total: every memory and every observation has an answer. A policy only asks; ``step``
refuses what would be wrong whoever asks: a start beside a living dockerd, a start before its time,
a signal to a dockerd that answers.

What another start cannot mend is not tried again: ``MISCONFIGURED`` holds until something its cause
watches looks different. A dockerd of somebody else's is never counted as our failure.
"""

from __future__ import annotations

from dataclasses import replace

from gpud.core import clock
from gpud.core.clock import Instant
from gpud.core.report import Owner
from gpud.root.dockerd_facts import (
    OURS_TO_KEEP,
    SOMEBODY,
    WELL,
    Action,
    Api,
    Containerd,
    Hold,
    Keeper,
    Limits,
    Policy,
    Seen,
    State,
)

CRASHLOOP_FROM = 5
"""Failures in a row after which waiting is called by its name."""
IDLE_SHARE = 0.02
"""Of one core, up to which a dockerd counts as idle; 20.10 uses 0.002 to 0.008 for itself."""
IDLE_SLACK_S = 0.02
"""Two of the kernel's ticks: CPU time is read in whole ones."""
DEAF_S = 2.0
"""How long a dockerd idles after SIGTERM before it may be killed early."""
RESTARTS = ("killed", "exited", "hung", "containerd_gone", "start_failed", "taken_over")
"""Why a start was needed: the label values of the restarts counter."""
KILLS_FORGIVEN = 200
"""In a row: a dockerd that was killed from outside did not fail, and the next waits for no
back-off. The limit is for an OOM killer that comes back every time."""
SIGKILL = 9


def step(
    keeper: Keeper, seen: Seen, policy: Policy, limits: Limits, now_s: float
) -> tuple[Keeper, Action]:
    """Remember what was seen, ask the policy, and allow what cannot be wrong."""
    known = _observed(keeper, seen, limits, now_s)
    action = asked = policy(seen, known, limits, now_s)
    if not _allowed(asked, known, seen, now_s):
        action = Action.NOTHING
    after = _acted(known, action, seen, limits, now_s)
    state = _state(after, seen, limits, now_s, wanted=asked is Action.START)
    return after if state is after.state else replace(after, state=state, since_s=now_s), action


def due(seen: Seen, keeper: Keeper, limits: Limits, now_s: float) -> Action:
    """Say what keeping dockerd alive asks for now: the rule behind ``manage``."""
    if seen.process is None:
        return Action.START
    if keeper.terminated_s is not None:
        deaf = _lasts(keeper.idle_since_s, DEAF_S, now_s)
        patience_s = limits.kill_after_s if deaf else limits.kill_at_work_after_s
        waited = _lasts(keeper.terminated_s, patience_s, now_s)
        return Action.KILL if waited and not keeper.killed else Action.NOTHING
    if seen.containerd is Containerd.OWN_IS_GONE:
        lost = _lasts(keeper.containerd_gone_s, limits.containerd_after_s, now_s)
        return Action.TERMINATE if lost else Action.NOTHING
    if keeper.answered and seen.api is not Api.SILENT:
        return Action.NOTHING  # a socket file that vanished is no proof of a hang
    starts = not keeper.answered and not (seen.activity and seen.activity.stopped)
    patience_s = limits.start_timeout_s if starts else limits.hung_after_s
    return Action.TERMINATE if _lasts(keeper.idle_since_s, patience_s, now_s) else Action.NOTHING


def _lasts(since_s: float | None, long_s: float, now_s: float) -> bool:
    return since_s is not None and now_s - since_s >= long_s


def _observed(keeper: Keeper, seen: Seen, limits: Limits, now_s: float) -> Keeper:
    failed_start = keeper.asked_s is not None and seen.process is None
    passed_on = (seen.owner in OURS_TO_KEEP) is not (keeper.owner in OURS_TO_KEEP)
    if seen.process != keeper.process or failed_start or passed_on:
        keeper = _changed(keeper, seen, limits, now_s, failed_start=failed_start)
    keeper = replace(_resumed(keeper, seen, now_s), owner=seen.owner)
    if seen.process is None:
        return replace(keeper, idle_since_s=None, activity=None, containerd_gone_s=None)
    gone = seen.containerd in (Containerd.OWN_IS_GONE, Containerd.OTHER_IS_GONE)
    first_gone_s = now_s if keeper.containerd_gone_s is None else keeper.containerd_gone_s
    keeper = replace(keeper, containerd_gone_s=first_gone_s if gone else None)
    if seen.api not in WELL:
        return _watched(keeper, seen, limits, now_s)
    took_s = now_s - keeper.asked_s if keeper.asked_s is not None else keeper.last_start_s
    keeper = replace(keeper, idle_since_s=None, activity=None)
    return replace(keeper, answered=True, asked_s=None, last_start_s=took_s)


def _resumed(keeper: Keeper, seen: Seen, now_s: float) -> Keeper:
    """Begin every wait anew after a pause of the machine: its clocks parted since the last look."""
    if seen.wall_s is None:
        return keeper
    before, now = keeper.looked, Instant(seen.wall_s, now_s)
    if before and clock.jumped(before, now, threshold_s=clock.BETWEEN_TICKS_S) is not None:
        ending_s = None if keeper.terminated_s is None else now_s
        keeper = replace(keeper, idle_since_s=None, activity=None, terminated_s=ending_s)
        keeper = replace(keeper, containerd_gone_s=None)
    return replace(keeper, looked=now)


def _watched(keeper: Keeper, seen: Seen, limits: Limits, now_s: float) -> Keeper:
    """Count how long a silent dockerd has done nothing, from reading to reading."""
    before, now, since_s = keeper.activity, seen.activity, keeper.idle_since_s
    if now is None:
        return keeper
    passed_s = now_s - keeper.activity_s
    if before is None or now.active or passed_s > limits.look_within_s:
        since_s = None
    elif abs(now.cpu_s - before.cpu_s) > IDLE_SHARE * passed_s + IDLE_SLACK_S:
        since_s = None  # it also falls, with a descendant that leaves
    if since_s is None and not now.active:
        since_s = now_s
    return replace(keeper, idle_since_s=since_s, activity=now, activity_s=now_s)


def _changed(
    keeper: Keeper, seen: Seen, limits: Limits, now_s: float, *, failed_start: bool
) -> Keeper:
    """Remember another process or owner than before: the old one, or the start, has ended."""
    asked_s = keeper.asked_s
    there = seen.process is not None or seen.api in SOMEBODY
    if seen.owner not in OURS_TO_KEEP and there:
        asked_s = None  # somebody took over: whatever became of ours is no failure
        keeper = replace(keeper, hold=None, ended=None, last_exit=None)
    elif keeper.owner not in OURS_TO_KEEP and asked_s is None:
        # The foreign dockerd is gone; if none ever ran, keep the reason why our last one ended.
        keeper = replace(keeper, hold=None, ended=keeper.ended or "taken_over")
    elif keeper.process is not None or failed_start:
        asked_s = None
        keeper = _failed(keeper, seen, limits, now_s)
    return replace(
        keeper,
        process=seen.process,
        first_seen_s=now_s,
        answered=False,
        asked_s=asked_s,
        idle_since_s=None,
        activity=None,
        containerd_gone_s=None,
        terminated_s=None,
        killed=False,
    )


def _failed(keeper: Keeper, seen: Seen, limits: Limits, now_s: float) -> Keeper:
    lived_s = now_s - keeper.first_seen_s if keeper.process is not None else 0.0
    well = lived_s >= limits.backoff.well_after_s
    if _killed_from_outside(keeper, seen) and (well or keeper.kills < KILLS_FORGIVEN):
        return replace(
            keeper,
            failures=0 if well else keeper.failures,
            kills=1 if well else keeper.kills + 1,
            next_try_s=now_s,
            ended=_label(keeper, seen),
            last_exit=seen.exit,
        )
    failures = limits.backoff.failures(keeper.failures, lived_s)
    cause = seen.exit.cause if seen.exit is not None and not keeper.answered else None
    hold = None
    if cause is not None:
        # A change between the start and its end counts: compare with what the start met.
        appearance = {
            watch: keeper.tried_in.get(watch, seen.conditions.get(watch, ""))
            for watch in cause.watch
        }
        hold = Hold(cause, appearance, now_s)
    return replace(
        keeper,
        failures=failures,
        next_try_s=now_s + limits.backoff.delay_s(failures, seen.jitter),
        ended=_label(keeper, seen),
        last_exit=seen.exit,
        hold=hold,
    )


def _killed_from_outside(keeper: Keeper, seen: Seen) -> bool:
    by_kill = seen.exit is not None and seen.exit.signal == SIGKILL
    return by_kill and keeper.terminated_s is None


def _label(keeper: Keeper, seen: Seen) -> str:
    if keeper.terminated_s is not None:
        return keeper.terminated_for
    if _killed_from_outside(keeper, seen):
        return "killed"
    if not keeper.answered and keeper.asked_s is not None:
        return "start_failed"
    return "killed" if seen.exit is not None and seen.exit.signal is not None else "exited"


def _allowed(action: Action, keeper: Keeper, seen: Seen, now_s: float) -> bool:
    match action:
        case Action.NOTHING:
            return False
        case Action.START:
            nobody = seen.process is None and seen.api not in SOMEBODY
            held = keeper.hold is not None and not keeper.hold.ended(seen.conditions)
            clear = seen.obstacle is None and not held
            return nobody and clear and now_s >= keeper.next_try_s
        case Action.TERMINATE:
            idle = keeper.idle_since_s is not None and keeper.idle_since_s < now_s
            hung = seen.api not in WELL and seen.activity is not None and idle
            wrong = hung or seen.containerd is Containerd.OWN_IS_GONE
            return seen.process is not None and wrong and keeper.terminated_s is None
        case Action.KILL:
            return (
                seen.process is not None and keeper.terminated_s is not None and not keeper.killed
            )


def _acted(keeper: Keeper, action: Action, seen: Seen, limits: Limits, now_s: float) -> Keeper:
    match action:
        case Action.START:
            counted = dict(keeper.restarts)
            if keeper.ended is not None:
                counted[keeper.ended] = counted.get(keeper.ended, 0) + 1
            # Somebody who mends one thing after another waits for none of the earlier tries.
            rested = keeper.hold is not None and _lasts(
                keeper.hold.since_s, limits.backoff.well_after_s, now_s
            )
            return replace(
                keeper,
                asked_s=now_s,
                ended=None,
                restarts=counted,
                failures=0 if rested else keeper.failures,
                tried_in=dict(seen.conditions),
                hold=None,
                # For one that is taken over, and so never fails.
                next_try_s=now_s + limits.backoff.first_s,
            )
        case Action.TERMINATE:
            why = "hung" if seen.api not in WELL else "containerd_gone"
            return replace(keeper, terminated_s=now_s, terminated_for=why)
        case Action.KILL:
            return replace(keeper, killed=True)
        case Action.NOTHING:
            return keeper


def _state(keeper: Keeper, seen: Seen, limits: Limits, now_s: float, *, wanted: bool) -> State:
    if seen.api in WELL:
        return State.RUNNING
    if seen.process is None:
        return _state_of_none(keeper, seen, now_s, wanted=wanted)
    if keeper.terminated_s is not None:
        return State.STOPPING
    young = now_s - keeper.first_seen_s < limits.start_timeout_s
    return State.STARTING if young and not keeper.answered else State.UNRESPONSIVE


def _state_of_none(keeper: Keeper, seen: Seen, now_s: float, *, wanted: bool) -> State:
    """Name what keeps a dockerd from running that the policy wants started (``wanted``)."""
    if seen.api is Api.SILENT:
        stranger = seen.owner is Owner.OTHER and seen.obstacle is not None
        return State.MISCONFIGURED if stranger else State.UNRESPONSIVE
    if keeper.asked_s is not None:
        return State.STARTING
    if wanted and (seen.obstacle is not None or keeper.hold is not None):
        return State.MISCONFIGURED
    if wanted and now_s < keeper.next_try_s:
        return State.CRASHLOOP if keeper.failures >= CRASHLOOP_FROM else State.BACKOFF
    return State.ABSENT
