"""Functions that are lost by the driver's fault, and components that stay failed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import structs

from gpud.agent.alerts import functions
from gpud.agent.alerts.functions import (
    PATIENCE_S,
    RESTS_S,
    STAYS_S,
    Components,
    Functions,
    Lost,
    SavedFunctions,
    Subject,
)
from gpud.agent.measure.breaker import State
from gpud.agent.state.snapshot import Snapshot
from gpud.agent.telemetry.answers import Answer
from gpud.core.clock import Instant
from gpud.core.health import Health, Level
from gpud.core.report import ContainerFailure, ContainerRun
from gpud.core.sample import (
    Backend,
    Failure,
    Inventory,
    Pace,
    ProbeSpec,
    Reading,
    Reason,
    RunReport,
    Unit,
)
from gpud.document.machine import BreakerReport
from tests.events import (
    Event,
    breaker_changed,
    clock_jumped,
    health_set,
    inventory_taken,
    made,
    probes_listed,
    root_read,
    run_finished,
    source_answered,
)
from tests.snapshots import DEVICE, ROOT, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

OLD, NEW = "572.16", "576.02"
NAMES = ("launch", "event", "triad")
OTHER = replace(DEVICE, index=1, uuid="GPU-2", pci_bus_id="0000:02:00.0")


def spec(name: str) -> ProbeSpec:
    return ProbeSpec(name, Backend.CUDA, Pace.SMALL, Unit.SECONDS, ("m",), 1.0, "")


@dataclass
class Machine:
    """A machine that is told what happens, a minute at a time, and what it says of functions."""

    driver: str = OLD
    nvml: str | None = None  # why it does not answer
    specs: tuple[str, ...] = NAMES
    state: Functions = field(default_factory=Functions)
    snapshot: Snapshot = field(default_factory=lambda: made("0", 1_700_000_000.0))
    mono_s: float = 1000.0
    lost: list[Lost] = field(default_factory=list)
    back: list[Lost] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.post(probes_listed(tuple(map(spec, self.specs)), {}, self.now.wall_s))

    @property
    def now(self) -> Instant:
        return Instant(1_700_000_000.0 + self.mono_s, self.mono_s)

    def post(self, event: Event) -> None:
        self.snapshot = event(self.snapshot)

    def pass_s(self, seconds: float) -> Machine:
        """Let time pass, with telemetry every ten seconds and a look every second."""
        end_s = self.mono_s + seconds
        while self.mono_s < end_s:
            if self.mono_s % 10 == 0:
                readings = (Reading(None, "driver_version", self.driver, "nvidia_smi"),)
                self.answer("nvidia_smi", 3, readings)
                self.answer("nvml", 5, readings=(), reason=self.nvml)
            self.mono_s += 1
            self.look()
        return self

    def answer(
        self, source: str, level: int, readings: tuple[Reading, ...], reason: str | None = None
    ) -> None:
        answer = Answer(source, level, self.now.wall_s, self.mono_s, readings, reason=reason)
        self.post(source_answered(answer, self.now.wall_s))

    def look(self) -> None:
        before = dict(self.state.lost)
        self.state.update(self.snapshot, self.now)
        after = self.state.lost
        self.lost += [after[subject] for subject in after if subject not in before]
        self.back += [before[subject] for subject in before if subject not in after]

    def cuda(self, reason: Reason | None = None, *, devices: int = 1, times: int = 1) -> Machine:
        failure = None if reason is None else Failure(reason, "cuInit says no", advice="mend it")
        listed = (DEVICE, OTHER)[:devices] if failure is None else ()
        taken = Inventory(listed, "12.8", failure=failure)
        for _ in range(times):
            self.post(inventory_taken(taken, self.now.wall_s, self.mono_s))
            self.pass_s(60)
        return self

    def run(self, *names: str, reason: Reason | None = None, gpu: str = DEVICE.uuid) -> Machine:
        for name in names:
            failure = None if reason is None else Failure(reason, "no", advice="mend it")
            samples = () if failure else (sample("m", Unit.SECONDS, 1.0),)
            report = RunReport(name, Backend.CUDA, None, samples, failure=failure)
            self.post(run_finished(report, gpu, self.now.wall_s, self.mono_s))
        return self.pass_s(60)

    def updated(self, *, nvml: str | None = None) -> Machine:
        self.driver, self.nvml = NEW, nvml
        return self.pass_s(20)

    def silent(self, seconds: float) -> Machine:
        """Let NVML not answer for so long, and be well after it."""
        self.nvml = "driver_mismatch"
        self.pass_s(seconds).nvml = None
        return self.pass_s(30)

    def resumed(self) -> Machine:
        self.post(clock_jumped(7200.0, self.now.wall_s, self.mono_s))
        return self

    def breaker(self, state: State) -> Machine:
        standing = BreakerReport(state, since_s=self.now.wall_s, hangs=1)
        self.post(breaker_changed(standing, self.now.wall_s))
        return self.pass_s(120)

    def well(self) -> Machine:
        return self.cuda().run(*self.specs)

    def restarted(self) -> Machine:
        state = Functions()
        state.resume(stored(self.state))
        return Machine(self.driver, self.nvml, self.specs, state, mono_s=self.mono_s + 30)

    @property
    def losses(self) -> list[tuple[Subject, str | None, str | None]]:
        return [(loss.subject, loss.old, loss.new) for loss in self.lost]


def stored(state: Functions) -> SavedFunctions:
    """Write and read the state."""
    return msgspec.json.decode(msgspec.json.encode(state.saved()), type=SavedFunctions)


def subjects(lost: Iterable[Lost]) -> list[Subject]:
    return [loss.subject for loss in lost]


def test_cuda_that_fails_twice_under_a_new_driver_is_lost_with_both_drivers() -> None:
    machine = Machine().well()
    machine.driver = NEW
    machine.pass_s(60).cuda(Reason.INIT_FAILED)
    assert machine.losses == []
    machine.cuda(Reason.INIT_FAILED)
    assert machine.losses == [(Subject("cuda"), OLD, NEW)]
    assert machine.cuda(Reason.INIT_FAILED).cuda(Reason.NO_DEVICE).lost[1:] == []
    machine.cuda()
    assert subjects(machine.back) == [Subject("cuda")]
    assert machine.state.worked[Subject("cuda")] == NEW


def test_failures_in_quick_succession_wait_until_it_is_known_which_driver_it_is() -> None:
    machine = Machine().well()
    for _ in range(9):
        failure = Failure(Reason.INIT_FAILED, "no")
        machine.post(
            inventory_taken(Inventory(failure=failure), machine.now.wall_s, machine.mono_s)
        )
        machine.pass_s(2)
    assert machine.losses == []
    machine.driver = NEW
    assert machine.pass_s(20).losses == [(Subject("cuda"), OLD, NEW)]


def test_machine_that_never_had_it_never_loses_it() -> None:
    machine = Machine(nvml="library_missing")
    machine.cuda(Reason.LIBRARY_MISSING, times=9).cuda()
    for _ in range(9):
        machine.run("launch", reason=Reason.PTX_REJECTED).run("event", "triad")
    assert machine.losses == []


FAIL, BAD = Reason.INIT_FAILED, Reason.PTX_REJECTED
CUDA, GPU = Subject("cuda"), Subject("cuda", DEVICE.uuid)
STORIES: dict[str, tuple[Callable[[Machine], Machine], list[Any]]] = {
    "two failures under the same driver": (lambda m: m.cuda(FAIL, times=2), []),
    "three of them": (lambda m: m.cuda(FAIL, times=3), [(CUDA, OLD, OLD)]),
    "a success in between": (lambda m: m.updated().cuda(FAIL).cuda().cuda(FAIL), []),
    "a probe that is refused while others work": (
        lambda m: m.updated().run("launch", reason=BAD).run("event").run("launch", reason=BAD),
        [],
    ),
    "all probes, for less than a minute": (
        lambda m: m.updated().run(*NAMES, reason=BAD).run("event"),
        [],
    ),
    "all probes, for a minute": (
        lambda m: (
            m.updated().run("launch", reason=BAD).run("event", reason=BAD).run("triad", reason=BAD)
        ),
        [(GPU, OLD, NEW)],
    ),
    "failures right after a pause": (
        lambda m: m.updated().resumed().cuda(FAIL, times=2).well(),
        [],
    ),
    "a hang under the same driver": (
        lambda m: m.run("launch", reason=Reason.HUNG).breaker(State.OPEN),
        [],
    ),
    "a hang under a new driver": (
        lambda m: m.updated().run("launch", reason=Reason.HUNG).breaker(State.OPEN),
        [(GPU, OLD, NEW)],
    ),
    "a hang that is over": (
        lambda m: m.updated().run("launch", reason=Reason.HUNG).breaker(State.CLOSED),
        [],
    ),
    **{
        f"a driver that is {reason.value}": (partial(Machine.cuda, reason=reason, times=4), [])
        for reason in (Reason.DEVICE_BUSY, Reason.NOT_READY, Reason.SPAWN_FAILED, Reason.KILLED)
    },
    "NVML silent for less than two minutes": (lambda m: m.silent(100), []),
    "NVML silent for longer": (lambda m: m.silent(140), [(Subject("nvml"), OLD, OLD)]),
    "CUDA and NVML gone at once": (
        lambda m: m.updated(nvml="x").cuda(FAIL).pass_s(120).cuda(FAIL),
        [(CUDA, OLD, NEW)],
    ),
}


@pytest.mark.parametrize(("happens", "lost"), STORIES.values(), ids=STORIES.keys())
def test_failures_that_are_a_loss_and_failures_that_are_none(
    happens: Callable[[Machine], Machine], lost: list[Any]
) -> None:
    assert happens(Machine().well()).losses == lost


def test_loss_ends_with_that_of_the_whole_when_well_without_it_or_when_nothing_tries_it() -> None:
    machine = Machine().well()
    machine.nvml = "library_missing"
    for _ in range(3):
        machine.run("event", "triad", reason=BAD)
    parts = {GPU, Subject("nvml")}
    assert set(subjects(machine.lost)) == parts
    again = machine.restarted()  # without that GPU
    again.post(health_set("nvml", Level.OK, again.now.wall_s))
    again.mono_s += 1
    again.look()
    assert subjects(again.back) == [Subject("nvml")]
    again.pass_s(functions.UNTRIED_S)
    assert subjects(again.back) == [Subject("nvml"), GPU]
    machine.cuda(Reason.INIT_FAILED, times=3)
    assert list(machine.state.lost) == [CUDA]
    assert set(subjects(machine.back)) == parts


def test_gpu_without_a_working_probe_is_a_single_loss_and_a_vanished_gpu_is_none() -> None:
    machine = Machine().cuda(devices=2).run(*NAMES).run(*NAMES, gpu="GPU-2")
    for _ in range(3):
        machine.run(*NAMES, reason=Reason.ECC_ERROR).run(*NAMES, gpu="GPU-2")
    assert machine.losses == [(GPU, OLD, OLD)]
    machine.run("launch")
    assert subjects(machine.back) == [GPU]
    before = machine.run(*NAMES).losses
    machine.cuda(devices=1, times=4)
    assert machine.losses == before  # that is told by the health of the devices


def test_container_that_fails_beside_a_good_run_is_lost() -> None:
    machine = Machine(specs=("nbody",)).well()
    last = ROOT.containers
    assert last is not None
    assert last.run is not None
    good = structs.replace(last.run, finished_mono_s=machine.mono_s)
    failure = ContainerFailure(Reason.TOOLKIT_FAILED, "the hook failed", advice="install it again")
    for run in (good, ContainerRun(1.0, machine.mono_s + 60, 1.0, failure=failure)):
        machine.run("nbody")
        report = structs.replace(
            ROOT, beat_s=machine.mono_s, containers=structs.replace(last, run=run)
        )
        machine.post(root_read(report, None, machine.now.wall_s))
        machine.pass_s(5)
    assert machine.losses == [(Subject("container"), OLD, OLD)]
    again = structs.replace(last, run=structs.replace(good, finished_mono_s=machine.mono_s))
    machine.post(root_read(structs.replace(ROOT, containers=again), None, machine.now.wall_s))
    machine.pass_s(5)
    assert subjects(machine.back) == [Subject("container")]


def test_restart_remembers_what_worked_and_what_is_lost() -> None:
    machine = Machine().well().restarted()
    machine.driver = NEW
    machine.pass_s(20).cuda(Reason.INIT_FAILED, times=2)
    assert machine.losses == [(Subject("cuda"), OLD, NEW)]
    again = machine.restarted()
    again.pass_s(20).cuda(Reason.INIT_FAILED, times=3)
    assert (again.losses, subjects(again.cuda().back)) == ([], [Subject("cuda")])


FAILED = Health(Level.FAILED)
BUSY, WELL = Health(Level.DEGRADED), Health(Level.OK)


@dataclass
class Parts:
    state: Components = field(default_factory=Components)
    mono_s: float = 0.0
    lost: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()

    def are(self, health: Health, seconds: float, name: str = "dockerd") -> frozenset[str]:
        """Let a part be so for some seconds, looked at each second; give what is reported then."""
        for _ in range(int(seconds)):
            self.mono_s += 1
            self.state.update({name: health}, self.mono_s, lost=self.lost, pending=self.pending)
        return self.state.reported


def test_component_is_reported_after_two_minutes_and_until_it_is_well() -> None:
    parts = Parts()
    assert parts.are(FAILED, STAYS_S) == frozenset()
    assert parts.are(FAILED, 1) == {"dockerd"}
    assert parts.are(WELL, 1) == frozenset()
    for _ in range(9):  # it starts again all the time
        parts.are(FAILED, 5)
        parts.are(BUSY, 10)
    assert parts.are(FAILED, 1) == {"dockerd"}
    assert parts.are(BUSY, RESTS_S + 1) == frozenset()
    waits = Parts(pending=("cuda",))  # it may yet be a lost function
    assert waits.are(FAILED, 22 * 60, "cuda") == frozenset()  # three rounds of 10 minutes, late
    assert waits.are(FAILED, PATIENCE_S, "cuda") == {"cuda"}


@pytest.mark.parametrize(
    ("kind", "name"),
    [("cuda", "probes"), ("cuda", "devices"), ("nvml", "nvml"), ("container", "containers")],
)
def test_what_a_lost_function_says_is_not_said_again(kind: str, name: str) -> None:
    parts = Parts(lost=(kind,))
    assert parts.are(FAILED, 999, name) == frozenset()
    assert parts.are(FAILED, 999, "store") == {"store"}
    reported = Parts()
    reported.are(FAILED, 999, name)
    reported.lost = (kind,)
    assert reported.are(FAILED, 1, name) == frozenset()
