from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core.clock import Instant
from gpud.core.report import Owner, ProcessRef
from gpud.root.dockerd_facts import (
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
    StartCondition,
    complaint,
)
from gpud.root.dockerd_rules import binary_missing
from gpud.root.dockerd_step import KILLS_FORGIVEN, due, step

LIMITS = Limits(start_timeout_s=60, hung_after_s=30, kill_after_s=10)
ONE, TWO = ProcessRef(10, 100), ProcessRef(11, 200)
NONE = DockerdObservation(None, Owner.NONE, Api.REFUSED)
WELL = DockerdObservation(ONE, Owner.GPUD, Api.ANSWERS)

ACTIVITY = st.none() | st.builds(Activity, active=st.booleans(), cpu_s=st.floats(0, 1e6))
SEEN = st.builds(
    DockerdObservation,
    process=st.none() | st.builds(ProcessRef, st.integers(2, 4), st.integers(1, 2)),
    owner=st.sampled_from(Owner),
    api=st.sampled_from(Api),
    obstacle=st.none() | st.just(binary_missing("dockerd")),
    conditions=st.dictionaries(st.sampled_from(StartCondition), st.sampled_from(["", "a", "b"])),
    containerd=st.none() | st.sampled_from(Containerd),
    activity=ACTIVITY,
    wall_s=st.none() | st.floats(0, 2e9),
    exit=st.none() | st.builds(Exit, code=st.none() | st.integers(0, 255)),
    jitter=st.floats(0, 1),
)
REF = st.none() | st.builds(ProcessRef, st.integers(2, 4), st.integers(1, 2))
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


def run(*looks: tuple[float, DockerdObservation]) -> tuple[Memory, list[Action]]:
    memory, actions = Memory(), []
    for now_s, seen in looks:
        memory, action = step(memory, seen, due, LIMITS, now_s)
        actions.append(action)
    return memory, actions


@given(memory=MEMORY, seen=SEEN, now_s=SECONDS, wish=st.sampled_from(Action))
def test_every_memory_and_observation_has_an_answer_and_no_policy_can_do_harm(
    memory: Memory, seen: DockerdObservation, now_s: float, wish: Action
) -> None:
    after, action = step(memory, seen, lambda *_: wish, LIMITS, now_s)
    assert isinstance(after.state, DockerdState)
    if action is Action.START:
        assert seen.process is None
        assert seen.api in (Api.REFUSED, Api.ABSENT)
        assert seen.obstacle is None
        assert after.start_requested_s == now_s
    if action in (Action.TERMINATE, Action.KILL):
        assert seen.process is not None
    if action is Action.TERMINATE:
        idle = seen.activity is not None and not seen.activity.active
        hung = seen.api not in (Api.ANSWERS, Api.DENIED) and idle
        assert hung or seen.containerd is Containerd.OWN_IS_GONE


@given(lived=st.lists(st.floats(0, 5), min_size=1, max_size=200), jitter=st.floats(0, 1))
def test_a_dockerd_that_keeps_dying_never_makes_a_tight_loop(
    lived: list[float], jitter: float
) -> None:
    memory, now_s, starts = Memory(), 0.0, 0
    nobody = replace(NONE, jitter=jitter)
    for number, life_s in enumerate(lived):
        for _ in range(3):
            memory, action = step(memory, nobody, due, LIMITS, now_s)
            if action is Action.START:
                starts += 1
                alive = replace(WELL, process=ProcessRef(number + 2, 1))
                memory, _ = step(memory, alive, due, LIMITS, now_s)
                now_s += life_s
            else:
                now_s += 0.5
    assert starts <= 4 + now_s / 0.75


def test_the_first_restart_is_immediate_and_the_second_waits() -> None:
    memory, actions = run(
        (0.0, NONE), (0.2, WELL), (5.0, NONE), (5.2, replace(WELL, process=TWO)), (6.0, NONE)
    )
    assert actions == [Action.START, Action.NOTHING, Action.START, Action.NOTHING, Action.NOTHING]
    assert memory.state is DockerdState.BACKOFF
    assert memory.restarts == {"exited": 1}
    _, action = step(memory, NONE, due, LIMITS, memory.next_try_s)
    assert action is Action.START


def test_a_long_life_makes_the_next_restart_immediate_again() -> None:
    _, actions = run((0, NONE), (1, WELL), (5, NONE), (6, replace(WELL, process=TWO)), (40, NONE))
    assert actions[-1] is Action.START


def test_a_dockerd_found_running_is_kept_and_nothing_is_started() -> None:
    memory, actions = run((0, WELL), (1, WELL))
    assert actions == [Action.NOTHING, Action.NOTHING]
    assert memory.state is DockerdState.RUNNING
    assert memory.process == ONE


def test_a_socket_we_may_not_ask_means_that_dockerd_is_up() -> None:
    memory, actions = run((0, replace(NONE, api=Api.DENIED)))
    assert actions == [Action.NOTHING]
    assert memory.state is DockerdState.RUNNING


def test_with_an_obstacle_nothing_is_started_until_it_is_gone() -> None:
    blocked = replace(NONE, obstacle=binary_missing("dockerd"))
    memory, actions = run((0, blocked), (99, blocked))
    assert set(actions) == {Action.NOTHING}
    assert memory.state is DockerdState.MISCONFIGURED
    _, action = step(memory, NONE, due, LIMITS, 100)
    assert action is Action.START


def test_five_failures_in_a_row_are_called_a_crash_loop() -> None:
    memory, now_s = Memory(), 0.0
    while memory.failures < 5:
        memory, _ = step(memory, NONE, due, LIMITS, now_s)
        now_s = max(now_s, memory.next_try_s)
    assert memory.state is DockerdState.CRASHLOOP
    assert set(memory.restarts) == {"start_failed"}


def test_how_long_a_start_took_is_remembered() -> None:
    starting = replace(WELL, api=Api.ABSENT)
    memory, _ = run((10.0, NONE), (10.0, starting), (10.15, WELL), (20.0, WELL))
    assert memory.last_start_s is not None
    assert abs(memory.last_start_s - 0.15) < 1e-9


def test_the_complaint_is_the_last_error_not_the_last_line() -> None:
    log = ("level=info msg=a", "failed to start daemon: no driver", "level=info msg=bye")
    assert complaint(log) == "failed to start daemon: no driver"
    assert complaint(("bye",)) == "bye"
    assert complaint(()) is None


CAUSE = DockerdCause(
    "port_taken", "taken", "end it", frozenset({StartCondition.PORT, StartCondition.CONFIG}), "x:1"
)
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


def test_what_another_start_cannot_mend_is_not_tried_again() -> None:
    memory = held()
    for now_s in (2, 60, 3600, 1e6):
        memory, action = step(memory, HELD, due, LIMITS, now_s)
        assert action is Action.NOTHING
        assert memory.state is DockerdState.MISCONFIGURED


@pytest.mark.parametrize(
    "mended",
    [
        {StartCondition.PORT: "", StartCondition.CONFIG: "a"},
        {StartCondition.PORT: "18", StartCondition.CONFIG: "a"},
        {StartCondition.PORT: "17", StartCondition.CONFIG: "b"},
    ],
)
def test_any_change_in_what_the_cause_watches_is_worth_a_start(
    mended: dict[StartCondition, str],
) -> None:
    _, action = step(held(), replace(HELD, conditions=mended), due, LIMITS, 2)
    assert action is Action.START


def test_a_change_of_something_else_is_not() -> None:
    other = replace(HELD, conditions={**HELD.conditions, StartCondition.SPACE: "9"})
    _, action = step(held(), other, due, LIMITS, 2)
    assert action is Action.NOTHING


def test_a_file_that_changed_while_dockerd_was_failing_is_a_change() -> None:
    memory, _ = run((0, replace(NONE, conditions={StartCondition.CONFIG: "a"})))
    mended = replace(FAILED, conditions={StartCondition.PORT: "17", StartCondition.CONFIG: "b"})
    _, action = step(memory, mended, due, LIMITS, 1)
    assert action is Action.START


def test_a_world_that_changes_all_the_time_is_backed_off() -> None:
    memory, starts = Memory(), 0
    for number in range(600):
        seen = replace(HELD, conditions={StartCondition.CONFIG: str(number)})
        memory, action = step(memory, seen, due, LIMITS, number / 10)
        if action is Action.START:
            starts += 1
            failed = replace(seen, exit=FAILED.exit)
            memory, _ = step(memory, failed, due, LIMITS, number / 10)
    assert starts <= 8


def test_somebody_who_mends_slowly_waits_for_nothing() -> None:
    memory = replace(held(), failures=9)
    memory, _ = step(memory, HELD, due, LIMITS, 100)
    memory, action = step(
        memory, replace(HELD, conditions={StartCondition.CONFIG: "b"}), due, LIMITS, 101
    )
    assert action is Action.START
    again = replace(FAILED, conditions={StartCondition.PORT: "17", StartCondition.CONFIG: "b"})
    memory, _ = step(memory, again, due, LIMITS, 102)
    assert memory.next_try_s == 102


def test_a_dockerd_that_lived_and_died_has_no_cause_from_an_older_log() -> None:
    memory, actions = run((0, NONE), (1, WELL), (2, FAILED))
    assert actions == [Action.START, Action.NOTHING, Action.START]
    assert memory.hold is None


FOREIGN = replace(WELL, process=TWO, owner=Owner.SYSTEMD)


def test_being_taken_over_is_no_failure_and_their_end_is_our_beginning() -> None:
    memory, actions = run((0, NONE), (1, WELL), (2, FOREIGN), (3, FOREIGN))
    assert actions == [Action.START, Action.NOTHING, Action.NOTHING, Action.NOTHING]
    assert (memory.failures, memory.restarts, memory.state) == (0, {}, DockerdState.RUNNING)
    memory, action = step(memory, NONE, due, LIMITS, 4)
    assert action is Action.START
    assert memory.restarts == {"taken_over": 1}


def test_a_dead_containerd_gets_dockerds_own_patience_and_then_a_new_dockerd() -> None:
    gone = replace(WELL, containerd=Containerd.OWN_IS_GONE)
    memory, actions = run((0, WELL), (1, gone), (30.9, gone), (31, gone), (40.9, gone), (41, gone))
    assert actions[2:] == [Action.NOTHING, Action.TERMINATE, Action.NOTHING, Action.KILL]
    memory, _ = step(memory, NONE, due, LIMITS, 42)
    assert memory.restarts == {"containerd_gone": 1}


def test_a_containerd_that_comes_back_or_is_not_dockerds_own_ends_nothing() -> None:
    gone = replace(WELL, containerd=Containerd.OWN_IS_GONE)
    _, actions = run((0, WELL), (1, gone), (29, WELL), (30, gone), (59, gone))
    assert set(actions) == {Action.NOTHING}
    other = replace(WELL, containerd=Containerd.OTHER_IS_GONE)
    _, actions = run((0, WELL), (1, other), (999, other))
    assert set(actions) == {Action.NOTHING}


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


def test_a_hold_is_forgotten_once_somebody_else_has_taken_over() -> None:
    theirs = DockerdObservation(TWO, Owner.OTHER, Api.ANSWERS)
    memory, _ = step(held(), theirs, due, LIMITS, 2)
    _, action = step(memory, HELD, due, LIMITS, 3)
    assert action is Action.START


def test_a_dockerd_whose_socket_file_is_gone_is_never_ended() -> None:
    gone = replace(WELL, api=Api.ABSENT)
    memory, actions = run((0, WELL), (1, gone), (1000, gone), (1e6, gone))
    assert actions == [Action.NOTHING] * 4
    assert memory.state is DockerdState.UNRESPONSIVE


def test_kills_are_forgiven_anew_after_a_life_long_enough() -> None:
    shot = replace(NONE, exit=Exit(signal=9))
    memory, _ = run((0, WELL), (100, shot))
    for number in range(3):
        memory, _ = step(memory, WELL, due, LIMITS, 200 + 100 * number)
        memory, _ = step(memory, shot, due, LIMITS, 280 + 100 * number)
        assert memory.kills == 1
