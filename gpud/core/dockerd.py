"""Keep dockerd alive, as arithmetic: what was seen and what is remembered give the next action.

``step`` is total: every memory and every observation has an answer. A policy only asks; ``step``
refuses what would be wrong whoever asks: a start beside a living dockerd, a start before its time,
a signal to a dockerd that answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from gpud.core.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpud.core.report import Owner, ProcessRef

CRASHLOOP_FROM = 5
"""Failures in a row after which waiting is called by its name."""


class State(StrEnum):
    """Where dockerd is, in one word for people and reports."""

    OFF = "off"  # nobody looks
    ABSENT = "absent"  # none runs and none is due
    STARTING = "starting"
    RUNNING = "running"
    UNRESPONSIVE = "unresponsive"
    STOPPING = "stopping"  # told to end, by us, because it hung
    BACKOFF = "backoff"
    CRASHLOOP = "crashloop"


class Api(StrEnum):
    """What the socket did when asked for ``/_ping``."""

    ANSWERS = "answers"
    SILENT = "silent"  # connected, and nothing came back in time
    REFUSED = "refused"  # the file is there and nobody listens
    ABSENT = "absent"  # no such file
    DENIED = "denied"  # somebody listens, and we may not ask


SOMEBODY = frozenset({Api.ANSWERS, Api.DENIED, Api.SILENT})
"""Answers that prove a listener, whoever it is."""
WELL = frozenset({Api.ANSWERS, Api.DENIED})


class Action(StrEnum):
    """What is done to the world after one look at it."""

    NOTHING = "nothing"
    START = "start"
    TERMINATE = "terminate"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a dockerd ended; code and signal are both None when it was not our child."""

    code: int | None = None
    signal: int | None = None
    log: tuple[str, ...] = ()  # its last lines

    def words(self) -> str:
        """Say it for a person: how it ended, and its own last complaint."""
        if self.signal is not None:
            how = f"ended by signal {self.signal}"
        else:
            how = "ended" if self.code is None else f"exited with code {self.code}"
        return f"{how}: {said}" if (said := complaint(self.log)) else how


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the world. ``exit`` is how the last process ended, once that is known."""

    process: ProcessRef | None
    owner: Owner
    api: Api
    binary: bool
    exit: Exit | None = None
    jitter: float = 0.0  # 0..1, drawn by the caller


@dataclass(frozen=True, slots=True)
class Limits:
    """When patience ends. Units: seconds."""

    start_timeout_s: float = 60.0
    hung_after_s: float = 30.0
    kill_after_s: float = 10.0
    backoff: Backoff = field(default_factory=Backoff)


@dataclass(frozen=True, slots=True)
class Keeper:
    """Everything remembered between two looks. Units: monotonic seconds."""

    state: State = State.ABSENT
    since_s: float = 0.0
    process: ProcessRef | None = None
    first_seen_s: float = 0.0  # of this process
    answered: bool = False  # this process has, at least once
    asked_s: float | None = None  # when a start was asked for whose outcome is open
    silent_since_s: float | None = None
    terminated_s: float | None = None
    killed: bool = False
    failures: int = 0
    next_try_s: float = 0.0
    ended: str | None = None  # why the next start is a restart: a label of bounded size
    last_exit: Exit | None = None
    last_start_s: float | None = None  # start asked to first good answer
    restarts: Mapping[str, int] = field(default_factory=dict)


Policy: TypeAlias = "Callable[[Seen, Keeper, Limits, float], Action]"


def step(
    keeper: Keeper, seen: Seen, policy: Policy, limits: Limits, now_s: float
) -> tuple[Keeper, Action]:
    """Remember what was seen, ask the policy, and allow what cannot be wrong."""
    known = _named(_observed(keeper, seen, limits, now_s), seen, limits, now_s)
    action = policy(seen, known, limits, now_s)
    if not _allowed(action, known, seen, now_s):
        return known, Action.NOTHING
    return _named(_acted(known, action, now_s), seen, limits, now_s), action


def due(seen: Seen, keeper: Keeper, limits: Limits, now_s: float) -> Action:
    """Say what keeping dockerd alive asks for now: the rule behind ``manage``."""
    if seen.process is None:
        return Action.START
    if keeper.terminated_s is not None:
        waited = now_s - keeper.terminated_s >= limits.kill_after_s
        return Action.KILL if waited and not keeper.killed else Action.NOTHING
    if keeper.answered and seen.api is not Api.SILENT:
        return Action.NOTHING  # a socket file that vanished is no proof of a hang
    patience_s = limits.hung_after_s if keeper.answered else limits.start_timeout_s
    silent = keeper.silent_since_s is not None and now_s - keeper.silent_since_s >= patience_s
    return Action.TERMINATE if silent else Action.NOTHING


def complaint(log: tuple[str, ...]) -> str | None:
    """Find dockerd's own last word about an error, else its last line at all."""
    lines = [line.strip() for line in log if line.strip()]
    bad = [line for line in lines if any(mark in line for mark in _COMPLAINTS)]
    return (bad or lines)[-1] if lines else None


_COMPLAINTS = (
    "level=fatal",
    "level=error",
    "failed to start",
    "unable to",
    "panic:",
    "fatal error",
)


def _observed(keeper: Keeper, seen: Seen, limits: Limits, now_s: float) -> Keeper:
    if seen.process != keeper.process or (keeper.asked_s is not None and seen.process is None):
        keeper = _changed(keeper, seen, limits, now_s)
    if seen.process is None:
        return replace(keeper, silent_since_s=None)
    if seen.api not in WELL:
        since_s = now_s if keeper.silent_since_s is None else keeper.silent_since_s
        return replace(keeper, silent_since_s=since_s)
    took_s = now_s - keeper.asked_s if keeper.asked_s is not None else keeper.last_start_s
    return replace(keeper, answered=True, silent_since_s=None, asked_s=None, last_start_s=took_s)


def _changed(keeper: Keeper, seen: Seen, limits: Limits, now_s: float) -> Keeper:
    """Another process than before, or none: the old one, or the start, has ended."""
    asked_s = keeper.asked_s
    if keeper.process is not None or seen.process is None:
        lived_s = now_s - keeper.first_seen_s if keeper.process is not None else 0.0
        failures = limits.backoff.failures(keeper.failures, lived_s)
        asked_s = None
        keeper = replace(
            keeper,
            failures=failures,
            next_try_s=now_s + limits.backoff.delay_s(failures, seen.jitter),
            ended=_label(keeper, seen),
            last_exit=seen.exit,
        )
    return replace(
        keeper,
        process=seen.process,
        first_seen_s=now_s,
        answered=False,
        asked_s=asked_s,
        silent_since_s=None,
        terminated_s=None,
        killed=False,
    )


def _label(keeper: Keeper, seen: Seen) -> str:
    if keeper.terminated_s is not None:
        return "hung"
    if not keeper.answered:
        return "start_failed"
    return "killed" if seen.exit is not None and seen.exit.signal is not None else "exited"


def _allowed(action: Action, keeper: Keeper, seen: Seen, now_s: float) -> bool:
    match action:
        case Action.NOTHING:
            return False
        case Action.START:
            nobody = seen.process is None and seen.api not in SOMEBODY
            return nobody and seen.binary and now_s >= keeper.next_try_s
        case Action.TERMINATE:
            wrong = seen.process is not None and seen.api not in WELL
            return wrong and keeper.terminated_s is None
        case Action.KILL:
            return (
                seen.process is not None and keeper.terminated_s is not None and not keeper.killed
            )


def _acted(keeper: Keeper, action: Action, now_s: float) -> Keeper:
    match action:
        case Action.START:
            counted = dict(keeper.restarts)
            if keeper.ended is not None:
                counted[keeper.ended] = counted.get(keeper.ended, 0) + 1
            return replace(keeper, asked_s=now_s, ended=None, restarts=counted)
        case Action.TERMINATE:
            return replace(keeper, terminated_s=now_s)
        case Action.KILL:
            return replace(keeper, killed=True)
        case Action.NOTHING:
            return keeper


def _named(keeper: Keeper, seen: Seen, limits: Limits, now_s: float) -> Keeper:
    state = _state(keeper, seen, limits, now_s)
    return keeper if state is keeper.state else replace(keeper, state=state, since_s=now_s)


def _state(keeper: Keeper, seen: Seen, limits: Limits, now_s: float) -> State:
    if seen.api in WELL:
        return State.RUNNING
    if seen.process is None:
        return _state_of_none(keeper, seen, now_s)
    if keeper.terminated_s is not None:
        return State.STOPPING
    young = now_s - keeper.first_seen_s < limits.start_timeout_s
    return State.STARTING if young and not keeper.answered else State.UNRESPONSIVE


def _state_of_none(keeper: Keeper, seen: Seen, now_s: float) -> State:
    if seen.api is Api.SILENT:
        return State.UNRESPONSIVE
    if keeper.asked_s is not None:
        return State.STARTING
    if now_s < keeper.next_try_s:
        return State.CRASHLOOP if keeper.failures >= CRASHLOOP_FROM else State.BACKOFF
    return State.ABSENT
