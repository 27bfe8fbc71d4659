"""Decisions of the dockerd manager: observation and memory in, next memory and action out.

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
    LISTENER_PRESENT,
    OURS_TO_KEEP,
    WELL,
    Action,
    Api,
    Containerd,
    DockerdObservation,
    DockerdState,
    Hold,
    Limits,
    Memory,
    Policy,
)

CRASHLOOP_FROM = 5
"""Failures in a row after which waiting is called by its name."""
IDLE_SHARE = 0.02
"""Of one core, up to which a dockerd counts as idle; 20.10 uses 0.002 to 0.008 for itself."""
IDLE_SLACK_S = 0.02
"""Two of the kernel's ticks: CPU time is read in whole ones."""
DEAF_S = 2.0
"""How long a dockerd idles after SIGTERM before it may be killed early."""
KILLS_FORGIVEN = 200
"""In a row: a dockerd that was killed from outside did not fail, and the next waits for no
back-off. The limit is for an OOM killer that comes back every time."""
SIGKILL = 9


def step(
    memory: Memory, observation: DockerdObservation, policy: Policy, limits: Limits, now_s: float
) -> tuple[Memory, Action]:
    """Remember what was seen, ask the policy, and allow what cannot be wrong."""
    updated = _observed(memory, observation, limits, now_s)
    action = requested = policy(observation, updated, limits, now_s)
    if not _allowed(requested, updated, observation, now_s):
        action = Action.NOTHING
    after = _acted(updated, action, observation, limits, now_s)
    state = _state(after, observation, limits, now_s, start_requested=requested is Action.START)
    return after if state is after.state else replace(after, state=state, since_s=now_s), action


def due(observation: DockerdObservation, memory: Memory, limits: Limits, now_s: float) -> Action:
    """Say what keeping dockerd alive asks for now: the rule behind ``manage``."""
    if observation.process is None:
        return Action.START
    if memory.terminated_s is not None:
        deaf = _lasts(memory.idle_since_s, DEAF_S, now_s)
        patience_s = limits.kill_after_s if deaf else limits.kill_at_work_after_s
        waited = _lasts(memory.terminated_s, patience_s, now_s)
        return Action.KILL if waited and not memory.killed else Action.NOTHING
    if observation.containerd is Containerd.OWN_IS_GONE:
        lost = _lasts(memory.containerd_gone_s, limits.containerd_after_s, now_s)
        return Action.TERMINATE if lost else Action.NOTHING
    if memory.answered and observation.api is not Api.SILENT:
        return Action.NOTHING  # a socket file that vanished is no proof of a hang
    starts = not memory.answered and not (observation.activity and observation.activity.stopped)
    patience_s = limits.start_timeout_s if starts else limits.hung_after_s
    return Action.TERMINATE if _lasts(memory.idle_since_s, patience_s, now_s) else Action.NOTHING


def _lasts(since_s: float | None, long_s: float, now_s: float) -> bool:
    return since_s is not None and now_s - since_s >= long_s


def _observed(
    memory: Memory, observation: DockerdObservation, limits: Limits, now_s: float
) -> Memory:
    failed_start = memory.start_requested_s is not None and observation.process is None
    passed_on = (observation.owner in OURS_TO_KEEP) is not (memory.owner in OURS_TO_KEEP)
    if observation.process != memory.process or failed_start or passed_on:
        memory = _changed(memory, observation, limits, now_s, failed_start=failed_start)
    memory = replace(_resumed(memory, observation, now_s), owner=observation.owner)
    if observation.process is None:
        return replace(memory, idle_since_s=None, activity=None, containerd_gone_s=None)
    gone = observation.containerd in (Containerd.OWN_IS_GONE, Containerd.OTHER_IS_GONE)
    first_gone_s = now_s if memory.containerd_gone_s is None else memory.containerd_gone_s
    memory = replace(memory, containerd_gone_s=first_gone_s if gone else None)
    if observation.api not in WELL:
        return _watched(memory, observation, limits, now_s)
    took_s = (
        now_s - memory.start_requested_s
        if memory.start_requested_s is not None
        else memory.last_start_s
    )
    memory = replace(memory, idle_since_s=None, activity=None)
    return replace(memory, answered=True, start_requested_s=None, last_start_s=took_s)


def _resumed(memory: Memory, observation: DockerdObservation, now_s: float) -> Memory:
    """Begin every wait anew after a pause of the machine: its clocks parted since the last look."""
    if observation.wall_s is None:
        return memory
    before, now = memory.looked, Instant(observation.wall_s, now_s)
    if before and clock.jumped(before, now, threshold_s=clock.BETWEEN_TICKS_S) is not None:
        ending_s = None if memory.terminated_s is None else now_s
        memory = replace(memory, idle_since_s=None, activity=None, terminated_s=ending_s)
        memory = replace(memory, containerd_gone_s=None)
    return replace(memory, looked=now)


def _watched(
    memory: Memory, observation: DockerdObservation, limits: Limits, now_s: float
) -> Memory:
    """Count how long a silent dockerd has done nothing, from reading to reading."""
    before, now, since_s = memory.activity, observation.activity, memory.idle_since_s
    if now is None:
        return memory
    passed_s = now_s - memory.activity_s
    if before is None or now.active or passed_s > limits.look_within_s:
        since_s = None
    elif abs(now.cpu_s - before.cpu_s) > IDLE_SHARE * passed_s + IDLE_SLACK_S:
        since_s = None  # it also falls, with a descendant that leaves
    if since_s is None and not now.active:
        since_s = now_s
    return replace(memory, idle_since_s=since_s, activity=now, activity_s=now_s)


def _changed(
    memory: Memory,
    observation: DockerdObservation,
    limits: Limits,
    now_s: float,
    *,
    failed_start: bool,
) -> Memory:
    """Remember another process or owner than before: the old one, or the start, has ended."""
    start_requested_s = memory.start_requested_s
    there = observation.process is not None or observation.api in LISTENER_PRESENT
    if observation.owner not in OURS_TO_KEEP and there:
        start_requested_s = None  # somebody took over: whatever became of ours is no failure
        memory = replace(memory, hold=None, ended=None, last_exit=None)
    elif memory.owner not in OURS_TO_KEEP and start_requested_s is None:
        # The foreign dockerd is gone; if none ever ran, keep the reason why our last one ended.
        memory = replace(memory, hold=None, ended=memory.ended or "taken_over")
    elif memory.process is not None or failed_start:
        start_requested_s = None
        memory = _failed(memory, observation, limits, now_s)
    return replace(
        memory,
        process=observation.process,
        process_since_s=now_s,
        answered=False,
        start_requested_s=start_requested_s,
        idle_since_s=None,
        activity=None,
        containerd_gone_s=None,
        terminated_s=None,
        killed=False,
    )


def _failed(
    memory: Memory, observation: DockerdObservation, limits: Limits, now_s: float
) -> Memory:
    lived_s = now_s - memory.process_since_s if memory.process is not None else 0.0
    well = lived_s >= limits.backoff.well_after_s
    if _killed_from_outside(memory, observation) and (well or memory.kills < KILLS_FORGIVEN):
        return replace(
            memory,
            failures=0 if well else memory.failures,
            kills=1 if well else memory.kills + 1,
            next_try_s=now_s,
            ended=_label(memory, observation),
            last_exit=observation.exit,
        )
    failures = limits.backoff.failures(memory.failures, lived_s)
    cause = observation.exit.cause if observation.exit is not None and not memory.answered else None
    hold = None
    if cause is not None:
        # A change between the start and its end counts: compare with what the start met.
        appearance = {
            watch: memory.tried_in.get(watch, observation.conditions.get(watch, ""))
            for watch in cause.watch
        }
        hold = Hold(cause, appearance, now_s)
    return replace(
        memory,
        failures=failures,
        next_try_s=now_s + limits.backoff.delay_s(failures, observation.jitter),
        ended=_label(memory, observation),
        last_exit=observation.exit,
        hold=hold,
    )


def _killed_from_outside(memory: Memory, observation: DockerdObservation) -> bool:
    by_kill = observation.exit is not None and observation.exit.signal == SIGKILL
    return by_kill and memory.terminated_s is None


def _label(memory: Memory, observation: DockerdObservation) -> str:
    if memory.terminated_s is not None:
        return memory.terminated_for
    if _killed_from_outside(memory, observation):
        return "killed"
    if not memory.answered and memory.start_requested_s is not None:
        return "start_failed"
    return (
        "killed"
        if observation.exit is not None and observation.exit.signal is not None
        else "exited"
    )


def _allowed(action: Action, memory: Memory, observation: DockerdObservation, now_s: float) -> bool:
    match action:
        case Action.NOTHING:
            return False
        case Action.START:
            no_dockerd = observation.process is None and observation.api not in LISTENER_PRESENT
            held = memory.hold is not None and not memory.hold.ended(observation.conditions)
            clear = observation.obstacle is None and not held
            return no_dockerd and clear and now_s >= memory.next_try_s
        case Action.TERMINATE:
            idle = memory.idle_since_s is not None and memory.idle_since_s < now_s
            hung = observation.api not in WELL and observation.activity is not None and idle
            wrong = hung or observation.containerd is Containerd.OWN_IS_GONE
            return observation.process is not None and wrong and memory.terminated_s is None
        case Action.KILL:
            return (
                observation.process is not None
                and memory.terminated_s is not None
                and not memory.killed
            )


def _acted(
    memory: Memory, action: Action, observation: DockerdObservation, limits: Limits, now_s: float
) -> Memory:
    match action:
        case Action.START:
            counted = dict(memory.restarts)
            if memory.ended is not None:
                counted[memory.ended] = counted.get(memory.ended, 0) + 1
            # Somebody who mends one thing after another waits for none of the earlier tries.
            rested = memory.hold is not None and _lasts(
                memory.hold.since_s, limits.backoff.well_after_s, now_s
            )
            return replace(
                memory,
                start_requested_s=now_s,
                ended=None,
                restarts=counted,
                failures=0 if rested else memory.failures,
                tried_in=dict(observation.conditions),
                hold=None,
                # For one that is taken over, and so never fails.
                next_try_s=now_s + limits.backoff.first_s,
            )
        case Action.TERMINATE:
            why = "hung" if observation.api not in WELL else "containerd_gone"
            return replace(memory, terminated_s=now_s, terminated_for=why)
        case Action.KILL:
            return replace(memory, killed=True)
        case Action.NOTHING:
            return memory


def _state(
    memory: Memory,
    observation: DockerdObservation,
    limits: Limits,
    now_s: float,
    *,
    start_requested: bool,
) -> DockerdState:
    if observation.api in WELL:
        return DockerdState.RUNNING
    if observation.process is None:
        return _state_of_none(memory, observation, now_s, start_requested=start_requested)
    if memory.terminated_s is not None:
        return DockerdState.STOPPING
    young = now_s - memory.process_since_s < limits.start_timeout_s
    return DockerdState.STARTING if young and not memory.answered else DockerdState.UNRESPONSIVE


def _state_of_none(
    memory: Memory, observation: DockerdObservation, now_s: float, *, start_requested: bool
) -> DockerdState:
    """Return the state of a dockerd that does not run, by whether its start was requested."""
    if observation.api is Api.SILENT:
        stranger = observation.owner is Owner.OTHER and observation.obstacle is not None
        return DockerdState.MISCONFIGURED if stranger else DockerdState.UNRESPONSIVE
    if memory.start_requested_s is not None:
        return DockerdState.STARTING
    if start_requested and (observation.obstacle is not None or memory.hold is not None):
        return DockerdState.MISCONFIGURED
    if start_requested and now_s < memory.next_try_s:
        return DockerdState.CRASHLOOP if memory.failures >= CRASHLOOP_FROM else DockerdState.BACKOFF
    return DockerdState.ABSENT


def auto(observation: DockerdObservation, memory: Memory, limits: Limits, now_s: float) -> Action:
    """Keep what is gpud's or nobody's: watch another owner's dockerd, and begin when it is gone."""
    ours = observation.owner in OURS_TO_KEEP
    return due(observation, memory, limits, now_s) if ours else Action.NOTHING


def watch(_: DockerdObservation, _memory: Memory, _limits: Limits, _now_s: float) -> Action:
    """Touch nothing."""
    return Action.NOTHING


POLICIES: dict[str, Policy] = {"auto": auto, "manage": due, "observe": watch, "off": watch}
"""By name in the settings; with ``off`` the supervisor opens no socket of Docker's."""
