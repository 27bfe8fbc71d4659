"""A silent dockerd in model time: replaced when stopped or idle, left alone while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core.report import Owner, ProcessRef
from gpud.core.sections import DockerdSettings
from gpud.root.dockerd_facts import (
    Action,
    Activity,
    Api,
    Containerd,
    DockerdObservation,
    DockerdState,
    Limits,
    Memory,
)
from gpud.root.dockerd_step import due, step
from gpud.root.supervisor import limits

LOOK_S = 2.05
"""A ping's time-out and the pause after it."""
NOTICED_S = 3.0
"""A fault just after an answer: the next ping is a second later and waits for two."""
MINUTES_10_S = 600.0
WELL = DockerdObservation(ProcessRef(10, 100), Owner.GPUD, Api.ANSWERS)
SILENT = replace(WELL, api=Api.SILENT)
ENDING = replace(WELL, api=Api.ABSENT)


def used(cpu_s: float, *, active: bool = False) -> Activity:
    return Activity(active, cpu_s)


@dataclass
class Model:
    """A dockerd that has answered, and the clock."""

    limits: Limits
    now_s: float = 1000.0
    memory: Memory = field(default_factory=Memory)
    asleep_s: float = 0.0  # by which the wall clock is ahead

    def look(self, observation: DockerdObservation) -> Action:
        observation = replace(observation, wall_s=1e9 + self.now_s + self.asleep_s)
        self.memory, action = step(self.memory, observation, due, self.limits, self.now_s)
        return action

    def watch(
        self,
        observation: DockerdObservation,
        does: Callable[[float], Activity],
        for_s: float,
        every_s: float = LOOK_S,
    ) -> list[tuple[float, Action]]:
        """Look for ``for_s``; gives each action with the seconds since the beginning."""
        begun_s = self.now_s
        actions: list[tuple[float, Action]] = []
        while self.now_s - begun_s <= for_s:
            action = self.look(replace(observation, activity=does(self.now_s)))
            if action is not Action.NOTHING:
                actions.append((self.now_s - begun_s, action))
            self.now_s += every_s
        return actions


def answered(limits: Limits | None = None) -> Model:
    model = Model(limits or Limits())
    assert model.look(WELL) is Action.NOTHING
    model.now_s += NOTICED_S
    return model


def idle(now_s: float) -> Activity:
    """What a dockerd without work uses: below a hundredth of a core."""
    return used(0.008 * now_s)


WORK: dict[str, Callable[[float], Activity]] = {
    "a tenth of a core": lambda now_s: used(0.1 * now_s),
    "all of a CPU quota of 5 %": lambda now_s: used(0.05 * now_s),
    "starved of CPU": lambda _: used(1.0, active=True),
    "in the disk's queue": lambda _: used(1.0, active=True),
    "children that come and go": lambda now_s: used(1.0 + round(now_s / LOOK_S) % 2),
    "a moment of work in every other look": lambda now_s: used(0.1 * (round(now_s / LOOK_S) // 2)),
}


def test_idle_and_silent_dockerd_is_replaced_within_15_s() -> None:
    model = answered()
    actions = model.watch(SILENT, idle, 60)
    assert [action for _, action in actions] == [Action.TERMINATE, Action.KILL]
    (terminated_s, _), (killed_s, _) = actions
    assert terminated_s >= 4.0
    assert NOTICED_S + killed_s < 13.0  # two seconds are left for its start


@pytest.mark.parametrize("work", WORK)
def test_silent_dockerd_at_work_is_not_touched_in_ten_minutes(work: str) -> None:
    for model in (answered(), answered(CHOSEN), Model(Limits())):
        assert model.watch(SILENT, WORK[work], MINUTES_10_S) == []
        assert model.memory.state is DockerdState.UNRESPONSIVE
        assert model.watch(ENDING, WORK[work], MINUTES_10_S, every_s=1.0) == []


def test_work_that_ends_makes_the_idle_seconds_begin() -> None:
    model = answered()
    assert model.watch(SILENT, lambda _: used(1.0, active=True), MINUTES_10_S) == []
    ((after_s, action), *_) = model.watch(SILENT, idle, 30)
    assert action is Action.TERMINATE
    assert after_s >= 4.0


def test_single_answer_restarts_the_idle_seconds() -> None:
    model = answered()
    for _ in range(100):
        assert model.watch(SILENT, idle, 3.9) == []
        assert model.look(WELL) is Action.NOTHING
        model.now_s += NOTICED_S


@pytest.mark.parametrize("clock_runs_on", [True, False])
def test_pause_of_the_machine_restarts_the_idle_seconds(*, clock_runs_on: bool) -> None:
    model = answered()
    for _ in range(100):
        assert model.watch(SILENT, idle, 3.9) == []
        if clock_runs_on:
            model.now_s += 3600
        else:
            model.asleep_s += 3600
    ((after_s, _), *_) = model.watch(SILENT, idle, 30)
    assert after_s >= 4.0


def test_pause_while_dockerd_ends_does_not_use_up_its_time() -> None:
    model = answered()
    assert model.watch(SILENT, idle, 6.2)
    model.asleep_s += 3600
    ((after_s, action), *_) = model.watch(SILENT, idle, 30)
    assert action is Action.KILL
    assert after_s >= 4.0


STOPPED = Activity(active=False, cpu_s=7.0, stopped=True)
GONE = replace(WELL, containerd=Containerd.OWN_IS_GONE)
CHOSEN = limits(DockerdSettings(hung_after_s=20.0, kill_after_s=12.0, start_timeout_s=45.0))
USUAL = limits(DockerdSettings())
TERMINATED: dict[str, tuple[Callable[[], Model], DockerdObservation, float]] = {
    "idle": (answered, SILENT, 4.0),
    "idle, as chosen": (lambda: answered(CHOSEN), SILENT, 20.0),
    "idle in its start": (lambda: Model(USUAL), SILENT, 60.0),
    "idle in its start, as chosen": (lambda: Model(CHOSEN), SILENT, 45.0),
    "without its containerd": (lambda: answered(USUAL), GONE, 30.0),
    "without its containerd, as chosen": (lambda: answered(CHOSEN), GONE, 20.0),
}


@pytest.mark.parametrize("how", TERMINATED)
def test_dockerd_that_does_nothing_has_a_time_of_its_own(how: str) -> None:
    begin, observation, limit_s = TERMINATED[how]
    ((ended_s, action), *_) = begin().watch(observation, idle, 70)
    assert action is Action.TERMINATE
    assert limit_s <= ended_s <= limit_s + LOOK_S


def test_stopped_dockerd_that_never_answered_is_not_waited_for() -> None:
    ((ended_s, action), *_) = Model(USUAL).watch(SILENT, lambda _: STOPPED, 70)
    assert action is Action.TERMINATE
    assert ended_s < 4.0 + LOOK_S


@pytest.mark.parametrize(
    ("chosen", "does", "limit_s"),
    [
        (USUAL, WORK["a tenth of a core"], 10.0),
        (USUAL, idle, 4.0),
        (CHOSEN, WORK["a tenth of a core"], 12.0),
        (CHOSEN, idle, 12.0),
    ],
    ids=["at work", "idle", "at work, as chosen", "idle, as chosen"],
)
def test_end_of_dockerd_takes_ten_seconds_at_work_and_four_when_idle_or_as_chosen(
    chosen: Limits, does: Callable[[float], Activity], limit_s: float
) -> None:
    model = answered(chosen)
    while model.memory.terminated_s is None:
        assert [a for _, a in model.watch(SILENT, idle, 0.0)] in ([], [Action.TERMINATE])
    ((after_s, action),) = model.watch(ENDING, does, 30, every_s=1.0)
    assert action is Action.KILL
    assert limit_s <= LOOK_S + after_s < limit_s + 1.1


@given(
    looks=st.lists(
        st.tuples(st.floats(0.05, 30), st.booleans(), st.floats(0.09, 4), st.sampled_from(Api)),
        max_size=80,
    ),
    wish=st.sampled_from(Action),
    chosen=st.sampled_from([Limits(), Limits(hung_after_s=0.5, kill_after_s=0.5)]),
)
def test_no_policy_ends_a_dockerd_that_worked_between_any_two_looks(
    looks: list[tuple[float, bool, float, Api]], wish: Action, chosen: Limits
) -> None:
    memory, now_s, cpu_s = Memory(), 0.0, 0.0
    for passed_s, active, share, api in looks:
        now_s += passed_s
        cpu_s += 0.0 if active else share * passed_s + 0.05
        observation = replace(WELL, api=api, activity=used(cpu_s, active=active))
        for policy in (due, lambda *_: wish):
            after, action = step(memory, observation, policy, chosen, now_s)
            assert action is Action.NOTHING
        memory = after
