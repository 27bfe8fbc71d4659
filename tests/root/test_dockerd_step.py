"""Decisions about dockerd in model time, and what is shown of one that cannot start."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gpud.core.clock import Instant
from gpud.core.health import Level
from gpud.core.report import DockerdReport, Owner, ProcessRef
from gpud.core.sections import DockerdSettings
from gpud.root import report
from gpud.root.dockerd_facts import (
    OURS_TO_KEEP,
    Action,
    Activity,
    Api,
    Containerd,
    DockerdCause,
    DockerdObservation,
    DockerdState,
    Exit,
    Limits,
    Memory,
    Policy,
    StartCondition,
)
from gpud.root.dockerd_rules import binary_missing, socket_taken
from gpud.root.dockerd_step import KILLS_FORGIVEN, POLICIES, due, step
from tests.agent.state.folding import START, dockerd_seen
from tests.events import folded

LIMITS = Limits(start_timeout_s=60, hung_after_s=30, kill_after_s=10)
FIRST, TWO = ProcessRef(10, 100), ProcessRef(11, 200)
NONE = DockerdObservation(None, Owner.NONE, Api.REFUSED)
WELL = DockerdObservation(FIRST, Owner.GPUD, Api.ANSWERS)

CAUSE = DockerdCause(
    "port_taken", "taken", "end it", frozenset({StartCondition.PORT, StartCondition.CONFIG}), "x:1"
)

ACTIVITY = st.none() | st.builds(Activity, active=st.booleans(), cpu_s=st.floats(0, 1e6))
REF = st.none() | st.builds(ProcessRef, st.integers(2, 4), st.integers(1, 2))
LOOKS = st.builds(
    DockerdObservation,
    process=REF,
    owner=st.sampled_from(Owner),
    api=st.sampled_from(Api),
    obstacle=st.none() | st.sampled_from([binary_missing("x"), socket_taken("/s", "python3")]),
    conditions=st.dictionaries(st.sampled_from(StartCondition), st.sampled_from(["", "a", "b"])),
    containerd=st.none() | st.sampled_from(Containerd),
    activity=ACTIVITY,
    wall_s=st.none() | st.floats(0, 2e9),
    exit=st.none()
    | st.builds(Exit, code=st.none() | st.integers(0, 255), cause=st.sampled_from([None, CAUSE])),
    jitter=st.floats(0, 1),
)
SECONDS = st.floats(0, 1e6)
MEMORY = st.builds(
    Memory,
    state=st.sampled_from(DockerdState),
    since_s=SECONDS,
    process=REF,
    process_since_s=SECONDS,
    answered=st.booleans(),
    start_requested_s=st.none() | SECONDS,
    idle_since_s=st.none() | SECONDS,
    activity=ACTIVITY,
    activity_s=SECONDS,
    looked=st.none() | st.builds(Instant, SECONDS, SECONDS),
    terminated_s=st.none() | SECONDS,
    killed=st.booleans(),
    failures=st.integers(0, 100),
    next_try_s=SECONDS,
    ended=st.none() | st.just("exited"),
)


def run(
    *looks: tuple[float, DockerdObservation], policy: Policy = due, memory: Memory | None = None
) -> tuple[Memory, list[Action]]:
    memory, actions = memory or Memory(), []
    for now_s, observation in looks:
        memory, action = step(memory, observation, policy, LIMITS, now_s)
        actions.append(action)
    return memory, actions


@given(memory=MEMORY, observation=LOOKS, now_s=SECONDS, wish=st.sampled_from(Action))
def test_every_memory_and_observation_has_an_answer_and_no_policy_can_do_harm(
    memory: Memory, observation: DockerdObservation, now_s: float, wish: Action
) -> None:
    after, action = step(memory, observation, lambda *_: wish, LIMITS, now_s)
    assert isinstance(after.state, DockerdState)
    if action is Action.START:
        assert observation.process is None
        assert observation.api in (Api.REFUSED, Api.ABSENT)
        assert observation.obstacle is None
        assert after.start_requested_s == now_s
    if action in (Action.TERMINATE, Action.KILL):
        assert observation.process is not None
    if action is Action.TERMINATE:
        idle = observation.activity is not None and not observation.activity.active
        hung = observation.api not in (Api.ANSWERS, Api.DENIED) and idle
        assert hung or observation.containerd is Containerd.OWN_IS_GONE


def test_policies_are_those_that_the_settings_name() -> None:
    assert tuple(POLICIES) == get_args(get_type_hints(DockerdSettings)["policy"])


@given(observation=LOOKS)
def test_auto_leaves_alone_what_somebody_else_owns(observation: DockerdObservation) -> None:
    if observation.owner not in (Owner.GPUD, Owner.NONE):
        assert POLICIES["auto"](observation, Memory(), LIMITS, 1e6) is Action.NOTHING


FAILED = replace(
    NONE,
    exit=Exit(code=1, cause=CAUSE),
    conditions={StartCondition.PORT: "17", StartCondition.CONFIG: "a"},
)
HELD = replace(FAILED, exit=None)


def held() -> Memory:
    """One start, ended with a cause at 1 s."""
    memory, actions = run((0, replace(NONE, conditions={StartCondition.CONFIG: "a"})), (1, FAILED))
    assert actions == [Action.START, Action.NOTHING]
    assert memory.state is DockerdState.MISCONFIGURED
    return memory


def test_a_world_that_changes_all_the_time_is_backed_off() -> None:
    memory, starts = Memory(), 0
    for number in range(600):
        observation = replace(HELD, conditions={StartCondition.CONFIG: str(number)})
        memory, action = step(memory, observation, due, LIMITS, number / 10)
        if action is Action.START:
            starts += 1
            failed = replace(observation, exit=FAILED.exit)
            memory, _ = step(memory, failed, due, LIMITS, number / 10)
    assert starts <= 8


def test_slow_mending_makes_the_next_start_immediate() -> None:
    memory = replace(held(), failures=9)
    memory, _ = step(memory, HELD, due, LIMITS, 100)
    memory, action = step(
        memory, replace(HELD, conditions={StartCondition.CONFIG: "b"}), due, LIMITS, 101
    )
    assert action is Action.START
    again = replace(FAILED, conditions={StartCondition.PORT: "17", StartCondition.CONFIG: "b"})
    memory, _ = step(memory, again, due, LIMITS, 102)
    assert memory.next_try_s == 102


def test_a_dockerd_killed_from_outside_is_started_at_once_each_time_but_not_for_ever() -> None:
    killed = replace(NONE, exit=Exit(signal=9))
    memory, action = step(Memory(), NONE, due, LIMITS, 0.0)
    for number in range(KILLS_FORGIVEN):
        alive = replace(WELL, process=ProcessRef(number + 2, 1))
        if number % 2:  # some before their first answer was seen
            alive = replace(alive, api=Api.ABSENT)
        memory, _ = step(memory, alive, due, LIMITS, number + 0.2)
        memory, action = step(memory, killed, due, LIMITS, number + 0.3)
        assert action is Action.START
    assert memory.restarts == {"killed": KILLS_FORGIVEN}
    now_s = KILLS_FORGIVEN + 0.2
    for number in range(3):
        alive = replace(WELL, process=ProcessRef(number + 900, 1))
        memory, _ = step(memory, alive, due, LIMITS, now_s)
        memory, action = step(memory, killed, due, LIMITS, now_s + 0.1)
        now_s = max(now_s + 0.1, memory.next_try_s)
    assert memory.state is DockerdState.BACKOFF
    memory, _ = step(memory, killed, due, LIMITS, now_s)
    memory, _ = step(memory, WELL, due, LIMITS, now_s + 0.2)
    memory, action = step(memory, killed, due, LIMITS, now_s + 100)
    assert action is Action.START


@pytest.mark.parametrize(
    ("port", "config", "space", "action"),
    [
        ("", "a", "", Action.START),
        ("18", "a", "", Action.START),
        ("17", "b", "", Action.START),
        ("17", "a", "9", Action.NOTHING),
    ],
)
def test_change_in_what_the_cause_watches_and_in_nothing_else_is_worth_a_start(
    port: str, config: str, space: str, action: Action
) -> None:
    conditions = {StartCondition.PORT: port, StartCondition.CONFIG: config}
    look = replace(HELD, conditions={**conditions, StartCondition.SPACE: space})
    assert step(held(), look, due, LIMITS, 2)[1] is action


FOREIGN = replace(WELL, process=TWO, owner=Owner.SYSTEMD)
SECOND = replace(WELL, process=TWO)
NO_CONTAINERD = replace(WELL, containerd=Containerd.OWN_IS_GONE)
NOT_ITS_CONTAINERD = replace(WELL, containerd=Containerd.OTHER_IS_GONE)
KILLED = replace(NONE, exit=Exit(signal=9))
CHANGED = replace(FAILED, conditions={StartCondition.PORT: "17", StartCondition.CONFIG: "b"})
WITH_CONFIG = replace(NONE, conditions={StartCondition.CONFIG: "a"})
LETTERS = {Action.NOTHING: ".", Action.START: "+", Action.TERMINATE: "-", Action.KILL: "!"}
STORIES: dict[str, tuple[list[tuple[float, DockerdObservation]], str, DockerdState]] = {
    "first restart at once, second later": (
        [(0.0, NONE), (0.2, WELL), (5.0, NONE), (5.2, SECOND), (6.0, NONE)],
        "+.+..",
        DockerdState.BACKOFF,
    ),
    "restart at once after a long life": (
        [(0, NONE), (1, WELL), (5, NONE), (6, SECOND), (40, NONE)],
        "+.+.+",
        DockerdState.STARTING,
    ),
    "socket that may not be asked is up": (
        [(0, replace(NONE, api=Api.DENIED))],
        ".",
        DockerdState.RUNNING,
    ),
    "no cause from an older log": (
        [(0, NONE), (1, WELL), (2, FAILED)],
        "+.+",
        DockerdState.STARTING,
    ),
    "file that changed while dockerd failed": (
        [(0, WITH_CONFIG), (1, CHANGED)],
        "++",
        DockerdState.STARTING,
    ),
    "hold that another owner ended": (
        [(0, WITH_CONFIG), (1, FAILED), (2, FOREIGN), (3, HELD)],
        "+..+",
        DockerdState.STARTING,
    ),
    "containerd that stays dead": (
        [(0, WELL), *((s, NO_CONTAINERD) for s in (1, 30.9, 31, 40.9, 41))],
        "...-.!",
        DockerdState.RUNNING,
    ),
    "containerd that comes back": (
        [(0, WELL), (1, NO_CONTAINERD), (29, WELL), (30, NO_CONTAINERD), (59, NO_CONTAINERD)],
        ".....",
        DockerdState.RUNNING,
    ),
    "containerd that dockerd did not start": (
        [(0, WELL), (1, NOT_ITS_CONTAINERD), (999, NOT_ITS_CONTAINERD)],
        "...",
        DockerdState.RUNNING,
    ),
    "kill, each followed by a start": (
        [(s, look) for s in range(0, 400, 100) for look in (WELL, KILLED)],
        ".+.+.+.+",
        DockerdState.STARTING,
    ),
}


@pytest.mark.parametrize(("looks", "actions", "state"), STORIES.values(), ids=STORIES)
def test_actions_and_last_state_of_a_story(
    looks: list[tuple[float, DockerdObservation]], actions: str, state: DockerdState
) -> None:
    memory, taken = run(*looks)
    assert "".join(LETTERS[action] for action in taken) == actions
    assert memory.state is state


def test_restarts_are_counted_by_their_reason_and_a_start_is_timed() -> None:
    starting = replace(WELL, api=Api.ABSENT)
    memory, _ = run((10.0, NONE), (10.0, starting), (10.15, WELL), (11, FOREIGN), (12, NONE))
    assert memory.restarts == {"taken_over": 1}
    assert memory.last_start_s == pytest.approx(0.15)


TICK_S, MINUTE = 0.1, 600  # ticks
UNEXPLAINED = Exit(code=1, log=("failed to start daemon: the moon is in the wrong house",))
EXPLAINED = replace(UNEXPLAINED, cause=CAUSE)


@dataclass
class Machine:
    """A world in which each dockerd of ours ends after ``lives`` looks."""

    exit: Exit = UNEXPLAINED
    lives: int = 0
    answers: bool = False
    obstacle: DockerdCause | None = None

    def minute(self, policy: str, owner: Owner) -> tuple[int, DockerdReport]:
        """Give its starts, and what is reported at the end; ``owner`` while none of ours runs."""
        memory, starts, left, ended = Memory(), 0, 0, None
        for tick in range(MINUTE):
            if left:
                api = Api.ANSWERS if self.answers else Api.ABSENT
                observation = DockerdObservation(ProcessRef(1000 + starts, 1), Owner.GPUD, api)
                left -= 1
                ended = None if left else self.exit
            else:
                conditions = {StartCondition.CONFIG: "same"}
                observation = DockerdObservation(None, owner, Api.REFUSED, self.obstacle, ended)
                observation = replace(observation, conditions=conditions, jitter=1.0)
                ended = None
            memory, action = step(memory, observation, POLICIES[policy], LIMITS, tick * TICK_S)
            if action is Action.START:
                starts += 1
                left, ended = self.lives, self.exit
        facts = report.Facts(log="/var/log/gpud/dockerd.log")
        return starts, report.dockerd(memory, observation, policy=policy, facts=facts)


BACKED_OFF = range(5, 10)
"""Starts in a minute: at 0, at once, and after 1, 2, 4 ... s less a quarter at random."""
CRASHLOOP = (BACKED_OFF, "crashloop", "crashloop", "wrong house", "/var/log/gpud/dockerd.log")
HELD_ONCE = (range(1, 2), "misconfigured", CAUSE.slug, CAUSE.detail, CAUSE.fix)
NO_PROGRAM = (
    range(1),
    "misconfigured",
    "binary_missing",
    "",
    "docker.io; gpud then starts dockerd",
)
FAILING = {
    "unexplained": (Machine(), CRASHLOOP),
    "unexplained, after an answer": (Machine(lives=2, answers=True), CRASHLOOP),
    "with a cause": (Machine(EXPLAINED), HELD_ONCE),
    "with a cause after a while": (Machine(EXPLAINED, lives=3), HELD_ONCE),
    "without its program": (Machine(obstacle=binary_missing("dockerd")), NO_PROGRAM),
}


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("owner", list(Owner))
@pytest.mark.parametrize("how", FAILING)
def test_dockerd_that_cannot_start_is_backed_off_or_held_by_whoever_keeps_it(
    policy: str, owner: Owner, how: str
) -> None:
    machine, (expected, state, reason, words, fix) = FAILING[how]
    starts, last = machine.minute(policy, owner)
    if policy == "manage" or (policy == "auto" and owner in OURS_TO_KEEP):
        assert starts in expected
        assert (last.state, last.reason) == (state, reason)
        assert words in (last.detail or "")
        assert fix in (last.fix or "")
    else:
        assert (starts, last.state) == (0, "absent")


BEGINS = "kept by Docker Desktop; gpud watches it and begins when it is gone"


@pytest.mark.parametrize(
    ("policy", "owner", "detail"),
    [
        ("auto", Owner.DOCKER_DESKTOP, BEGINS),
        ("observe", Owner.OTHER, "kept by somebody else; gpud watches it"),
        ("manage", Owner.SYSTEMD, None),
        ("auto", Owner.GPUD, None),
    ],
)
def test_owner_that_is_not_gpud_is_named_with_what_gpud_does(
    policy: str, owner: Owner, detail: str | None
) -> None:
    observation = replace(WELL, owner=owner)
    memory, _ = step(Memory(), observation, POLICIES[policy], LIMITS, 0.0)
    status = report.dockerd(memory, observation, policy=policy, facts=report.Facts())
    assert status.detail == detail


MENDED_BY_GPUD = {"hung", "stopping"}
FACTS = st.builds(
    report.Facts,
    trouble=st.none() | st.just("cannot start dockerd: Exec format error"),
    unreachable=REF,
    log=st.just("/var/log/gpud/dockerd.log"),
)


@given(
    policy=st.sampled_from(sorted(POLICIES)),
    looks=st.lists(st.tuples(LOOKS, st.floats(0.05, 60), FACTS), max_size=15),
)
def test_nothing_is_shown_as_degraded_or_failed_without_a_cause(
    policy: str, looks: list[tuple[DockerdObservation, float, report.Facts]]
) -> None:
    memory, now_s = Memory(), 0.0
    for observation, passed_s, facts in looks:
        now_s += passed_s
        memory, _ = step(memory, observation, POLICIES[policy], LIMITS, now_s)
        status = report.dockerd(memory, observation, policy=policy, facts=facts)
        shown = folded(START, dockerd_seen(**structs.asdict(status))).health["dockerd"]
        if shown.level > Level.OK:
            assert status.reason
            assert status.detail
        if shown.level is Level.FAILED:
            assert shown.fix or shown.reason in MENDED_BY_GPUD


UNIT = replace(NONE, owner=Owner.SYSTEMD)
YOUNG, NEXT = (replace(WELL, process=ProcessRef(n, 1), api=Api.ABSENT) for n in (2, 3))
THEIRS = replace(FOREIGN, api=Api.ABSENT)


@pytest.mark.parametrize(
    "looks",
    [
        (NONE, YOUNG, NONE),
        (NONE, THEIRS, NONE),
        (NONE, THEIRS, UNIT),
        (UNIT, YOUNG, UNIT),
        (NONE, YOUNG, THEIRS),
        (NONE, FOREIGN),
    ],
)
def test_foreign_dockerd_that_comes_and_goes_makes_no_storm(
    looks: tuple[DockerdObservation, ...],
) -> None:
    memory, starts = Memory(), 0
    for tick in range(MINUTE):
        observation = looks[tick % len(looks)]
        memory, action = step(memory, observation, due, LIMITS, tick * TICK_S)
        starts += action is Action.START
    assert 1 <= starts <= MINUTE * TICK_S + 1


def test_an_owner_without_a_process_is_no_failure_and_its_end_is_worth_a_start() -> None:
    memory, actions = run((0, UNIT), (1, UNIT), (2, NONE), policy=POLICIES["auto"])
    assert (actions[-1], memory.failures, memory.restarts) == (Action.START, 0, {"taken_over": 1})
    failed = replace(UNIT, exit=UNEXPLAINED)
    looks = ((3, failed), (4, UNIT), (5, UNIT), (6, NONE))
    memory, actions = run(*looks, policy=POLICIES["auto"], memory=memory)
    assert (actions[-1], memory.failures) == (Action.START, 1)
    assert memory.restarts == {"taken_over": 1, "start_failed": 1}
