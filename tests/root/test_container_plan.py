from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core.report import (
    ContainerFigure,
    ContainerRun,
    ContainersReport,
    ProbeStage,
    ProcessRef,
    ToolkitReport,
    ToolkitState,
)
from gpud.core.sample import Failure, Reason, Skip
from gpud.core.sections import ContainerSettings
from gpud.root.container_plan import (
    ANNOUNCE_S,
    LOOK_EVERY_S,
    RETRY_S,
    SETTLE_S,
    Plan,
    Task,
    TaskResult,
)

FIRST = ProcessRef(1, 1)
SECOND = ProcessRef(2, 2)
FIGURE = ContainerFigure(4e12, 2e11, 20480, 50, 0, "n", "8.6")
HUNG = Failure(Reason.HUNG, "why")
STEP_S = 0.5


@dataclass
class World:
    """A dockerd and a clock; every task ends at the next step with what the world has."""

    settings: ContainerSettings = field(default_factory=ContainerSettings)
    dockerd: ProcessRef = FIRST
    answers: bool = True
    image: bool = True
    failure: Failure | None = None  # of a run
    lost: Failure | None = None  # of every task
    pullable: bool = False
    toolkit: ToolkitState = ToolkitState.RUNTIME
    now_s: float = 1000.0
    tasks: list[tuple[float, Task]] = field(default_factory=list)
    stages: list[ProbeStage] = field(default_factory=list)
    plan: Plan = field(init=False)

    def __post_init__(self) -> None:
        self.plan = Plan(self.settings, self.now_s)

    def run(self, for_s: float) -> ContainersReport:
        end_s = self.now_s + for_s
        while self.now_s < end_s:
            self.now_s += STEP_S
            task = self.plan.due(self.dockerd, self.now_s, answers=self.answers)
            stage = self.plan.report.stage
            if not self.stages or self.stages[-1] is not stage:
                self.stages.append(stage)
            if task is not None:
                self.tasks.append((self.now_s, task))
                assert self.plan.due(self.dockerd, self.now_s, answers=self.answers) is None
                result = self.result(task)
                self.plan.finish(result, wall_s=1e9 + self.now_s, now_s=self.now_s)
        return self.plan.report

    def result(self, task: Task) -> TaskResult:
        if self.lost is not None:
            return TaskResult(failure=self.lost)
        if task is Task.PULL:
            self.image = self.pullable
            lost = None if self.image else Failure(Reason.PULL_FAILED, "no route")
            return TaskResult(image_present=self.image, failure=lost)
        if task is Task.LOOK:
            return TaskResult(ToolkitReport(self.toolkit), image_present=self.image)
        figure = FIGURE if self.failure is None else None
        run = ContainerRun(1e9 + self.now_s, self.now_s, 1.0, figure, self.failure)
        return TaskResult(image_present=self.image, run=run)

    def times(self, task: Task) -> list[float]:
        return [at for at, what in self.tasks if what is task]


SOON = ContainerSettings(first_after_s=60)


def test_a_run_is_announced_before_it_is_made() -> None:
    world = World(SOON)
    report = world.run(120)
    assert [task for _, task in world.tasks] == [Task.LOOK, Task.RUN]
    assert world.stages == [
        ProbeStage.WAITING,
        ProbeStage.ANNOUNCED,
        ProbeStage.RUNNING,
        ProbeStage.WAITING,
    ]
    assert world.times(Task.RUN)[0] >= 1000 + 60 + ANNOUNCE_S
    assert report.runs == 1
    assert report.recent_flops_per_second == (4e12,)


def test_without_the_image_nothing_is_started_and_the_skip_is_counted_once_an_interval() -> None:
    world = World(SOON, image=False)
    report = world.run(2 * SOON.interval_s)
    assert {task for _, task in world.tasks} == {Task.LOOK}
    assert report.skips == {Skip.IMAGE_ABSENT: 2}
    assert report.run is None


def test_an_image_that_comes_is_measured_at_the_next_look() -> None:
    world = World(SOON, image=False)
    world.run(100)
    world.image = True
    world.run(LOOK_EVERY_S + ANNOUNCE_S)
    assert len(world.times(Task.RUN)) == 1


def test_it_is_fetched_only_where_the_settings_say_so() -> None:
    world = World(ContainerSettings(first_after_s=60, pull=True), image=False, pullable=True)
    world.run(120)
    assert [task for _, task in world.tasks] == [Task.LOOK, Task.PULL, Task.RUN]


def test_a_fetch_that_fails_is_a_failed_run_and_tried_again_later() -> None:
    world = World(ContainerSettings(first_after_s=60, pull=True), image=False)
    report = world.run(600)
    assert report.failures == {Reason.PULL_FAILED: 1}
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
    assert world.run(120).last_success_s is not None
    world.failure = HUNG
    report = world.run(SOON.interval_s)
    assert report.recent_flops_per_second == ()
    assert report.run is not None
    assert report.run.failure == HUNG
    assert report.gpu_index == 0
    world.failure = None
    assert world.run(3 * RETRY_S).recent_flops_per_second == (4e12,)
    world.failure = HUNG
    n = len(world.times(Task.RUN))
    world.run(SOON.interval_s + 2 * RETRY_S)
    before, after = world.times(Task.RUN)[n : n + 2]
    assert after - before == pytest.approx(RETRY_S + ANNOUNCE_S, abs=2 * STEP_S)


def test_a_dockerd_that_is_down_is_a_counted_skip_and_no_task() -> None:
    world = World(SOON, answers=False)
    report = world.run(SOON.interval_s)
    assert world.tasks == []
    assert report.skips == {Skip.DOCKERD_DOWN: 1}


def test_an_announcement_is_taken_back_when_dockerd_goes() -> None:
    world = World(SOON)
    world.run(62)
    assert world.stages[-1] is ProbeStage.ANNOUNCED
    world.answers = False
    assert world.run(5).stage is ProbeStage.WAITING
    assert world.times(Task.RUN) == []


def test_another_dockerd_is_left_to_its_start_and_then_looked_at_anew() -> None:
    world = World(ContainerSettings(probe=False))
    world.run(60)
    world.dockerd = SECOND
    world.run(SETTLE_S - STEP_S)
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
    world.run(LOOK_EVERY_S - 60)
    assert len(world.times(Task.RUN)) == 1
    world.toolkit = ToolkitState.RUNTIME
    world.run(120)
    assert len(world.times(Task.RUN)) == 2


def test_switched_off_it_looks_and_never_runs() -> None:
    world = World(ContainerSettings(probe=False, first_after_s=0))
    report = world.run(2000)
    assert {task for _, task in world.tasks} == {Task.LOOK}
    assert report.stage is ProbeStage.OFF
    assert report.skips == {}


def test_a_task_without_a_result_takes_nothing_back_and_a_run_counts_as_failed() -> None:
    world = World(SOON, lost=Failure(Reason.DOCKERD_LOST, "refused"))
    unknown = ToolkitReport(ToolkitState.UNKNOWN, "look_failed", "refused")
    assert world.run(30).toolkit == unknown
    world = World(SOON)
    world.run(30)
    world.lost = Failure(Reason.KILLED, "why")
    report = world.run(60)
    assert report.toolkit == ToolkitReport(ToolkitState.RUNTIME)
    assert report.failures == {Reason.KILLED: 1}


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
    world = World(ContainerSettings(first_after_s=0, interval_s=60, pull=pull), pullable=pullable)
    for answers, image, failure, for_s in story:
        world.answers, world.image, world.failure = answers, image, failure
        world.run(for_s)
    runs, looks = world.times(Task.RUN), world.times(Task.LOOK)
    assert all(b - a >= 60 for a, b in itertools.pairwise(runs))
    assert all(b - a >= LOOK_EVERY_S for a, b in itertools.pairwise(looks))
    pulls = world.times(Task.PULL)
    assert all(b - a >= 60 for a, b in itertools.pairwise(pulls))
