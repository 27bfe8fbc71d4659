from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core.container_plan import (
    ANNOUNCE_S,
    LOOK_EVERY_S,
    RETRY_S,
    SETTLE_S,
    Plan,
    Task,
    Word,
    begun,
    done,
    due,
)
from gpud.core.report import (
    ContainerFigure,
    ContainerRun,
    ProbeStage,
    ProcessRef,
    ToolkitReport,
    ToolkitState,
)
from gpud.core.sample import Failure, Reason, Skip
from gpud.core.sections import Containers

FIRST = ProcessRef(1, 1)
SECOND = ProcessRef(2, 2)
FIGURE = ContainerFigure(4e12, 2e11, 20480, 50, 0, "n", "8.6")
HUNG = Failure(Reason.HUNG, "why")
STEP_S = 0.5


@dataclass
class World:
    """A dockerd and a clock; every task ends at the next step with what the world has."""

    settings: Containers = field(default_factory=Containers)
    dockerd: ProcessRef = FIRST
    answers: bool = True
    image: bool = True
    failure: Failure | None = None
    pullable: bool = False
    toolkit: ToolkitState = ToolkitState.RUNTIME
    now_s: float = 1000.0
    tasks: list[tuple[float, Task]] = field(default_factory=list)
    stages: list[ProbeStage] = field(default_factory=list)
    plan: Plan | None = None

    def run(self, for_s: float) -> Plan:
        plan = self.plan or begun(self.settings, self.now_s)
        end_s = self.now_s + for_s
        while self.now_s < end_s:
            self.now_s += STEP_S
            plan, task = due(plan, self.dockerd, self.now_s, answers=self.answers)
            if task is not None:
                self.tasks.append((self.now_s, task))
                assert due(plan, self.dockerd, self.now_s, answers=self.answers) == (plan, None)
            if not self.stages or self.stages[-1] is not plan.report.stage:
                self.stages.append(plan.report.stage)
            if task is not None:
                plan = done(plan, self.word(task), wall_s=1e9 + self.now_s, now_s=self.now_s)
        self.plan = plan
        return plan

    def word(self, task: Task) -> Word:
        if task is Task.PULL:
            self.image = self.pullable
            lost = None if self.image else Failure(Reason.PULL_FAILED, "no route")
            return Word(image_present=self.image, failure=lost)
        if task is Task.LOOK:
            return Word(ToolkitReport(self.toolkit), image_present=self.image)
        figure = FIGURE if self.failure is None else None
        run = ContainerRun(1e9 + self.now_s, self.now_s, 1.0, figure, self.failure)
        return Word(image_present=self.image, run=run)

    def times(self, task: Task) -> list[float]:
        return [at for at, what in self.tasks if what is task]


SOON = Containers(first_after_s=60)


def test_a_run_is_announced_before_it_is_made() -> None:
    world = World(SOON)
    plan = world.run(120)
    assert [task for _, task in world.tasks] == [Task.LOOK, Task.RUN]
    assert world.stages == [
        ProbeStage.WAITING,
        ProbeStage.ANNOUNCED,
        ProbeStage.RUNNING,
        ProbeStage.WAITING,
    ]
    assert world.times(Task.RUN)[0] >= 1000 + 60 + ANNOUNCE_S
    assert plan.report.runs == 1
    assert plan.report.recent_flops_per_second == (4e12,)


def test_without_the_image_nothing_is_started_and_the_skip_is_counted_once_an_interval() -> None:
    world = World(SOON, image=False)
    plan = world.run(2 * SOON.interval_s)
    assert {task for _, task in world.tasks} == {Task.LOOK}
    assert plan.report.skips == {Skip.IMAGE_ABSENT: 2}
    assert plan.report.run is None


def test_an_image_that_comes_is_measured_at_the_next_look() -> None:
    world = World(SOON, image=False)
    world.run(100)
    world.image = True
    world.run(LOOK_EVERY_S + ANNOUNCE_S)
    assert len(world.times(Task.RUN)) == 1


def test_it_is_fetched_only_where_the_settings_say_so() -> None:
    world = World(Containers(first_after_s=60, pull=True), image=False, pullable=True)
    world.run(120)
    assert [task for _, task in world.tasks] == [Task.LOOK, Task.PULL, Task.RUN]


def test_a_fetch_that_fails_is_a_failed_run_and_tried_again_later() -> None:
    world = World(Containers(first_after_s=60, pull=True), image=False)
    plan = world.run(600)
    assert plan.report.failures == {Reason.PULL_FAILED: 1}
    world.run(RETRY_S)
    assert len(world.times(Task.PULL)) == 2


def test_failures_are_retried_at_growing_distances_and_never_beyond_the_interval() -> None:
    world = World(SOON, failure=HUNG)
    world.run(3 * SOON.interval_s)
    times = world.times(Task.RUN)
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[0] == pytest.approx(RETRY_S + ANNOUNCE_S, abs=2 * STEP_S)
    assert pauses[-1] == pytest.approx(SOON.interval_s + ANNOUNCE_S, abs=2 * STEP_S)


def test_a_success_ends_the_series_of_failures_and_a_failure_that_of_figures() -> None:
    world = World(SOON)
    assert world.run(120).report.last_success_s is not None
    world.failure = HUNG
    plan = world.run(SOON.interval_s)
    assert plan.report.recent_flops_per_second == ()
    assert plan.report.run is not None
    assert plan.report.run.failure == HUNG
    assert plan.report.gpu_index == 0
    world.failure = None
    assert world.run(3 * RETRY_S).failed == 0


def test_a_dockerd_that_is_down_is_a_counted_skip_and_no_task() -> None:
    world = World(SOON, answers=False)
    plan = world.run(SOON.interval_s)
    assert world.tasks == []
    assert plan.report.skips == {Skip.DOCKERD_DOWN: 1}


def test_an_announcement_is_taken_back_when_dockerd_goes() -> None:
    world = World(SOON)
    world.run(62)
    assert world.stages[-1] is ProbeStage.ANNOUNCED
    world.answers = False
    assert world.run(5).report.stage is ProbeStage.WAITING
    assert world.times(Task.RUN) == []


def test_another_dockerd_is_left_to_its_start_and_then_looked_at_anew() -> None:
    world = World(Containers(probe=False))
    world.run(60)
    world.dockerd = SECOND
    world.run(SETTLE_S - STEP_S)
    assert world.plan is not None
    assert world.plan.report.image_present is None
    assert len(world.tasks) == 1
    world.run(2 * STEP_S)
    assert len(world.tasks) == 2


@pytest.mark.parametrize(
    ("reason", "again"), [(Reason.TOOLKIT_MISSING, 2), (Reason.HUNG, 1), (Reason.DOCKERD_LOST, 1)]
)
def test_a_restarted_dockerd_is_tried_at_once_where_a_restart_can_mend_it(
    reason: Reason, again: int
) -> None:
    world = World(SOON, failure=Failure(reason, "why"))
    world.run(120)
    world.dockerd = SECOND
    world.run(30)
    assert len(world.times(Task.RUN)) == again


def test_a_toolkit_that_changed_since_the_failure_is_tried_at_once() -> None:
    world = World(SOON, failure=HUNG, toolkit=ToolkitState.NONE)
    world.run(120)
    world.toolkit = ToolkitState.RUNTIME
    assert world.plan is not None
    world.plan = replace(world.plan, next_look_s=world.now_s, next_run_s=world.now_s + 1e6)
    world.run(30)
    assert len(world.times(Task.RUN)) == 2


def test_switched_off_it_looks_and_never_runs() -> None:
    world = World(Containers(probe=False, first_after_s=0))
    plan = world.run(2000)
    assert {task for _, task in world.tasks} == {Task.LOOK}
    assert plan.report.stage is ProbeStage.OFF
    assert plan.report.skips == {}


def test_a_look_that_fails_is_said_and_takes_nothing_back_that_was_known() -> None:
    lost = Word(failure=Failure(Reason.DOCKERD_LOST, "connection refused"))
    fresh = begun(SOON, 0.0)
    said = done(replace(fresh, busy=Task.LOOK), lost, wall_s=1e9, now_s=1.0).report.toolkit
    assert said is not None
    assert (said.state, said.reason, said.detail) == (
        ToolkitState.UNKNOWN,
        "look_failed",
        "connection refused",
    )
    known = ToolkitReport(ToolkitState.RUNTIME)
    before = replace(fresh, busy=Task.LOOK, report=replace(fresh.report, toolkit=known))
    assert done(before, lost, wall_s=1e9, now_s=1.0).report.toolkit == known


def test_a_life_that_ends_without_a_word_about_the_run_is_a_failed_run() -> None:
    world = World(SOON)
    world.run(64)
    assert world.plan is not None
    plan = world.plan
    while plan.busy is None:
        world.now_s += STEP_S
        plan, _ = due(plan, FIRST, world.now_s, answers=True)
    lost = Word(failure=Failure(Reason.KILLED, "why"))
    after = done(plan, lost, wall_s=1e9, now_s=world.now_s)
    assert after.report.failures == {Reason.KILLED: 1}
    assert after.busy is None


@given(
    st.lists(
        st.tuples(
            st.booleans(), st.booleans(), st.sampled_from([None, HUNG]), st.floats(1.0, 900.0)
        ),
        max_size=12,
    ),
    st.tuples(st.booleans(), st.booleans()),
)
def test_whatever_happens_it_is_one_task_at_a_time_and_never_a_tight_loop(
    story: list[tuple[bool, bool, Failure | None, float]], pulling: tuple[bool, bool]
) -> None:
    pull, pullable = pulling
    world = World(Containers(first_after_s=0, interval_s=60, pull=pull), pullable=pullable)
    for answers, image, failure, for_s in story:
        world.answers, world.image, world.failure = answers, image, failure
        world.run(for_s)
    runs, looks = world.times(Task.RUN), world.times(Task.LOOK)
    assert all(b - a >= 60 for a, b in itertools.pairwise(runs))
    assert all(b - a >= LOOK_EVERY_S for a, b in itertools.pairwise(looks))
    pulls = world.times(Task.PULL)
    assert all(b - a >= 60 for a, b in itertools.pairwise(pulls))
