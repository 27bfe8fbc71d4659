"""Functions that worked and fail now, and components that stay failed.

A function is CUDA, a GPU, NVML or GPU containers. Only what was observed to work can be lost. Under
another driver two failures in a row are a loss, under the same one three; a GPU is lost when all of
its probes fail for a minute. NVML is lost after two minutes of silence, and so is a GPU that hangs
under a new driver. A component is one of ``Snapshot.health``. Pure: looked at with each tick, with
time as a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec

from gpud.agent.measure.breaker import State
from gpud.agent.state import containers
from gpud.agent.state.facts import DRIVER_FOLDER, DRIVER_VERSION, NVML_VERSION, run_conditions
from gpud.agent.state.health import SEVERITY, FailureSeverity
from gpud.core.health import Level
from gpud.core.sample import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.health import Health
    from gpud.core.report import ContainerFailure
    from gpud.core.sample import Failure

CUDA, NVML, CONTAINER = "cuda", "nvml", "container"
"""Kinds of functions."""
HUNG_GPU = "hung_gpu"
"""No function: it explains components as the loss of one does."""
NOT_THE_DRIVER: Final = frozenset(
    {Reason.KILLED, Reason.BAD_OUTPUT, Reason.SPAWN_FAILED, Reason.INTERNAL, Reason.DOCKER_ERROR}
)
"""Critical failures that are the system's, gpud's or Docker's."""
UNDER_ANOTHER, UNDER_THE_SAME = 2, 3
"""Failures in a row: one may be chance, and without a new driver so may two."""
LASTS_S: Final = 60.0
"""By then it is known whether the driver is another one, and each probe of a round was tried."""
SILENT_S: Final = 120.0
"""A driver that is being replaced takes NVML away for a minute."""
AFTER_RESUME_S: Final = 120.0
"""A failure so soon after a pause of the machine is due to the pause."""
UNTRIED_S: Final = 3600.0
"""What nothing has tried for so long is lost no more: a probe was switched off, a GPU is gone."""
STAYS_S: Final = 120.0
"""A component that has been failed for so long is reported."""
RESTS_S: Final = 60.0
"""One that fails and starts again all the time counts as failed for so long after a failure."""
PATIENCE_S: Final = 1500.0
"""How long a component waits whose function may yet be lost: three rounds of ten minutes."""
COVERED: Final[Mapping[str, frozenset[str]]] = {
    CUDA: frozenset({"cuda", "devices", "gpu", "probes", "nvml", "dxg"}),
    NVML: frozenset({"nvml"}),
    CONTAINER: frozenset({"containers"}),
    HUNG_GPU: frozenset({"probes", "dxg"}),
}
"""Components that the loss of a function explains, by its kind."""


class Subject(NamedTuple):
    """What may be lost. ``gpu`` is a UUID; empty where it is the machine's."""

    kind: str
    gpu: str = ""


class Why(msgspec.Struct, frozen=True):
    """Why something fails: a slug, words and a fix."""

    reason: str
    detail: str | None = None
    fix: str | None = None


class Lost(msgspec.Struct, frozen=True):
    """A function that fails since ``at_s``. A driver is None if it is not known."""

    subject: Subject
    old: str | None  # under which it last worked
    new: str | None  # under which it fails
    why: Why
    at_s: float


class SavedFunctions(msgspec.Struct, frozen=True):
    """What a restart keeps; failures are counted from 0 again."""

    worked: list[tuple[str, str, str | None]] = []
    lost: list[Lost] = []
    version: Literal[1] = 1


class Course(NamedTuple):
    """The latest results of a subject: failures in a row, and the moment of the first of them."""

    mark: float  # of the latest result, by the monotonic clock
    failures: int = 0
    first_s: float = 0.0


Results: TypeAlias = "Mapping[Subject, tuple[float, Why | None]]"
Result: TypeAlias = "tuple[Subject, tuple[float, Why | None]]"
"""Of each subject the mark of its latest result, and why it fails; None: it works."""


class Functions:
    """What worked under which driver, and what is lost."""

    def __init__(self) -> None:
        self.worked: dict[Subject, str | None] = {}
        self.lost: dict[Subject, Lost] = {}
        self._courses: dict[Subject, Course] = {}
        self._tried_s: dict[Subject, float] = {}  # of what is lost, by the monotonic clock

    @property
    def pending(self) -> frozenset[str]:
        """The kinds of which it is not decided yet whether they are lost."""
        courses = self._courses.items()
        return frozenset(s.kind for s, course in courses if course.failures and s in self.worked)

    def saved(self) -> SavedFunctions:
        """Return what a restart keeps."""
        worked = [(*subject, driver) for subject, driver in self.worked.items()]
        return SavedFunctions(worked, list(self.lost.values()))

    def resume(self, past: SavedFunctions) -> None:
        """Add what an earlier run of the agent knew."""
        worked = {Subject(*subject): driver for *subject, driver in past.worked}
        self.worked = {**worked, **self.worked}
        self.lost = {**{loss.subject: loss for loss in past.lost}, **self.lost}

    def update(self, snapshot: Snapshot, now: Instant) -> None:
        """Count the latest results and find what is lost, or lost no more."""
        results, driver = observe(snapshot), current_driver(snapshot, now)
        self._count(results, driver, now.mono_s)
        self._end(results, snapshot, now.mono_s)
        resumed_s = snapshot.machine.resumed_mono_s
        if resumed_s is not None and now.mono_s - resumed_s < AFTER_RESUME_S:
            self._courses = {s: Course(course.mark) for s, course in self._courses.items()}
            return
        breaker = snapshot.measure.breaker
        hangs = breaker is not None and breaker.state is not State.CLOSED
        for subject, (_, why) in results.items():
            if why is None or any(subject == s or _part(subject, s) for s in self.lost):
                continue
            if self._failed_enough(subject, why, driver, now.mono_s, hangs=hangs):
                self.lost[subject] = Lost(subject, self.worked[subject], driver, why, now.wall_s)
        parts = [s for s in self.lost if any(_part(s, whole) for whole in self.lost)]
        self.lost = {s: loss for s, loss in self.lost.items() if s not in parts}

    def _count(self, results: Results, driver: str | None, now_s: float) -> None:
        """Count each result once."""
        courses = {}
        for subject, (mark, why) in results.items():
            before = self._courses.get(subject)
            fresh = before is None or before.mark != mark
            if why is None:
                courses[subject] = Course(mark)
                if fresh:  # a success of before is none under the driver of now
                    self.worked[subject] = driver or self.worked.get(subject)
            elif before is None or not before.failures:
                courses[subject] = Course(mark, 1, now_s)
            else:
                failures = before.failures + fresh
                courses[subject] = Course(mark, failures, before.first_s)
        self._courses = courses

    def _end(self, results: Results, snapshot: Snapshot, now_s: float) -> None:
        """End the loss of what works again, is well without it, or is not tried any more."""
        works = {subject for subject, (_, why) in results.items() if why is None}
        works |= {
            Subject(name) for name, health in snapshot.health.items() if health.level is Level.OK
        }
        tried_s = self._tried_s
        self._tried_s = {
            subject: now_s if subject in results else tried_s.get(subject, now_s)
            for subject in self.lost
        }
        for subject, last_s in self._tried_s.items():
            if subject in works or now_s - last_s >= UNTRIED_S:
                del self.lost[subject]

    def _failed_enough(
        self, subject: Subject, why: Why, driver: str | None, now_s: float, *, hangs: bool
    ) -> bool:
        if subject not in self.worked:
            return False
        course, old = self._courses[subject], self.worked[subject]
        lasted_s = now_s - course.first_s
        another = None not in {driver, old} and driver != old
        if subject.kind == NVML:
            cuda = self._courses.get(Subject(CUDA))
            return lasted_s >= SILENT_S and (cuda is None or not cuda.failures)  # decided there
        if subject.kind == CONTAINER:
            return True  # hours lie between two runs, and its verdict rests on two probes
        if why.reason in {Reason.HUNG, Reason.SLOW_START}:
            # Under the same driver that is the health of ``gpu``, which says more about it.
            return another and lasted_s >= SILENT_S and hangs
        if subject.gpu:  # its probes are tried one after the other, and one may be broken alone
            lasted_s = course.mark - course.first_s
        if another and not subject.gpu:
            return course.failures >= UNDER_ANOTHER
        return lasted_s >= LASTS_S and course.failures >= UNDER_THE_SAME


def observe(snapshot: Snapshot) -> Results:
    """Return the latest result of each subject; what says nothing of the driver is skipped."""
    return dict([*_cuda(snapshot), *_gpus(snapshot), *_nvml(snapshot), *_container(snapshot)])


def current_driver(snapshot: Snapshot, now: Instant) -> str | None:
    """Name the driver by its version, else by what it brings; None where nothing names it."""
    current = run_conditions(snapshot, now.mono_s)
    for kind, form in (
        (DRIVER_VERSION, "{}"),
        (NVML_VERSION, "NVML {}"),
        (DRIVER_FOLDER, "folder {}"),
    ):
        if isinstance(text := current.get(kind), str):
            return form.format(text)
    return None


def _cuda(snapshot: Snapshot) -> Iterator[Result]:
    inventory, mark = snapshot.measure.inventory, snapshot.measure.inventory_mono_s
    if inventory is None or mark is None or _says_nothing(inventory.failure):
        return
    if inventory.failure is not None:
        health = snapshot.health.get(CUDA)  # it may know better than CUDA itself what helps
        why = _why(inventory.failure)
        if health is not None and health.level is not Level.OK:
            why = Why(why.reason, why.detail, health.fix)
        yield Subject(CUDA), (mark, why)
    elif inventory.devices:
        yield Subject(CUDA), (mark, None)


def _gpus(snapshot: Snapshot) -> Iterator[Result]:
    """Yield the latest run on each GPU, oldest first: the last one of a GPU counts."""
    uuids = {gpu.number: uuid for uuid, gpu in snapshot.gpus.items()}
    runs = (
        (state.finished_mono_s, key, state.report.failure)
        for key, state in snapshot.measure.probes.items()
        if key.probe != containers.PROBE
    )
    for mark, key, failure in sorted(runs, key=lambda run: run[0]):
        if key.gpu in uuids and not _says_nothing(failure):
            why = None if failure is None else _why(failure)
            yield Subject(CUDA, uuids[key.gpu]), (mark, why)


def _nvml(snapshot: Snapshot) -> Iterator[Result]:
    answer, health = snapshot.telemetry.answers.get(NVML), snapshot.health.get(NVML)
    if answer is None:
        return
    if answer.reason is None:
        yield Subject(NVML), (answer.taken_mono_s, None)
    elif health is not None and health.level > Level.OK:  # where there is no GPU it is well
        yield Subject(NVML), (answer.taken_mono_s, Why(answer.reason, answer.detail, health.fix))


def _container(snapshot: Snapshot) -> Iterator[Result]:
    """Look at the last run in a container; a failure counts beside a good in-process run."""
    report, compared = snapshot.root.report, snapshot.root.comparison
    status = None if report is None else report.containers
    if status is None or status.run is None:
        return
    mark, failure = status.run.finished_mono_s, status.run.failure
    if failure is None:
        yield Subject(CONTAINER), (mark, None)
    elif (
        compared is not None
        and compared.verdict is containers.ContainerVerdict.ONLY_CONTAINER_FAILS
        and status.image_present is not False
        and not _says_nothing(failure)
    ):
        yield Subject(CONTAINER), (mark, _why(failure))


def _says_nothing(failure: Failure | ContainerFailure | None) -> bool:
    """Return whether a failure says nothing of the driver: busy, not set up, or gpud's own."""
    if failure is None:
        return False
    critical = SEVERITY[failure.reason] is FailureSeverity.CRITICAL
    return not critical or failure.reason in NOT_THE_DRIVER


def _why(failure: Failure | ContainerFailure) -> Why:
    return Why(str(failure.reason), failure.detail, failure.advice)


def _part(subject: Subject, whole: Subject) -> bool:
    """Return whether the loss of ``whole`` includes that of ``subject``."""
    return whole == Subject(CUDA) and subject != whole and subject.kind != CONTAINER


class Components:
    """Components that fail, and those of them that are reported. A restart begins with neither."""

    def __init__(self) -> None:
        self.failed: dict[str, tuple[float, float]] = {}  # the first and the last moment
        self.reported: frozenset[str] = frozenset()

    def update(
        self,
        health: Mapping[str, Health],
        now_s: float,
        *,
        lost: Iterable[str] = (),
        pending: Iterable[str] = (),
    ) -> None:
        """Look at the health of all components.

        ``lost`` and ``pending`` are kinds of functions: those that are lost, and those of which it
        is not decided yet. Units: ``now_s`` is of the monotonic clock.
        """
        failed = {}
        explained, undecided = covered(lost), covered(pending)
        for name, state in health.items():
            first_s, last_s = self.failed.get(name, (now_s, float("-inf")))
            if name in explained:  # once nothing explains it, it has time to get well
                first_s = now_s
            if state.level is Level.FAILED:
                failed[name] = first_s, now_s
            elif state.level > Level.OK and now_s - last_s < RESTS_S:
                failed[name] = first_s, last_s
        self.failed = failed
        self.reported = frozenset(
            name
            for name, (first_s, _) in failed.items()
            if name not in explained
            and (
                name in self.reported
                or now_s - first_s >= (PATIENCE_S if name in undecided else STAYS_S)
            )
        )


def covered(kinds: Iterable[str]) -> frozenset[str]:
    """Return the components that these kinds of functions explain."""
    return frozenset().union(*(COVERED.get(kind, frozenset()) for kind in kinds))
