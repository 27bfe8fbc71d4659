from __future__ import annotations

import itertools
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE

import docker
import msgspec
import pytest
from docker.errors import APIError, ImageNotFound
from hypothesis import given
from hypothesis import strategies as st

from gpud.core.report import (
    ContainerFailure,
    ContainerFigure,
    ContainerRun,
    ContainersReport,
    Owner,
    ProbeStage,
    ProcessRef,
    ToolkitReport,
    ToolkitState,
)
from gpud.core.sample import Failure, Reason, Skip
from gpud.core.sections import ContainerSettings, PathSettings
from gpud.core.settings import Settings
from gpud.core.toolkit import PROGRAMS
from gpud.root import container_probe
from gpud.root.containers import (
    ANNOUNCE_S,
    COMMAND,
    LOOK_EVERY_S,
    RETRY_S,
    SETTLE_S,
    ContainerJob,
    Containers,
    Plan,
    Task,
    TaskResult,
    identity,
)
from gpud.root.daemonconfig import DaemonConfig
from gpud.root.dockerd_facts import Api, DockerdObservation
from tests.waiting import until

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
    toolkit: ToolkitState = ToolkitState.RUNTIME
    now_s: float = 1000.0
    tasks: list[tuple[float, Task]] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)
    plan: Plan = field(init=False)

    def __post_init__(self) -> None:
        self.plan = Plan(self.settings, self.now_s)

    def run(self, for_s: float) -> ContainersReport:
        end_s = self.now_s + for_s
        while self.now_s < end_s:
            self.now_s += STEP_S
            task = self.plan.due(self.dockerd, self.now_s, answers=self.answers)
            stage = self.plan.report.stage
            if not self.stages or self.stages[-1] != stage:
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
        if task is Task.LOOK:
            return TaskResult(ToolkitReport(self.toolkit), image_present=self.image)
        figure = FIGURE if self.failure is None else None
        failure = ContainerFailure.of(self.failure)
        run = ContainerRun(1e9 + self.now_s, self.now_s, 1.0, figure, failure)
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


def test_failures_are_retried_at_growing_distances_and_never_beyond_the_interval() -> None:
    world = World(SOON, failure=HUNG)
    world.run(3 * SOON.interval_s)
    times = world.times(Task.RUN)
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[0] == pytest.approx(RETRY_S + ANNOUNCE_S, abs=2 * STEP_S)
    assert pauses[-1] == pytest.approx(SOON.interval_s + ANNOUNCE_S, abs=2 * STEP_S)


def test_a_success_ends_the_series_of_failures() -> None:
    world = World(SOON)
    assert world.run(120).last_success_s is not None
    world.failure = HUNG
    report = world.run(SOON.interval_s)
    assert report.run is not None
    assert report.run.failure == ContainerFailure.of(HUNG)
    assert report.gpu_index == 0
    world.failure = None
    world.run(3 * RETRY_S)
    world.failure = HUNG
    n = len(world.times(Task.RUN))
    world.run(SOON.interval_s + 2 * RETRY_S)
    before, after = world.times(Task.RUN)[n : n + 2]
    assert after - before == pytest.approx(RETRY_S + ANNOUNCE_S, abs=2 * STEP_S)


OFF = ContainerSettings(probe=False, first_after_s=60)


@pytest.mark.parametrize(
    ("world", "tasks", "stage", "skips"),
    [
        (World(SOON, image=False), {Task.LOOK}, ProbeStage.WAITING, {Skip.IMAGE_ABSENT: 2}),
        (World(SOON, answers=False), set(), ProbeStage.WAITING, {Skip.DOCKERD_DOWN: 2}),
        (World(OFF), {Task.LOOK}, ProbeStage.OFF, {}),
    ],
    ids=["no image", "no dockerd", "switched off"],
)
def test_what_cannot_run_is_a_skip_counted_once_an_interval_and_no_task(
    world: World, tasks: set[Task], stage: ProbeStage, skips: dict[Skip, int]
) -> None:
    report = world.run(2 * SOON.interval_s)
    assert {task for _, task in world.tasks} == tasks
    assert (report.run, report.stage, report.skips) == (None, stage, skips)


def test_an_announcement_is_taken_back_when_dockerd_goes() -> None:
    world = World(SOON)
    world.run(62)
    assert world.stages[-1] is ProbeStage.ANNOUNCED
    world.answers = False
    assert world.run(5).stage is ProbeStage.WAITING
    assert world.times(Task.RUN) == []


def test_another_dockerd_is_looked_at_after_its_start() -> None:
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
    )
)
def test_plan_has_a_single_task_at_a_time_and_never_a_tight_loop(
    story: list[tuple[bool, bool, Failure | None, float]],
) -> None:
    world = World(ContainerSettings(first_after_s=0, interval_s=60))
    for answers, image, failure, for_s in story:
        world.answers, world.image, world.failure = answers, image, failure
        world.run(for_s)
    runs, looks = world.times(Task.RUN), world.times(Task.LOOK)
    assert all(b - a >= 60 for a, b in itertools.pairwise(runs))
    assert all(b - a >= LOOK_EVERY_S for a, b in itertools.pairwise(looks))


SPEC = 'cdiVersion: "0.5.0"\nkind: nvidia.com/gpu\ndevices: []\n'
JOB = ContainerJob(Task.LOOK, "/run/docker.sock", "x:1", 1.0, "/run/mine", 1)


@pytest.mark.parametrize("text", [SPEC, '{\n  "kind": "nvidia.com/gpu",\n  "devices": []\n}'])
def test_cdi_file_that_offers_gpus_is_listed_among_odd_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(text.replace("nvidia.com/gpu", "nvidia.com/gpuless"))
    (tmp_path / "c.txt").write_text(text)
    (tmp_path / "d.yaml").mkdir()
    os.mkfifo(tmp_path / "e.yaml")
    (tmp_path / "f.yaml").symlink_to("f.yaml")
    specs = container_probe.cdi_specs([str(tmp_path), str(tmp_path / "missing")])
    assert list(specs) == [str(tmp_path / "a.yaml")]


@pytest.mark.parametrize(
    ("text", "runtimes"),
    [('{"runtimes": {"nvidia": {}}}', ("nvidia",)), ('{"runtimes": 5}', ()), ("{", ())],
)
def test_toolkit_facts_come_from_dockerd_daemon_json_and_the_programs_on_the_path(
    tmp_path: Path, text: str, runtimes: tuple[str, ...]
) -> None:
    config, program = tmp_path / "daemon.json", tmp_path / PROGRAMS[0]
    config.write_text(text)
    program.touch(0o755)
    job = msgspec.structs.replace(JOB, config_file=str(config), path=str(tmp_path))
    info = {
        "ServerVersion": "28.3.0",
        "Runtimes": {"runc": {}, "nvidia": {}},
        "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}],
    }
    facts = container_probe.toolkit_facts(info, job)
    assert (facts.configured, facts.programs) == (runtimes, PROGRAMS[:1])
    assert (facts.version, facts.runtimes) == ("28.3.0", ("nvidia", "runc"))
    assert facts.cdi_devices == ("nvidia.com/gpu=0",)
    facts = container_probe.toolkit_facts({}, job)
    assert (facts.version, facts.runtimes) == (None, None)
    assert (facts.cdi_dirs, facts.cdi_devices) == ((), ())


THERE = DockerdObservation(process=None, owner=Owner.GPUD, api=Api.ANSWERS)


def made(home: Path) -> Settings:
    settings = Settings(home=str(home))
    Path(settings.log_dir).mkdir(parents=True)
    return settings


def test_probe_asks_the_socket_that_dockerd_really_listens_on(tmp_path: Path) -> None:
    written = tmp_path / "written"
    script = f'echo "$@" > {written}.new; mv {written}.new {written}; exec sleep 100'
    containers = Containers(made(tmp_path), ("/bin/sh", "-c", script, ""))
    try:
        containers.step(THERE, DaemonConfig(socket="/srv/theirs.sock"), time.monotonic() + 1000)
        until(written.exists, "its command line")
        assert '"socket":"/srv/theirs.sock"' in written.read_text()
    finally:
        containers.stop()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("/bin/sh -c kill$IFS-9$IFS$$", "somebody killed it"),
        ("/bin/false", "exit code 1"),
        ("/nowhere/python3", "cannot start /nowhere/python3"),
    ],
)
def test_probe_without_a_result_is_a_look_that_failed(
    tmp_path: Path, command: str, reason: str
) -> None:
    containers = Containers(made(tmp_path), command.split())
    containers.step(THERE, DaemonConfig(), time.monotonic() + 1000)
    if containers._child is not None:
        containers.ended(*os.waitpid(containers._child.pid, 0))
    toolkit = containers.report().toolkit
    assert toolkit is not None
    assert toolkit.reason == "look_failed"
    assert reason in (toolkit.detail or "")


def output(job: ContainerJob) -> bytes:
    return subprocess.run([*COMMAND, msgspec.json.encode(job)], stdout=PIPE, check=False).stdout


def test_probe_whose_supervisor_is_gone_does_nothing() -> None:
    assert output(JOB) == b""


def test_absent_dockerd_is_the_failure_of_a_task() -> None:
    job = msgspec.structs.replace(JOB, socket="/nonexistent/docker.sock", parent=os.getpid())
    failure = msgspec.json.decode(output(job), type=TaskResult).failure
    assert failure is not None
    assert failure.reason is Reason.DOCKERD_LOST
    assert len(failure.detail) <= 600


def test_gpuds_of_two_file_systems_differ() -> None:
    here, there = (
        Settings(paths=PathSettings(run="/run/gpud", log=log)) for log in ("/", "/dev/shm")
    )
    assert os.statvfs("/").f_fsid != os.statvfs("/dev/shm").f_fsid, "two file systems"
    assert identity(here) != identity(there)
    assert identity(here) == identity(here)


class Stubborn:
    """A dockerd that cannot remove the first of our two containers, and fetches no image."""

    def __init__(self, *said: dict[str, str]) -> None:
        self.said = said  # of a fetch
        self.removed: list[str] = []

    def close(self) -> None:
        return

    def info(self) -> dict[str, object]:
        return {}

    def inspect_image(self, image: str) -> None:
        raise ImageNotFound(image)

    def pull(self, _image: str, **_: object) -> tuple[dict[str, str], ...]:
        return self.said

    def containers(self, **_: object) -> list[dict[str, str]]:
        return [{"Id": "stuck"}, {"Id": "left"}]

    def stop(self, _container: str, **_: object) -> None:
        return

    def remove_container(self, container: str, **_: object) -> None:
        if container == "stuck":
            raise APIError("device or resource busy")
        self.removed.append(container)


def test_container_that_cannot_be_removed_holds_up_no_other_and_no_look() -> None:
    dockerd = Stubborn()
    container_probe.clear(dockerd, JOB)
    assert dockerd.removed == ["left"]


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ({"error": "no space left on device"}, "no space left on device"),
        ({"status": "Download complete"}, "does not have it"),
    ],
)
def test_fetch_that_ends_in_the_middle_or_without_an_image_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, last: dict[str, str], words: str
) -> None:
    dockerd = Stubborn({"status": "Downloading"}, last)
    monkeypatch.setattr(docker, "APIClient", lambda **_: dockerd)
    result = container_probe.perform(msgspec.structs.replace(JOB, task=Task.PULL))
    assert result.failure is not None
    assert result.failure.reason is Reason.PULL_FAILED
    assert words in result.failure.detail
    assert result.image_present is False
