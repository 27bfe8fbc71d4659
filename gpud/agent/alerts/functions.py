"""Functions that worked and fail now: CUDA, a GPU, a probe, NVML, GPU containers.

Only what was observed to work can be lost. Under another driver two failures in a row are a loss,
under the same one three; NVML is lost after two minutes of silence, and so is a GPU that hangs
under a new driver. Pure: looked at once a second, with time as a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from gpud.agent.measure.breaker import State
from gpud.agent.regression import changes
from gpud.agent.state.changes import run_conditions
from gpud.agent.state.health import SEVERITY, Severity
from gpud.core import containers
from gpud.core.health import Level
from gpud.core.sample import Backend, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.sample import Failure

CUDA, PROBE, NVML, CONTAINER = "cuda", "probe", "nvml", "container"
"""Kinds of functions."""
NOT_THE_DRIVER: Final = frozenset(
    {Reason.KILLED, Reason.BAD_OUTPUT, Reason.SPAWN_FAILED, Reason.INTERNAL, Reason.DOCKER_ERROR}
)
"""Critical failures that are the system's, gpud's or Docker's."""
OF_ONE_PROBE: Final = frozenset(
    {
        Reason.PTX_REJECTED,
        Reason.SYMBOL_MISSING,
        Reason.UNSUPPORTED,
        Reason.GRAPH_FAILED,
        Reason.INVALID_CALL,
        Reason.VERIFICATION_FAILED,
    }
)
"""Failures that may be of one probe's work only. Any other concerns the GPU, or all of CUDA."""
UNDER_ANOTHER, UNDER_THE_SAME = 2, 3
"""Failures in a row: one may be chance, and without a new driver so may two."""
DRIVER_KNOWN_S: Final = 60.0
"""By then it is known whether the driver is another one."""
SILENT_S: Final = 120.0
"""A driver that is being replaced takes NVML away for a minute."""
AFTER_RESUME_S: Final = 120.0
"""A failure so soon after a pause of the machine is due to the pause."""
OTHERS_S: Final = 1200.0
"""How long the results of other probes are awaited; large ones run every 15 minutes."""
UNTRIED_S: Final = 3600.0
"""What nothing has tried for so long is lost no more: a probe was switched off, a GPU is gone."""
MOST: Final = 1000
"""Subjects that are remembered."""


class Subject(NamedTuple):
    """What may be lost. ``gpu`` is a UUID; empty where it is the machine's."""

    kind: str
    gpu: str = ""
    probe: str = ""


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


class Saved(msgspec.Struct, frozen=True):
    """What a restart keeps; failures are counted anew."""

    worked: list[tuple[str, str, str, str | None]]
    lost: list[Lost]
    version: Literal[1] = 1


class Observation(NamedTuple):
    """One result of a subject, at ``mark`` of the monotonic clock; None: it works."""

    mark: float
    why: Why | None = None


class Strikes(NamedTuple):
    """Failures in a row, the first of them at a moment of the monotonic clock."""

    failures: int
    first_s: float


class _Look(NamedTuple):
    """The results of one moment."""

    snapshot: Snapshot
    results: dict[Subject, Observation]
    fresh: set[Subject]  # those with another result than at the last look
    driver: str | None
    now: Instant


class Functions:
    """What worked under which driver, and what is lost."""

    def __init__(self) -> None:
        self.worked: dict[Subject, str | None] = {}
        self.lost: dict[Subject, Lost] = {}
        self._strikes: dict[Subject, Strikes] = {}
        self._marks: dict[Subject, float] = {}
        self._untried: dict[Subject, float] = {}  # lost, and since when nothing tried it

    @property
    def pending(self) -> frozenset[str]:
        """The kinds of which it is not decided yet whether they are lost."""
        return frozenset(one.kind for one in self._strikes if one in self.worked)

    def saved(self) -> Saved:
        """Return what a restart keeps."""
        worked = [(*subject, driver) for subject, driver in self.worked.items()]
        return Saved(worked, list(self.lost.values()))

    def resume(self, past: Saved) -> None:
        """Add what an earlier run of the agent knew."""
        worked = {Subject(*subject): driver for *subject, driver in past.worked}
        self.worked = {**worked, **self.worked}
        self.lost = {**{one.subject: one for one in past.lost}, **self.lost}

    def update(self, snapshot: Snapshot, now: Instant) -> None:
        """Look at a snapshot."""
        results = observe(snapshot)
        fresh = {
            subject for subject, one in results.items() if self._marks.get(subject) != one.mark
        }
        look = _Look(snapshot, results, fresh, driver(snapshot, now), now)
        self._count(look)
        regained = set(self._regained(look))
        self.lost = {subject: one for subject, one in self.lost.items() if subject not in regained}
        resumed_s = snapshot.machine.resumed_mono_s
        if resumed_s is not None and now.mono_s - resumed_s < AFTER_RESUME_S:
            self._strikes.clear()
            return
        lost = self.lost | {one.subject: one for one in self._losses(look)}
        self.lost = {
            subject: one
            for subject, one in lost.items()
            if not any(_part(subject, whole) for whole in lost)
        }

    def _count(self, look: _Look) -> None:
        """Count each result once: a success of before is none under the driver of now."""
        now_s = look.now.mono_s
        strikes = {}
        for subject, (_, why) in look.results.items():
            fresh = subject in look.fresh
            if why is None:
                if fresh:
                    self.worked[subject] = look.driver or self.worked.get(subject)
                continue
            before = self._strikes.get(subject)
            strikes[subject] = before or Strikes(1, now_s)
            if before and fresh:
                strikes[subject] = Strikes(before.failures + 1, before.first_s)
        self._strikes = strikes
        self._marks = {subject: one.mark for subject, one in look.results.items()}
        untried = self.lost.keys() - look.results.keys()
        self._untried = {subject: self._untried.get(subject, now_s) for subject in untried}
        for subject in list(self.worked)[: max(len(self.worked) - MOST, 0)]:
            del self.worked[subject]

    def _regained(self, look: _Look) -> Iterator[Subject]:
        """Yield what works again, is well without it, or is not tried any more."""
        works = {subject for subject, one in look.results.items() if one.why is None}
        gpus = {subject.gpu for subject in works & look.fresh if subject.kind == PROBE}
        for subject in self.lost:
            health = None if subject.gpu else look.snapshot.health.get(subject.kind)
            untried_s = self._untried.get(subject)
            if (
                subject in works
                or (subject.kind == CUDA and subject.gpu in gpus)
                or (health is not None and health.level is Level.OK)
                or (untried_s is not None and look.now.mono_s - untried_s >= UNTRIED_S)
            ):
                yield subject

    def _losses(self, look: _Look) -> Iterator[Lost]:
        """Yield what has failed often enough."""
        probes: dict[str, list[Subject]] = {}
        for subject, (_, why) in look.results.items():
            covered = any(subject == lost or _part(subject, lost) for lost in self.lost)
            if why is None or covered or not self._failed_enough(subject, why, look):
                continue
            if subject.kind == PROBE:
                probes.setdefault(subject.gpu, []).append(subject)
            else:
                yield self._loss(subject, subject, look)
        for failing in probes.values():
            yield from self._losses_of_gpu(failing, look)

    def _failed_enough(self, subject: Subject, why: Why, look: _Look) -> bool:
        if subject not in self.worked:
            return False
        strikes, old = self._strikes[subject], self.worked[subject]
        lasted_s = look.now.mono_s - strikes.first_s
        another = None not in {look.driver, old} and look.driver != old
        if subject.kind == NVML:
            return lasted_s >= SILENT_S and Subject(CUDA) not in self._strikes  # decided there
        if subject.kind == CONTAINER:
            return True  # hours lie between two runs, and its verdict rests on two probes
        if why.reason in {Reason.HUNG, Reason.SLOW_START}:
            # Under the same driver that is the health of ``gpu``, which says more about it.
            breaker = look.snapshot.measure.breaker
            closed = breaker is None or breaker.state is State.CLOSED
            return another and lasted_s >= SILENT_S and not closed
        if another:
            return strikes.failures >= UNDER_ANOTHER
        return lasted_s >= DRIVER_KNOWN_S and strikes.failures >= UNDER_THE_SAME

    def _losses_of_gpu(self, failing: list[Subject], look: _Look) -> Iterator[Lost]:
        """Tell a GPU on which nothing works any more from one that refuses some probes."""
        gpu = failing[0].gpu
        since_s = min(self._strikes[subject].first_s for subject in failing)
        others = [
            one.why
            for subject, one in look.results.items()
            if (subject.kind, subject.gpu) == (PROBE, gpu)
            and subject in self.worked.keys() - set(failing)
            and (one.why is not None or one.mark >= since_s)
        ]
        if None not in others:
            reasons = {why.reason for one in failing if (why := look.results[one].why)}
            if len(failing) + len(others) > 1 or reasons - OF_ONE_PROBE:
                yield self._loss(Subject(CUDA, gpu), failing[0], look)
                return
            untried = any(
                spec.backend is Backend.CUDA and spec.name != failing[0].probe
                for spec in look.snapshot.measure.specs
            )
            if untried and look.now.mono_s - since_s < OTHERS_S:
                return
        for subject in failing:
            yield self._loss(subject, subject, look)

    def _loss(self, lost: Subject, failing: Subject, look: _Look) -> Lost:
        why = look.results[failing].why or Why("unknown")
        return Lost(lost, self.worked[failing], look.driver, why, look.now.wall_s)


def observe(snapshot: Snapshot) -> dict[Subject, Observation]:
    """Return the latest result of each subject; what says nothing of the driver is left out."""
    return dict([*_cuda(snapshot), *_probes(snapshot), *_nvml(snapshot), *_container(snapshot)])


def driver(snapshot: Snapshot, now: Instant) -> str | None:
    """Name the driver by its version, else by what it brings; None where nothing names it."""
    current = run_conditions(snapshot, now.mono_s)
    for kind, form in (
        (changes.DRIVER_VERSION, "{}"),
        (changes.NVML_VERSION, "NVML {}"),
        (changes.DRIVER_FOLDER, "folder {}"),
    ):
        if isinstance(text := current.get(kind), str):
            return form.format(text)
    return None


def _cuda(snapshot: Snapshot) -> Iterator[tuple[Subject, Observation]]:
    inventory, mark = snapshot.measure.inventory, snapshot.measure.inventory_mono_s
    if inventory is None or mark is None or _says_nothing(inventory.failure):
        return
    if inventory.failure is not None:
        health = snapshot.health.get(CUDA)  # it may know better than CUDA itself what helps
        why = _why(inventory.failure)
        if health is not None and health.level is not Level.OK:
            why = Why(why.reason, why.detail, health.fix)
        yield Subject(CUDA), Observation(mark, why)
    elif inventory.devices:
        yield Subject(CUDA), Observation(mark)


def _probes(snapshot: Snapshot) -> Iterator[tuple[Subject, Observation]]:
    uuids = {gpu.number: uuid for uuid, gpu in snapshot.gpus.items()}
    for key, state in snapshot.measure.probes.items():
        uuid = None if key.gpu is None else uuids.get(key.gpu)
        if uuid is None or state.finished_mono_s is None or key.probe == containers.PROBE:
            continue
        if not _says_nothing(state.failure):
            why = None if state.failure is None else _why(state.failure)
            yield Subject(PROBE, uuid, key.probe), Observation(state.finished_mono_s, why)


def _nvml(snapshot: Snapshot) -> Iterator[tuple[Subject, Observation]]:
    answer, health = snapshot.telemetry.answers.get(NVML), snapshot.health.get(NVML)
    if answer is None:
        return
    if answer.reason is None:
        yield Subject(NVML), Observation(answer.taken_mono_s)
    elif health is not None and health.level > Level.OK:  # where there is no GPU it is well
        why = Why(answer.reason, answer.detail, health.fix)
        yield Subject(NVML), Observation(answer.taken_mono_s, why)


def _container(snapshot: Snapshot) -> Iterator[tuple[Subject, Observation]]:
    """Look at the last run in a container; a failure counts beside a good in-process run."""
    report = None if snapshot.root.report is None else snapshot.root.report.containers
    if report is None or report.run is None:
        return
    mark, failure = report.run.finished_mono_s, report.run.failure
    if failure is None:
        yield Subject(CONTAINER), Observation(mark)
        return
    compared = snapshot.root.comparison
    alone = compared is not None and compared.verdict is containers.Verdict.ONLY_CONTAINER_FAILS
    if alone and report.image_present is not False and not _says_nothing(failure):
        yield Subject(CONTAINER), Observation(mark, _why(failure))


def _says_nothing(failure: Failure | None) -> bool:
    """Return whether a failure says nothing of the driver: busy, not set up, or gpud's own."""
    if failure is None or failure.reason in OF_ONE_PROBE:
        return False
    return SEVERITY[failure.reason] is not Severity.CRITICAL or failure.reason in NOT_THE_DRIVER


def _why(failure: Failure) -> Why:
    return Why(str(failure.reason), failure.detail, failure.advice)


def _part(one: Subject, whole: Subject) -> bool:
    """Return whether the loss of ``whole`` includes that of ``one``."""
    if one == whole or whole.kind != CUDA or one.kind == CONTAINER:
        return False
    return not whole.gpu or (one.gpu == whole.gpu and one.kind == PROBE)
